"""POST /v1/completions with a real engine: what it answers, refuses, streams and gives up."""

import socket
import threading
import time

import pytest
import requests
from helpers.web import Site, at_once, events, running_site, text_of, until

LONG = {"max_tokens": 900, "ignore_eos": True}


@pytest.fixture(scope="module")
def site():
    with running_site() as running:
        yield running


def counts(usage):
    return usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]


def start_raw(site: Site, body: bytes) -> socket.socket:
    """Send a completion request by hand and leave the connection open."""
    connection = socket.create_connection(site.base.removeprefix("http://").split(":"))
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"X-Request-Id: raw\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    return connection


def test_the_joined_stream_is_the_whole_text(site):
    whole = site.complete("Hello there", max_tokens=24, ignore_eos=True).json()
    stream = events(site.complete("Hello there", max_tokens=24, ignore_eos=True, stream=True))
    assert stream[-1] == "[DONE]"
    assert text_of(stream) == whole["choices"][0]["text"]
    assert stream[-2]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert counts(whole["usage"]) == (11, 24, 35)


def test_sixteen_streams_at_once_equal_the_same_prompts_alone(site):
    prompts = [f"Prompt number {i} " + "word " * i for i in range(16)]
    alone = [site.complete(prompt, max_tokens=20).json()["choices"][0]["text"] for prompt in prompts]
    together = at_once(
        [lambda p=prompt: text_of(events(site.complete(p, max_tokens=20, stream=True))) for prompt in prompts]
    )
    assert together == alone


def test_several_prompts_are_several_choices_each_with_its_own_request(site):
    prompts = ["One", "Another prompt", "A third"]
    answer = site.complete(prompts, max_tokens=6, headers={"X-Request-Id": "many"}).json()
    assert answer["id"] == "cmpl-many"
    alone = [site.complete(prompt, max_tokens=6).json()["choices"][0]["text"] for prompt in prompts]
    assert [choice["text"] for choice in answer["choices"]] == alone
    assert {"many-0", "many-1", "many-2"} <= set(site.state()["requests"])
    streamed = events(site.complete(prompts, max_tokens=6, stream=True))
    texts = ["", "", ""]
    for item in streamed[:-1]:
        texts[item["choices"][0]["index"]] += item["choices"][0]["text"]
    assert texts == alone


def test_token_ids_are_a_prompt_and_lists_of_them_are_prompts(site):
    ids = site.llm.tokenizer.encode("Hello")
    text = site.complete("Hello", max_tokens=5).json()["choices"][0]["text"]
    assert site.complete(ids, max_tokens=5).json()["choices"][0]["text"] == text
    both = site.complete([ids, ids], max_tokens=5).json()
    assert [choice["text"] for choice in both["choices"]] == [text, text]
    assert both["usage"]["prompt_tokens"] == 2 * len(ids)


def test_usage_comes_last_without_choices_and_only_when_asked_for(site):
    asked = events(site.complete("Hi", max_tokens=3, stream=True, stream_options={"include_usage": True}))
    assert asked[-2]["choices"] == []
    assert counts(asked[-2]["usage"]) == (2, 3, 5)
    assert all(item["usage"] is None for item in asked[:-2])
    for options in ({}, None):
        silent = events(site.complete("Hi", max_tokens=3, stream=True, stream_options=options))
        assert all("usage" not in item for item in silent[:-1])


def test_stop_strings_end_the_text_before_them(site):
    whole = site.complete("Once", max_tokens=30, ignore_eos=True).json()["choices"][0]["text"]
    stop = whole[6:9]
    answer = site.complete("Once", max_tokens=30, ignore_eos=True, stop=stop).json()["choices"][0]
    assert answer["text"] == whole[: whole.index(stop)]
    assert (answer["finish_reason"], answer["stop_reason"]) == ("stop", stop)


def test_the_same_seed_gives_the_same_text(site):
    drawn = [
        site.complete("Dice", max_tokens=12, temperature=1.5, seed=seed).json()["choices"][0]["text"]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": ["good", []]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": "x" * 1024}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"stop": ""}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"seed": "seven"}, "seed"),
        ({"n": 0}, "n"),
        ({"n": 2, "temperature": 0}, "n"),
        ({"n": 9999}, "n"),
        ({"echo": True, "logprobs": 1, "stream": True}, "echo"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -2}, "logprobs"),
        ({"best_of": 3}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"top_p_min": 1}, "top_p_min"),
        ({"top_k": 10**30}, "top_k"),
        ({"logit_bias": {"400000": 1}}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"stop_token_ids": [400000]}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"structured_outputs": {"xml": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "response_format"),
        ({"cache_salt": 3}, "cache_salt"),
        ({"request_id": ""}, "request_id"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name_and_nobody_else_notices(site, fields, param):
    answer = site.post("/v1/completions", {"prompt": "fine", **fields})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["code"] == 400
    assert "\n" not in error["message"]
    assert site.rows() == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b"\xff", b'{"prompt": NaN}', b"[" * 100_000, b""])
def test_a_body_that_is_no_json_object_is_refused(site, body):
    headers = {"Content-Type": "application/json"}
    assert site.post("/v1/completions", None, data=body, headers=headers).status_code == 400


def test_bad_requests_leave_the_others_generating(site):
    wanted = site.complete("steady", max_tokens=80, ignore_eos=True).json()["choices"][0]["text"]
    good = [lambda: text_of(events(site.complete("steady", max_tokens=80, ignore_eos=True, stream=True)))]
    bad = [lambda p=p: site.complete(p).status_code for p in ("", [-1], "x" * 5000, 3) * 5]
    results = at_once(good + bad)
    assert results[0] == wanted
    assert set(results[1:]) == {400}


def test_an_unknown_model_or_route_or_method_is_told_in_json(site):
    assert site.complete("a", model="gpt-5").status_code == 404
    assert site.complete("a", model="tiny", max_tokens=1).status_code == 200
    for answer, status in (
        (site.get("/v1/nothing"), 404),
        (site.get("/v1/completions"), 405),
        (site.get("/v1/chat/completions"), 405),
        (site.post("/v1/embeddings", {"input": "a"}), 404),
        (site.get("/nothing"), 404),
        (site.get("/api/nothing"), 404),
    ):
        assert answer.status_code == status
        assert answer.json()["error"]["code"] == status


def test_a_live_id_is_refused_a_second_time_and_the_first_goes_on(site):
    first = site.complete("first", headers={"X-Request-Id": "twin"}, stream=True, max_tokens=150, ignore_eos=True)
    assert first.headers["X-Request-Id"] == "twin"
    second = site.complete("second", headers={"X-Request-Id": "twin"})
    assert second.status_code == 400
    assert "twin" in second.json()["error"]["message"]
    stream = events(first)
    assert stream[-2]["choices"][0]["finish_reason"] == "length"
    assert stream[0]["id"] == "cmpl-twin"


def test_where_one_of_several_prompts_is_bad_none_runs(site):
    answer = site.complete(["good", [-5]], headers={"X-Request-Id": "mixed"}, **LONG)
    assert answer.status_code == 400
    until(lambda: site.rows() == [])


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_row(site, stream):
    body = b'{"prompt": "leave me", "max_tokens": 900, "ignore_eos": true, "stream": %s}' % str(stream).lower().encode()
    connection = start_raw(site, body)
    until(lambda: "raw" in site.rows())
    connection.close()
    assert until(lambda: site.finished("raw")) == "abort"
    assert "raw" not in site.rows()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_while_the_engine_is_paused_is_gone_when_it_resumes(site, stream):
    site.post("/api/control", {"action": "pause"})
    try:
        body = b'{"prompt": "waiting", "max_tokens": 900, "stream": %s}' % str(stream).lower().encode()
        connection = start_raw(site, body)
        until(lambda: "raw" in site.server.services.live.ids())
        connection.close()
        until(lambda: "raw" not in site.server.services.live.ids())
    finally:
        site.post("/api/control", {"action": "resume"})
    assert until(lambda: site.finished("raw")) == "abort"


def test_a_paused_engine_keeps_streams_alive_with_comments(site):
    site.post("/api/control", {"action": "pause"})
    try:
        lines = site.complete("wait", max_tokens=2, stream=True).iter_lines()
        started = time.monotonic()
        assert next(line for line in lines if line) == b": ping"
        assert time.monotonic() - started < 5
    finally:
        site.post("/api/control", {"action": "resume"})
    assert list(lines)[-2] == b"data: [DONE]"


def test_models_and_health(site):
    [card] = site.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("tiny", "model", 1024)
    assert site.get("/v1/models/tiny").json() == card
    health = site.get("/health")
    assert (health.status_code, health.content) == (200, b"")


def test_a_streamed_tokens_offset_is_where_it_begins_although_text_is_held_back(site):
    fields = {"max_tokens": 12, "logprobs": 1, "ignore_eos": True, "stop": ["a stop that never comes"]}
    whole = site.complete("offsets", **fields).json()["choices"][0]["logprobs"]
    chunks = events(site.complete("offsets", stream=True, **fields))[:-1]
    parts = [choice["logprobs"] for chunk in chunks for choice in chunk["choices"] if choice["logprobs"]]
    assert [offset for part in parts for offset in part["text_offset"]] == whole["text_offset"]


def test_an_echo_with_logprobs_that_is_aborted_before_its_first_pass_has_none(site):
    site.post("/api/control", {"action": "pause"})
    try:
        answers: list = []
        fields = {"echo": True, "logprobs": 1, "max_tokens": 4}
        asking = threading.Thread(
            target=lambda: answers.append(site.complete("echo", {"X-Request-Id": "early"}, **fields))
        )
        asking.start()
        until(lambda: "early" in site.server.services.live.ids())
        requests.delete(f"{site.base}/api/requests/early", timeout=60)
        asking.join()
    finally:
        site.post("/api/control", {"action": "resume"})
    [choice] = answers[0].json()["choices"]
    assert (answers[0].status_code, choice["text"], choice["finish_reason"]) == (200, "echo", "abort")
    assert set(choice["logprobs"]["token_logprobs"]) == {None}


@pytest.mark.parametrize(("path", "field"), [("completions", "prompt"), ("chat/completions", "messages")])
def test_a_text_too_long_for_any_tokenizer_is_refused_before_it_is_tokenized(site, path, field):
    text = "a" * (1024 * 256 + 1)
    value = text if field == "prompt" else [{"role": "user", "content": text}]
    answer = site.post(f"/v1/{path}", {field: value, "echo": True} if field == "prompt" else {field: value})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == field
    assert "characters" in answer.json()["error"]["message"]
