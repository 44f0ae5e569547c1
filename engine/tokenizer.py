"""Text to token ids and back, for every kind of model we load."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.chat_template import render_chat_template
from engine.config import ModelConfig
from engine.gguf_metadata import read_gguf_metadata
from engine.tokenizer_parts import TokenizerParts, byte_alphabet, parts_of_folder, parts_of_gguf, parts_of_tiny

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """A model's tokenizer. Every method may be called from several threads at once: nothing changes after loading."""

    def __init__(self, parts: TokenizerParts, hf_config: dict[str, Any]) -> None:
        """`hf_config` gives the vocabulary's size, which the tokens may not fill, and the end tokens."""
        self._backend = parts.backend
        self._parts = parts
        self.vocab_size: int = hf_config["vocab_size"]  # ids that the model can produce: 0 .. vocab_size - 1
        self.bos_token_id = self._id_of(parts.bos_token, hf_config.get("bos_token_id"))
        self.eos_token_id = self._id_of(parts.eos_token, hf_config.get("eos_token_id"))
        ends = [self.eos_token_id, *hf_config.get("eos_token_ids", ())]
        self.eos_token_ids: list[int] = list(dict.fromkeys(i for i in ends if i is not None))
        self._added = self._backend.get_added_tokens_decoder()
        self._byte_of = {char: byte for byte, char in enumerate(byte_alphabet())}
        self._byte_level = '"ByteLevel"' in json.dumps(json.loads(self._backend.to_str())["decoder"])

    @classmethod
    def load(cls, model_config: ModelConfig) -> "Tokenizer":
        """Return the tokenizer of a resolved model. Raises ConfigError when the model's files hold none."""
        if model_config.path is None:
            parts = parts_of_tiny(model_config.hf_config["vocab_size"])
        elif Path(model_config.path).is_dir():
            parts = parts_of_folder(Path(model_config.path))
        else:
            parts = parts_of_gguf(read_gguf_metadata(model_config.path))
        return cls(parts, model_config.hf_config)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of `text`; special tokens written in it are recognized.

        `add_special_tokens` adds what the model expects around a prompt: a begin token, or nothing.
        """
        # The batch call lets other threads run meanwhile.
        ids = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        if add_special_tokens and self._parts.add_bos and self.bos_token_id is not None:
            return [self.bos_token_id, *ids]
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of `ids`; bytes that are no whole character become U+FFFD, unknown ids nothing."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the raw bytes that one token stands for; a special token's are its text, an unused id has none."""
        token = self._backend.id_to_token(token_id)
        if token is None:
            return b""
        if token_id in self._added:
            return token.encode()
        if self._byte_level and all(char in self._byte_of for char in token):
            return bytes(self._byte_of[char] for char in token)
        if escaped := BYTE_TOKEN.fullmatch(token):
            return bytes([int(escaped[1], 16)])
        return token.replace("▁", " ").encode()

    def is_special(self, token_id: int) -> bool:
        """Tell whether the id is a control token, such as an end token, rather than text."""
        return token_id in self._parts.special_ids

    @property
    def template_takes_tools(self) -> bool:
        """Whether the model's chat template has a place for the functions that it may call."""
        return "tools" in (self._parts.chat_template or "")

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool = True,
        tools: list[dict[str, Any]] | None = None,
    ) -> str:
        """Return the prompt for a conversation: encode it with add_special_tokens=False.

        Raises ValueError when the model has no template or its template refuses the messages.
        """
        if not self._parts.chat_template:
            raise ValueError("this model has no chat template: send plain text instead")
        return render_chat_template(
            self._parts.chat_template,
            messages,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            bos_token=self._parts.bos_token,
            eos_token=self._parts.eos_token,
        )

    def _id_of(self, token: str, configured: int | None) -> int | None:
        """Return the id of a named token, else what the model's settings say."""
        found = self._backend.token_to_id(token) if token else None
        return configured if found is None else found
