"""openai-python against a served SmolLM2."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import openai
import pytest
from helpers.clients import KEY, MODEL
from helpers.web import until
from pydantic import BaseModel

FRANCE = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


@pytest.fixture
def client(site):
    with openai.OpenAI(base_url=site.base + "/v1", api_key=KEY, timeout=60) as made:
        yield made


def ask(client, **fields):
    return client.chat.completions.create(model=MODEL, messages=FRANCE, temperature=0, max_tokens=8, **fields)


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def test_an_answer_and_its_stream(client):
    whole = ask(client)
    assert "Paris" in whole.choices[0].message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_the_streaming_helper_gathers_the_message(client):
    with client.chat.completions.stream(model=MODEL, messages=FRANCE, temperature=0, max_tokens=8) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        gathered = stream.get_final_completion().choices[0].message.content
    assert "".join(deltas) == gathered
    assert "Paris" in gathered


def test_plain_completions_with_logprobs_and_n(client):
    prompt = "The capital of France is"
    answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=3, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text.startswith(" Paris")
    assert "".join(logprobs.tokens) == answer.choices[0].text
    assert all(
        value == max(top.values()) for value, top in zip(logprobs.token_logprobs, logprobs.top_logprobs, strict=True)
    )
    several = client.completions.create(model=MODEL, prompt=prompt, max_tokens=4, n=3, seed=1)
    assert [choice.index for choice in several.choices] == [0, 1, 2]


def test_chat_logprobs(client):
    content = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in content).decode().startswith(content[0].token)
    assert all(entry.logprob == entry.top_logprobs[0].logprob for entry in content)


def test_several_requests_at_once_from_the_asynchronous_client(site):
    async def run():
        async with openai.AsyncOpenAI(base_url=site.base + "/v1", api_key=KEY) as client:
            whole = ask(client)
            stream = await ask(client, stream=True)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
            return (await whole).choices[0].message.content, text

    with ThreadPoolExecutor(1) as pool:  # this thread may have the browser's loop
        whole, streamed = pool.submit(asyncio.run, run()).result()
    assert "Paris" in whole
    assert streamed == whole


class City(BaseModel):
    name: Literal["Paris", "Berlin", "Rome"]
    capital: bool


def test_a_parsed_answer_is_of_its_class(client):
    parsed = client.chat.completions.parse(
        model=MODEL, messages=FRANCE, temperature=0, max_tokens=60, response_format=City
    ).choices[0].message.parsed  # fmt: skip
    assert isinstance(parsed, City)


def test_a_tool_is_called(client):
    tool = openai.pydantic_function_tool(City, name="look_up")
    for choice in ("required", {"type": "function", "function": {"name": "look_up"}}):
        answer = client.chat.completions.parse(
            model=MODEL, messages=FRANCE, temperature=0, max_tokens=80, tools=[tool], tool_choice=choice,
            parallel_tool_calls=False,
        )  # fmt: skip
        [call] = answer.choices[0].message.tool_calls
        assert call.function.name == "look_up"
        assert isinstance(call.function.parsed_arguments, City)


def test_vllms_own_fields_go_in_the_extra_body(client):
    answer = ask(client, extra_body={"structured_outputs": {"regex": "Yes|No"}, "top_k": 5, "min_tokens": 1})
    assert answer.choices[0].message.content in ("Yes", "No")


def test_errors_are_told_once_and_by_their_kind(site, client):
    with pytest.raises(openai.BadRequestError) as bad:
        ask(client, top_p=7)
    assert bad.value.param == "top_p"
    with pytest.raises(openai.BadRequestError, match="auto"):
        ask(client, tools=[openai.pydantic_function_tool(City)])
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-5", messages=FRANCE)
    with pytest.raises(openai.NotFoundError, match="embeddings"):
        client.embeddings.create(model=MODEL, input="text")
    with pytest.raises(openai.AuthenticationError):
        ask(client.with_options(api_key="wrong"))


def test_leaving_a_stream_aborts_its_request(site, client):
    with client.completions.create(
        model=MODEL, prompt="Count:", max_tokens=900, stream=True,
        extra_body={"ignore_eos": True, "request_id": "leaves"},
    ) as stream:  # fmt: skip
        next(iter(stream))
    began = time.monotonic()
    until(lambda: site.finished("leaves") == "abort")
    assert time.monotonic() - began < 3


def test_a_timeout_aborts_its_request(site, client):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5, max_retries=0).completions.create(
            model=MODEL, prompt="Count:", max_tokens=900, extra_body={"ignore_eos": True, "request_id": "late"}
        )
    until(lambda: site.finished("late") == "abort")
