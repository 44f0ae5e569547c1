"""The routes beside /v1: tokens, the gate, the prefix cache, metrics, and who may use them."""

import math
import re

import pytest
import requests
from helpers.web import Site, at_once, events, running_site, until

GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def site():
    with running_site() as running:
        yield running


def values(site: Site) -> dict[str, float]:
    """Every sample of /metrics by its name, labels left out but for the reason."""
    text = site.get("/metrics").text
    found = re.findall(r'^vllm:(\w+)\{(?:[^}]*finished_reason="(\w+)")?[^}]*\} (\S+)$', text, re.MULTILINE)
    return {f"{name}.{reason}" if reason else name: float(value) for name, reason, value in found}


def test_tokenize_and_detokenize_are_each_others_inverse(site):
    told = site.post("/tokenize", {"prompt": "Héllo w300", "return_token_strs": True}).json()
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"])
    assert told["max_model_len"] == 1024
    assert site.post("/detokenize", {"tokens": told["tokens"]}).json() == {"prompt": "Héllo w300"}


def test_a_conversation_is_tokenized_as_chat_completions_would(site):
    told = site.post("/tokenize", {"messages": HELLO}).json()
    answer = site.post("/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}).json()
    assert told["count"] == answer["usage"]["prompt_tokens"]
    shorter = site.post("/tokenize", {"messages": HELLO, "add_generation_prompt": False}).json()
    assert shorter["tokens"] == told["tokens"][: shorter["count"]]
    assert shorter["count"] < told["count"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
        ("/tokenize", {"messages": HELLO, "add_special_tokens": True}, "add_special_tokens"),
        ("/tokenize", {"prompt": "a", "more": 1}, "more"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [400000]}, "tokens"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_what_cannot_be_tokenized_is_refused_by_name(site, path, body, param):
    answer = site.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_the_gate_holds_and_lets_go(site):
    assert site.get("/is_paused").json() == {"is_paused": False}
    assert site.post("/pause?mode=keep", None).json() == {"status": "paused"}
    try:
        assert site.get("/is_paused").json() == {"is_paused": True}
        assert site.state()["gate"]["paused"]
    finally:
        assert site.post("/resume", None).json() == {"status": "resumed"}
    assert site.get("/is_paused").json() == {"is_paused": False}
    assert site.post("/pause?mode=abort", None).status_code == 400


def test_the_prefix_cache_is_reset_when_nobody_holds_its_blocks(site):
    assert site.post("/reset_prefix_cache", None).json() == {"status": "reset"}
    site.post("/pause", None)
    try:
        running = site.complete("hold", max_tokens=900, ignore_eos=True, stream=True)
        until(lambda: values(site)["num_requests_waiting"] == 1)
        site.post("/api/control", {"action": "step"})
        until(site.rows)
        assert site.post("/reset_prefix_cache", None).status_code == 409
        assert site.post("/reset_prefix_cache?reset_running_requests=true", None).status_code == 200
        running.close()
    finally:
        site.post("/resume", None)
    until(lambda: site.rows() == [])


def test_embeddings_and_unknown_routes_are_told_in_json(site):
    assert "embeddings" in site.post("/v1/embeddings", {"input": "a"}).json()["error"]["message"]
    assert site.get("/nowhere").json()["error"]["code"] == 404
    assert re.fullmatch(r"\d+\.\d+\.\d+|unknown", site.get("/version").json()["version"])


def test_metrics_count_what_the_engine_did(site):
    before = values(site)
    prompt = "A prompt of more than one block of sixteen tokens, so that it is found again. "
    for _ in range(2):
        site.complete(prompt, max_tokens=5, ignore_eos=True)
    whole = site.complete("Once", max_tokens=30, ignore_eos=True).json()["choices"][0]["text"]
    site.complete("Once", max_tokens=900, ignore_eos=True, stop=whole[6:9])
    stopped = before["request_success_total.stop"] + 1
    until(lambda: values(site)["request_success_total.stop"] == stopped)  # when the engine has taken the abort
    now = values(site)

    def grown(name):
        return now[name] - before.get(name, 0)

    tokens = len(site.llm.tokenizer.encode(prompt))
    once = len(site.llm.tokenizer.encode("Once"))
    assert grown("prompt_tokens_total") == 2 * tokens + 2 * once
    assert grown("prefix_cache_queries_total") == 2 * tokens + 2 * once
    assert grown("prefix_cache_hits_total") == tokens // 16 * 16
    assert grown("request_success_total.length") == 3
    assert grown("request_success_total.abort") == 0
    assert grown("request_prompt_tokens_sum") == 2 * tokens + 2 * once
    assert grown("time_to_first_token_seconds_count") == grown("e2e_request_latency_seconds_count") == 4
    parts = [f"request_{part}_time_seconds_sum" for part in ("queue", "prefill", "decode")]
    assert math.isclose(sum(grown(part) for part in parts), grown("e2e_request_latency_seconds_sum"), rel_tol=0.2)
    assert grown("inter_token_latency_seconds_count") == grown("generation_tokens_total") - 4
    assert now["num_requests_running"] == now["num_requests_waiting"] == now["kv_cache_usage_perc"] == 0


def test_gauges_tell_who_runs_and_who_waits(site):
    aborted = values(site)["request_success_total.abort"]
    site.post("/pause", None)
    try:
        streams = [site.complete(f"{i}", max_tokens=900, ignore_eos=True, stream=True) for i in range(10)]
        until(lambda: values(site)["num_requests_waiting"] == 10)
        site.post("/api/control", {"action": "step"})
        until(lambda: (now := values(site))["num_requests_running"] == 8 and now["num_requests_waiting"] == 2)
        assert values(site)["kv_cache_usage_perc"] == 8 / 199  # one block each
        for stream in streams:
            stream.close()
    finally:
        site.post("/resume", None)
    until(lambda: not any(values(site)[name] for name in GAUGES))
    until(lambda: values(site)["request_success_total.abort"] >= aborted + 10)


@pytest.fixture(scope="module")
def narrow():
    """Two rows, one place in the queue, and a key."""
    with running_site({"api_key": "sesame", "max_queue": 1}, max_num_seqs=2) as running:
        yield running


KEY = {"Authorization": "Bearer sesame"}


def test_without_the_key_the_api_is_closed_and_the_page_open(narrow):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic sesame"}):
        for path in ("/v1/models", "/v1/nothing"):
            answer = narrow.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "AuthenticationError"
        assert narrow.post("/v1/completions", {"prompt": "a"}, headers=headers).status_code == 401
    assert narrow.get("/v1/models", headers=KEY).status_code == 200
    assert narrow.get("/health").status_code == narrow.get("/").status_code == 200


def test_more_than_may_wait_are_told_to_come_later_and_nobody_else_notices(narrow):
    narrow.post("/pause", None)
    try:
        held = [narrow.complete(str(i), headers=KEY, max_tokens=3, stream=True) for i in range(3)]
        full = narrow.complete("one more", headers=KEY)
        assert full.status_code == 429
        assert full.headers["Retry-After"] == "1"
        assert "x-should-retry" not in full.headers
        assert full.json()["error"]["type"] == "RateLimitError"
    finally:
        narrow.post("/resume", None)
    assert [events(stream)[-1] for stream in held] == ["[DONE]"] * 3
    assert narrow.complete("one more", headers=KEY, max_tokens=1).status_code == 200
    assert narrow.complete("many", headers=KEY, n=4, temperature=1).status_code == 400


def test_a_refused_request_leaves_its_place_to_others(narrow):
    for _ in range(5):
        assert narrow.complete([-1], headers=KEY).status_code == 400
    good = [lambda: narrow.complete("a", headers=KEY, max_tokens=2).status_code] * 3
    assert at_once(good) == [200, 200, 200]


def test_without_the_trace_there_are_no_metrics_and_the_api_works():
    with running_site(trace=False) as site:
        assert "--no-trace" in site.get("/metrics").json()["error"]["message"]
        assert site.complete("a", max_tokens=2).status_code == 200


def test_sixty_four_streams_at_once_are_all_whole():
    with running_site(max_num_seqs=64, max_num_batched_tokens=256, num_gpu_blocks_override=600) as site:
        prompts = [f"Stream {i}" for i in range(64)]
        session = [requests.Session() for _ in prompts]

        def stream(i):
            body = {"prompt": prompts[i], "max_tokens": 24, "ignore_eos": True, "temperature": 0, "stream": True}
            return events(session[i].post(site.base + "/v1/completions", json=body, stream=True, timeout=60))

        read = at_once([lambda i=i: stream(i) for i in range(64)])
        assert all(one[-1] == "[DONE]" for one in read)
        assert all(one[-2]["choices"][0]["finish_reason"] == "length" for one in read)
        assert values(site)["generation_tokens_total"] == 64 * 24
