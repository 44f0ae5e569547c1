"""POST /v1/chat/completions on the tiny model: messages, shapes, refusals, tools."""

import json

import pytest
from helpers.web import events, running_site

HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a place",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"enum": ["Paris", "Oslo"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["place", "days"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "time"}}
NAMED = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def site():
    with running_site() as running:
        yield running


def chat(site, messages=HELLO, **fields):
    return site.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})


def deltas(stream):
    return [choice["delta"] for item in stream[:-1] for choice in item["choices"]]


def test_a_conversation_is_the_models_chat_form(site):
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}]
    form = site.llm.tokenizer.apply_chat_template(messages)
    ids = site.llm.tokenizer.encode(form, add_special_tokens=False)
    answer = chat(site, messages, max_tokens=8, ignore_eos=True).json()
    assert (
        answer["choices"][0]["message"]["content"]
        == site.complete(ids, max_tokens=8, ignore_eos=True).json()["choices"][0]["text"]
    )
    assert answer["object"] == "chat.completion"
    assert answer["usage"]["prompt_tokens"] == len(ids)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}],
        [{"role": "user", "content": "one\ntwo", "name": None, "tool_calls": None}],
    ],
)
def test_text_in_parts_is_joined_and_empty_fields_mean_nothing(site, messages):
    plain = chat(site, [{"role": "user", "content": "one\ntwo"}], max_tokens=6).json()
    assert chat(site, messages, max_tokens=6).json()["choices"] == plain["choices"]


def test_the_joined_stream_is_the_whole_message(site):
    whole = chat(site, max_tokens=20, ignore_eos=True).json()["choices"][0]
    stream = events(chat(site, max_tokens=20, ignore_eos=True, stream=True))
    assert stream[-1] == "[DONE]"
    assert deltas(stream)[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas(stream)) == whole["message"]["content"]
    assert stream[-2]["choices"][0]["finish_reason"] == whole["finish_reason"] == "length"
    assert {item["object"] for item in stream[:-1]} == {"chat.completion.chunk"}


def test_n_answers_are_n_choices_and_the_prompt_counts_once(site):
    answer = chat(site, n=3, temperature=1, seed=1, max_tokens=5, ignore_eos=True).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    one = chat(site, max_tokens=5, ignore_eos=True).json()["usage"]["prompt_tokens"]
    assert answer["usage"]["prompt_tokens"] == one
    assert answer["usage"]["completion_tokens"] == 15


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_tell_each_tokens_bytes_and_the_likeliest(site, stream):
    answer = chat(site, max_tokens=4, ignore_eos=True, logprobs=True, top_logprobs=3, stream=stream)
    if stream:
        choices = [choice for item in events(answer)[:-1] for choice in item["choices"]]
        content = [entry for choice in choices for entry in (choice["logprobs"] or {"content": []})["content"]]
    else:
        content = answer.json()["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        assert [other["logprob"] for other in entry["top_logprobs"]] == sorted(
            (other["logprob"] for other in entry["top_logprobs"]), reverse=True
        )
        assert len(entry["top_logprobs"]) == 3
        assert entry["bytes"] == entry["top_logprobs"][0]["bytes"]  # greedy: the likeliest
        assert bytes(entry["bytes"]).decode("utf-8", "replace") == entry["token"]


def test_without_top_logprobs_only_the_tokens_own_are_told(site):
    content = chat(site, max_tokens=2, logprobs=True).json()["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in content] == [[], []]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, "messages"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_tokens"),
        ({"tools": [WEATHER]}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TIME], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [TIME, TIME], "tool_choice": "none"}, "tools"),
        ({"tools": [WEATHER], "tool_choice": NAMED, "response_format": {"type": "json_object"}}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(site, fields, param):
    answer = chat(site, **fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
    assert answer.headers["x-should-retry"] == "false"


def test_fields_that_change_nothing_are_taken(site):
    neutral = {"user": "me", "metadata": {"a": "b"}, "store": False, "parallel_tool_calls": True, "verbosity": "medium",
               "modalities": ["text"], "tools": [TIME], "tool_choice": "none"}  # fmt: skip
    assert chat(site, max_tokens=3, **neutral).json()["choices"] == chat(site, max_tokens=3).json()["choices"]


def fits(arguments):
    values = json.loads(arguments)
    return values.keys() == {"place", "days"} and values["place"] in ("Paris", "Oslo") and 1 <= values["days"] <= 9


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_is_called_with_arguments_that_fit_its_schema(site, stream):
    answer = chat(site, tools=[TIME, WEATHER], tool_choice=NAMED, stream=stream, max_tokens=200, temperature=1, seed=5)
    assert answer.status_code == 200, answer.text
    if stream:
        calls = [delta["tool_calls"][0] for delta in deltas(events(answer)) if "tool_calls" in delta]
        head = calls[0]
        arguments = "".join(call["function"]["arguments"] for call in calls)
        assert all(call["index"] == 0 for call in calls)
        assert not any("id" in call for call in calls[1:])
    else:
        choice = answer.json()["choices"][0]
        [head] = choice["message"]["tool_calls"]
        assert choice["message"]["content"] is None
        assert choice["finish_reason"] == "stop"
        arguments = head["function"]["arguments"]
    assert head["id"].startswith("call_")
    assert head["function"]["name"] == "weather"
    assert fits(arguments)


@pytest.mark.parametrize("stream", [False, True])
def test_required_is_a_list_of_calls_of_any_of_the_tools(site, stream):
    answer = chat(site, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, stream=stream,
                  max_tokens=300, temperature=1, seed=3)  # fmt: skip
    assert answer.status_code == 200, answer.text
    if stream:
        read = events(answer)
        [call] = [call for delta in deltas(read) for call in delta.get("tool_calls", ())]
        assert call["index"] == 0
        assert read[-2]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        choice = answer.json()["choices"][0]
        [call] = choice["message"]["tool_calls"]
        assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "weather"
    assert fits(call["function"]["arguments"])


@pytest.mark.parametrize("kind", ["response_format", "structured_outputs"])
def test_a_json_schema_holds_the_answer(site, kind):
    schema = WEATHER["function"]["parameters"]
    wanted = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "w", "schema": schema, "strict": True}},
        "structured_outputs": {"json": schema},
    }
    answer = chat(site, max_tokens=200, temperature=1, seed=7, **{kind: wanted[kind]}).json()
    assert fits(answer["choices"][0]["message"]["content"])


@pytest.mark.parametrize("stream", [False, True])
def test_an_invalid_schema_is_refused_and_the_next_request_runs(site, stream):
    bad = {"type": "json_schema", "json_schema": {"name": "w", "schema": {"type": "no such type"}}}
    answer = chat(site, response_format=bad, max_tokens=5, stream=stream)
    assert answer.status_code == 400, answer.text
    assert chat(site, max_tokens=2).status_code == 200


def test_an_earlier_call_and_its_result_are_part_of_the_conversation(site):
    call = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "annotations": []},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    assert chat(site, messages, max_tokens=2).status_code == 200
