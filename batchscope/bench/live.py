"""An engine as `batchscope serve` runs it: its core in a process of its own, its log and its streams in this one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from batchscope.bench.protocol import prompts_of
from engine.async_llm import AsyncLLM, MakeClient
from engine.config import EngineConfig
from engine.process_client import ProcessClient
from engine.request_stream import RequestStream
from engine.sampling_params import SamplingParams

PATIENCE_S = 600.0
PROMPT_TOKENS = 16  # 32 rows of them fit into one pass of the default budget, and decode from the same pass on


class LiveEngine:
    """Decodes rows of random prompts, all of one length. Make it with `live_engine`."""

    def __init__(self, llm: AsyncLLM) -> None:
        self.llm = llm

    def start_rows(self, rows: int, new_tokens: int, seed: int) -> list[RequestStream]:
        """Start the requests and return their streams once each has its first token."""
        vocab_size = self.llm.tokenizer.vocab_size
        job = {"seed": seed, "rows": rows, "prompt_tokens": PROMPT_TOKENS, "vocab_size": vocab_size}
        params = SamplingParams(temperature=0.0, max_tokens=new_tokens, ignore_eos=True)
        streams = [self.llm.generate(prompt, params) for prompt in prompts_of(job)]
        for stream in streams:
            _next(stream)
        return streams

    def decode_rate(self, rows: int, new_tokens: int, seed: int) -> float:
        """Return tokens a second from when all rows decode to their end."""
        streams = self.start_rows(rows, new_tokens, seed)
        start = time.perf_counter()
        for stream in streams:
            while not _next(stream).finished:
                pass
        return rows * (new_tokens - 1) / (time.perf_counter() - start)


@contextmanager
def live_engine(rows: int, make_client: MakeClient = ProcessClient, **settings: Any) -> Iterator[LiveEngine]:
    """Start an engine with room for `rows` rows; end it with the block. Raises ConfigError."""
    llm = AsyncLLM(EngineConfig.make(max_num_seqs=rows, **settings), make_client)
    try:
        yield LiveEngine(llm)
    finally:
        llm.shutdown()


def _next(stream: RequestStream) -> Any:
    output = stream.get(PATIENCE_S)
    if output is None:
        raise RuntimeError(f"the engine has given {stream.request_id} nothing for {PATIENCE_S:.0f} s")
    return output
