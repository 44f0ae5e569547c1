"""The engine for servers: streams, cancellation, ids and death."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from engine.async_llm import AsyncLLM, EngineDeadError, RequestStream
from engine.config import EngineConfig
from engine.inproc_client import InprocClient
from engine.sampling_params import SamplingParams

SETTINGS = {
    "model": "tiny", "dtype": "float32", "max_num_seqs": 4, "max_num_batched_tokens": 32, "block_size": 4,
    "num_gpu_blocks_override": 65, "max_model_len": 128, "check": True,
}  # fmt: skip
LONG = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True)


def short(max_tokens: int = 5) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


@pytest.fixture(scope="module", params=[InprocClient, None], ids=["in process", "own process"])
def llm(request: pytest.FixtureRequest) -> Iterator[AsyncLLM]:
    client = {"make_client": request.param} if request.param else {}
    engine = AsyncLLM(EngineConfig.make(**SETTINGS), **client)
    yield engine
    engine.shutdown()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_until_idle(llm: AsyncLLM) -> None:
    wait_for(lambda: llm.call("stats") == {"running": 0, "waiting": 0, "num_free_blocks": 64})


def text_of(stream: RequestStream) -> str:
    return "".join(output.text_delta for output in stream)


def test_many_threads_get_their_own_streams(llm: AsyncLLM) -> None:
    prompts = [f"prompt {i}" for i in range(12)]
    alone = [text_of(llm.generate(prompt, short())) for prompt in prompts]
    together: dict[int, str] = {}

    def read(i: int) -> None:
        together[i] = text_of(llm.generate(prompts[i], short()))

    threads = [threading.Thread(target=read, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[i] for i in range(len(prompts))] == alone
    wait_until_idle(llm)


def test_a_stream_counts_and_says_how_it_ended(llm: AsyncLLM) -> None:
    outputs = list(llm.generate([1, 2, 3], short(4)))
    assert [output.num_output_tokens for output in outputs] == [1, 2, 3, 4]
    assert [output.finished for output in outputs] == [False, False, False, True]
    assert outputs[-1].finish_reason == "length"
    assert outputs[-1].num_prompt_tokens == 3


def test_reading_waits_no_longer_than_asked_and_ends_after_the_last(llm: AsyncLLM) -> None:
    llm.call("pause")
    stream = llm.generate("x", short(1))
    assert stream.get(0.05) is None
    llm.call("resume")
    last = stream.get(30)
    assert last is not None
    assert last.finished
    assert stream.get() is None


def test_a_live_id_is_refused_and_may_come_again_when_it_has_ended(llm: AsyncLLM) -> None:
    """CASES 29."""
    first = llm.generate("x", LONG, request_id="mine")
    with pytest.raises(ValueError, match="'mine' is in use by a live request"):
        llm.generate("y", short(), request_id="mine")
    first.cancel()
    assert list(first)[-1].finish_reason == "abort"
    first.cancel()
    again = list(llm.generate("y", short(3), request_id="mine"))
    assert [output.num_output_tokens for output in again] == [1, 2, 3], "nothing of the first comes to the second"
    wait_until_idle(llm)


def test_cancelling_one_of_many_touches_no_other(llm: AsyncLLM) -> None:
    alone = text_of(llm.generate("kept", short(30)))
    streams = [llm.generate("gone", LONG) for _ in range(6)]
    kept = llm.generate("kept", short(30))
    for stream in streams:
        stream.cancel()
    assert text_of(kept) == alone
    wait_until_idle(llm)


def test_a_bad_request_is_refused_at_once_and_the_others_go_on(llm: AsyncLLM) -> None:
    stream = llm.generate("x", short(20))
    for prompt in ("", [10_000], "x" * 200, None):
        with pytest.raises(ValueError, match="prompt"):
            llm.generate(prompt, short())  # type: ignore[arg-type]
    assert list(stream)[-1].finish_reason == "length"
    wait_until_idle(llm)


def test_the_log_follows(llm: AsyncLLM) -> None:
    list(llm.generate("x", short(), request_id="logged"))
    wait_for(lambda: llm.log.state()["requests"]["logged"].get("finish_reason") == "length")
    state = llm.log.state()
    assert len(state["requests"]["logged"]["output_token_ids"]) == 5
    assert llm.healthy


def test_a_stop_string_frees_the_row(llm: AsyncLLM) -> None:
    text = text_of(llm.generate("stop", short(30)))
    stop = text[5:7]
    params = SamplingParams(temperature=0.0, max_tokens=100, ignore_eos=True, stop=[stop])
    outputs = list(llm.generate("stop", params))
    assert "".join(output.text_delta for output in outputs) == text[: text.index(stop)]
    assert outputs[-1].stop_reason == stop
    wait_until_idle(llm)


def test_a_dead_engine_tells_every_open_request_and_refuses_new_ones() -> None:
    llm = AsyncLLM(EngineConfig.make(**SETTINGS), InprocClient)
    llm.call("pause")
    streams = [llm.generate("x", LONG) for _ in range(3)]
    core = llm._client.core  # type: ignore[attr-defined]

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("the device is gone")

    core.model_executor.execute_model = fail
    llm.call("resume")
    for stream in streams:
        with pytest.raises(EngineDeadError, match="the device is gone"):
            list(stream)
    assert not llm.healthy
    with pytest.raises(EngineDeadError, match="the device is gone"):
        llm.generate("x", LONG)
    llm.shutdown()


def test_shutting_down_ends_open_requests() -> None:
    llm = AsyncLLM(EngineConfig.make(**SETTINGS), InprocClient)
    llm.call("pause")
    stream = llm.generate("x", LONG)
    llm.shutdown()
    llm.shutdown()
    with pytest.raises(EngineDeadError, match="shut down"):
        list(stream)
    assert not llm.healthy
