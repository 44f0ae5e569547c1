"""Ctrl-C in the middle of an offline run ends it cleanly: the next run's tokens are what they would have been."""

import os
import signal

import pytest

from batchscope import LLM, SamplingParams
from batchscope.interrupt import deferred_interrupt

PROMPT = [(7 * i + 3) % 256 for i in range(60)]
GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


@pytest.fixture(autouse=True)
def _interrupts_arrive():
    """A shell that starts the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_in_mid_pass_takes_effect_after_it_and_the_engine_goes_on():
    llm = LLM("tiny", dtype="float32", block_size=4, max_num_batched_tokens=32)
    runner = llm.engine.core_client.core.model_executor.driver_worker.model_runner
    model, calls = runner.model, []

    def interrupted(*args):
        calls.append(len(calls))
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return model(*args)

    interrupted.dtype, interrupted.compute_logits = model.dtype, model.compute_logits
    interrupted.path = model.path
    runner.model = interrupted
    with pytest.raises(KeyboardInterrupt):
        llm.generate(PROMPT, GREEDY, use_tqdm=False)
    again = llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].token_ids
    assert again == LLM("tiny", dtype="float32").generate(PROMPT, GREEDY, use_tqdm=False)[0].token_ids


def test_a_second_interrupt_does_not_wait():
    with pytest.raises(KeyboardInterrupt), deferred_interrupt():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the second Ctrl-C was held back")
