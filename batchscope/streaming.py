"""Answers in the terminal, piece by piece, from an engine in this process."""

import argparse
import itertools
import sys
from collections.abc import Iterator

from batchscope.commands.serve import add_engine_flags, engine_config
from engine.llm_engine import LLMEngine
from engine.processor import Prompt
from engine.sampling_params import SamplingParams

SAMPLING = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop")


def add_flags(parser: argparse.ArgumentParser, max_tokens: int | None, temperature: float) -> None:
    """Add the flags of sampling, with these defaults, and those of the engine."""
    group = parser.add_argument_group("sampling")
    words = "as many as fit" if max_tokens is None else str(max_tokens)
    group.add_argument("--max-tokens", type=int, default=max_tokens, help=f"tokens of an answer (default: {words})")
    group.add_argument("--temperature", type=float, default=temperature, help="0 is greedy (default: %(default)s)")
    group.add_argument("--top-p", type=float, help="sample of the likeliest tokens with this much probability together")
    group.add_argument("--top-k", type=int, help="sample of so many of the likeliest tokens")
    group.add_argument("--min-p", type=float, help="sample of tokens at least this part as likely as the likeliest")
    group.add_argument("--repetition-penalty", type=float, help="above 1, what has been said becomes less likely")
    group.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before this text")
    # --seed is the engine's: it serves requests that bring none of their own.
    add_engine_flags(parser)


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """Return what the flags ask for. Raises ValueError."""
    return SamplingParams.make(**{name: getattr(args, name, None) for name in SAMPLING})


class Streamer:
    """One engine that answers one prompt at a time."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Load the model. Raises ConfigError, and ValueError for sampling parameters out of range."""
        self.params = sampling_params(args)
        config = engine_config(args)
        config.trace_config.trace = False  # nobody watches
        print(f"Loading {config.model_config.model} ...", file=sys.stderr, flush=True)
        self._engine = LLMEngine(config)
        self.tokenizer = self._engine.tokenizer
        self._request_ids = map(str, itertools.count())

    def answer(self, prompt: Prompt) -> Iterator[str]:
        """Yield the answer's text as it comes; whoever stops reading ends it. Raises ValueError for a bad prompt."""
        request_id = next(self._request_ids)
        self._engine.add_request(request_id, prompt, self.params)
        try:
            while self._engine.has_unfinished_requests():
                for output in self._engine.step():
                    if output.finish_reason == "error":
                        raise ValueError(output.error)
                    yield output.text_delta
        finally:
            self._engine.abort_request(request_id)

    def chat(self, messages: list[dict[str, str]]) -> Iterator[str]:
        """Yield the model's next message. Raises ValueError where the model does not chat or the talk is too long."""
        text = self.tokenizer.apply_chat_template(messages)
        return self.answer(self.tokenizer.encode(text, add_special_tokens=False))

    def close(self) -> None:
        self._engine.shutdown()


def show(pieces: Iterator[str]) -> str:
    """Print pieces as they come, and a line's end; return them joined."""
    said = []
    for piece in pieces:
        said.append(piece)
        print(piece, end="", flush=True)
    print(flush=True)
    return "".join(said)
