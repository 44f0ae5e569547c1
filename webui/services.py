"""What the routes share."""

import hashlib
import itertools
import threading
import time

import msgspec
from flask import current_app

from engine.async_llm import AsyncLLM
from engine.tokenizer import Tokenizer
from webui.broadcaster import Broadcaster
from webui.live import Drain, LiveRequests
from webui.security import Access


class Vocabulary:
    """The bytes of every token as msgpack, made when first asked for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()
        self._packed: tuple[bytes, str] | None = None

    def packed(self) -> tuple[bytes, str]:
        """Return (msgpack map of `tokens` and `special`, its digest)."""
        with self._lock:
            if self._packed is None:
                ids = range(self._tokenizer.vocab_size)
                tokens = [self._tokenizer.token_bytes(i) for i in ids]
                special = [i for i in ids if self._tokenizer.is_special(i)]
                data = msgspec.msgpack.encode({"tokens": tokens, "special": special})
                self._packed = data, hashlib.sha256(data).hexdigest()[:32]
            return self._packed


class Services:
    """One engine and what serves it. Routes reach it by `services()`."""

    def __init__(self, llm: AsyncLLM, access: Access, broadcaster: Broadcaster) -> None:
        self.llm = llm
        self.access = access
        self.broadcaster = broadcaster
        self.live = LiveRequests(llm)
        self.drain = Drain(self.live)
        self.vocabulary = Vocabulary(llm.tokenizer)
        self.created = int(time.time())
        self.next_number = itertools.count(1).__next__  # numbers the requests that the page makes

    @property
    def model_name(self) -> str:
        """The name under which the model is served."""
        config = self.llm.config.model_config
        return config.served_model_name or config.model

    def start(self) -> None:
        self.broadcaster.start()
        self.drain.start()


def services() -> Services:
    """Return the services of the app that handles this request."""
    return current_app.extensions["batchscope"]
