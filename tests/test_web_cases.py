"""Texts that arrive in awkward pieces, numbers that JSON lacks, and clients that leave a batch of one row."""

import json
import math

import pytest
from helpers.web import Site, events, running_site, text_of, until
from test_web_completions import start_raw

from engine.logprobs import Logprob
from webui.logprob_shapes import chat_logprobs, completion_logprobs


@pytest.fixture(scope="module")
def site():
    with running_site(max_num_seqs=1, max_num_batched_tokens=16, enable_prefix_caching=False) as running:
        yield running


def said(site: Site, text: str, prompt="Say", **fields) -> tuple[str, str, dict]:
    """Have the model say `text`, streamed and whole; return both and the whole's choice."""
    fields = {"structured_outputs": {"choice": [text]}, "max_tokens": 100, **fields}
    choice = site.complete(prompt, **fields).json()["choices"][0]
    streamed = text_of(events(site.complete(prompt, stream=True, **fields)))
    return streamed, choice["text"], choice


def test_an_emoji_over_several_tokens_is_never_seen_in_part(site):
    stream = events(site.complete("Say", structured_outputs={"choice": ["ab😀cd"]}, max_tokens=30, stream=True))
    texts = [choice["text"] for item in stream[:-1] for choice in item["choices"]]
    assert "".join(texts) == "ab😀cd"
    assert "😀" in texts
    assert not any("\ufffd" in text for text in texts)


def test_a_prompt_that_ends_in_half_a_character_is_not_said_again(site):
    half = site.llm.tokenizer.encode("été")[:-1]
    streamed, whole, _ = said(site, "xyz", prompt=half)
    assert streamed == whole
    assert whole.endswith("xyz")
    assert "t" not in whole


def test_what_was_held_back_for_a_stop_string_comes_at_the_end(site):
    streamed, whole, choice = said(site, "abcDEFGHI", stop="DEFGHIJ")
    assert streamed == whole == "abcDEFGHI"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", None)
    streamed, whole, choice = said(site, "abcDEFGHIJKL", stop="DEFGHIJ")
    assert streamed == whole == "abc"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "DEFGHIJ")


def test_a_prompt_one_token_short_of_the_model_length_gets_one_token(site):
    for max_tokens in (1, 5, None):
        answer = site.complete("x" * 1023, max_tokens=max_tokens, ignore_eos=True).json()
        assert answer["usage"]["completion_tokens"] == 1
        assert answer["choices"][0]["finish_reason"] == "length"


def test_logprobs_are_json_whatever_they_are():
    position = {5: Logprob(-math.inf, 9, "a"), 6: Logprob(math.nan, 1, "b")}
    for shaped in (
        completion_logprobs([position], [5], 1),
        chat_logprobs([position], [5], 1, lambda token_id: b"\xff"),
    ):
        text = json.dumps(shaped, allow_nan=False)
        assert "-9999.0" in text


def test_echo_puts_the_prompt_before_the_answer_and_its_logprobs_before_the_answers(site):
    plain = site.complete("Once", max_tokens=3, ignore_eos=True, logprobs=2).json()["choices"][0]
    echoed = site.complete("Once", max_tokens=3, ignore_eos=True, logprobs=2, echo=True).json()["choices"][0]
    assert echoed["text"] == "Once" + plain["text"]
    assert echoed["logprobs"]["tokens"] == ["O", "n", "c", "e", *plain["logprobs"]["tokens"]]
    assert echoed["logprobs"]["text_offset"][:5] == [0, 1, 2, 3, 4]
    assert echoed["logprobs"]["token_logprobs"][0] is None
    assert echoed["logprobs"]["token_logprobs"][4:] == plain["logprobs"]["token_logprobs"]
    streamed = text_of(events(site.complete("Once", max_tokens=3, ignore_eos=True, echo=True, stream=True)))
    assert streamed == echoed["text"]


def body(name: str, prompt: str, stream: bool) -> bytes:
    return json.dumps({"prompt": prompt, "max_tokens": 20, "request_id": name, "stream": stream}).encode()


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_takes_effect_within_a_pass_and_touches_nobody_else(site, stream):
    """A holds the one row, in mid-prefill; B waits. B's client goes, then A's."""
    a, b = f"A-{stream}", f"B-{stream}"
    site.post("/pause", None)
    try:
        first = start_raw(site, body(a, "a prompt of more than three chunks of sixteen tokens", stream))
        until(lambda: a in site.state()["requests"])
        second = start_raw(site, body(b, "waiting", stream))
        until(lambda: b in site.state()["requests"])
        step(site)
        assert site.rows() == [a]

        second.close()
        until(lambda: site.finished(b) == "abort")
        step(site)
        assert site.state()["rows"][0]["num_computed_tokens"] == 16  # before this pass: A went on
        assert site.finished(a) is None

        first.close()
        until(lambda: site.finished(a) == "abort")
        step(site)  # tells the runner, and runs nothing
        assert site.rows() == []
    finally:
        site.post("/resume", None)
    assert not any("RUNNING" in str(change) for change in changes_of(site, b))
    assert site.complete("next", max_tokens=1).status_code == 200


def step(site: Site) -> None:
    """Let one pass through, and wait until it has run."""
    before = site.state()["pass_id"]
    site.post("/api/control", {"action": "step"})
    until(lambda: site.state()["pass_id"] == before + 1)


def changes_of(site: Site, req_id: str) -> list:
    """What the trace tells of one request."""
    passes = [site.get(f"/api/passes/{i}").json() for i in range(site.state()["pass_id"] + 1)]
    phases = [phase for one in passes for phase in one["phases"]]
    return [change for phase in phases for change in phase.get("requests", ()) if change[0] == req_id]
