"""Structured output through the clients: an idle engine wakes up when a grammar is ready, or has had its time."""

import json
import time
from collections.abc import Iterator

import pytest
from helpers.held_backend import hold

from batchscope import LLM
from engine.async_llm import AsyncLLM
from engine.config import EngineConfig
from engine.inproc_client import InprocClient
from engine.sampling_params import SamplingParams

SETTINGS = {
    "model": "tiny", "dtype": "float32", "max_num_seqs": 4, "max_num_batched_tokens": 32, "block_size": 4,
    "num_gpu_blocks_override": 65, "max_model_len": 128, "check": True,
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}


def ask(**spec) -> SamplingParams:
    return SamplingParams.make(temperature=1.0, seed=1, max_tokens=30, structured_outputs=spec)


@pytest.fixture(scope="module", params=[InprocClient, None], ids=["in process", "own process"])
def llm(request: pytest.FixtureRequest) -> Iterator[AsyncLLM]:
    client = {"make_client": request.param} if request.param else {}
    engine = AsyncLLM(EngineConfig.make(**SETTINGS), **client)
    yield engine
    engine.shutdown()


def outcome(stream):
    outputs = list(stream)
    return "".join(output.text_delta for output in outputs), outputs[-1].finish_reason, outputs[-1].error


def test_an_idle_engine_answers_as_soon_as_the_grammar_is_compiled(llm):
    text, reason, _ = outcome(llm.generate("x", ask(json=SCHEMA)))
    assert json.loads(text) in ({"a": True}, {"a": False})
    assert reason == "stop"
    began = time.monotonic()
    assert outcome(llm.generate("x", ask(regex="[0-9]{4}")))[0].isdigit()
    assert time.monotonic() - began < 0.9, "it was woken up and did not wait for a poll"


def test_an_error_comes_back_with_its_reason_and_without_text(llm):
    text, reason, error = outcome(llm.generate("x", ask(regex="[")))
    assert (text, reason) == ("", "error")
    assert error.startswith("structured_outputs.regex cannot be compiled: ")


def test_each_of_n_answers_follows_the_grammar(llm):
    params = SamplingParams.make(n=3, temperature=1.0, seed=1, max_tokens=9, structured_outputs={"regex": "[0-9]{9}"})
    texts = ["", "", ""]
    for output in llm.generate("x", params):
        texts[output.index] += output.text_delta
    assert all(len(text) == 9 and text.isdigit() for text in texts)
    assert len(set(texts)) == 3


def test_an_abort_while_compiling_ends_the_stream_at_once(monkeypatch):
    release = hold(monkeypatch, "[0-9]{5}")
    engine = AsyncLLM(EngineConfig.make(**SETTINGS), make_client=InprocClient)
    stream = engine.generate("x", ask(regex="[0-9]{5}"))
    assert stream.get(0.1) is None
    assert outcome(engine.generate("x", ask(regex="[0-9]{4}")))[0].isdigit()
    stream.cancel()
    assert stream.get(5).finish_reason == "abort"
    release.set()
    engine.shutdown()


def test_offline_a_time_limit_ends_the_one_request(monkeypatch):
    release = hold(monkeypatch, "[0-9]{5}")
    llm = LLM(**SETTINGS)
    manager = llm.engine.core_client.core.scheduler.structured_output_manager
    manager.compile_limit_s, manager.load_limit_s = 0.2, 0.0
    slow, quick = llm.generate(["x", "x"], [ask(regex="[0-9]{5}"), ask(regex="[0-9]{4}")], use_tqdm=False)
    assert (slow.finish_reason, slow.error) == ("error", "structured_outputs.regex took more than 0.2 s to compile")
    assert quick.text.isdigit()
    release.set()
    llm.shutdown()


def test_the_engine_starts_without_the_grammar_library_and_the_tokenizer():
    """They are loaded when the first constrained request comes, in a thread."""
    llm = LLM(**SETTINGS)
    manager = llm.engine.core_client.core.scheduler.structured_output_manager
    llm.generate("x", SamplingParams(max_tokens=2), use_tqdm=False)
    assert (manager._pool, manager._backend) == (None, None)
    llm.shutdown()
