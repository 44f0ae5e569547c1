"""llm, LangChain and curl against a served SmolLM2."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.clients import KEY, MODEL

SCHEMA = {"type": "object", "properties": {"big": {"type": "boolean"}}, "required": ["big"]}
QUESTION = "What is the capital of France? Answer in one word."


def llm(folder: Path, *arguments: str) -> str:
    command = [Path(sys.executable).parent / "llm", *arguments]
    done = subprocess.run(
        command, env=os.environ | {"LLM_USER_PATH": str(folder)}, capture_output=True, text=True, timeout=60,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def llm_folder(site, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: batchscope\n  model_name: {MODEL}\n  api_base: {site.base}/v1\n  api_key_name: batchscope\n"
        "  supports_schema: true\n"
    )
    (tmp_path / "keys.json").write_text(json.dumps({"batchscope": KEY}))
    return tmp_path


def test_llm_prompts_streamed_and_whole(llm_folder):
    options = ("-m", "batchscope", "-o", "temperature", "0", "-o", "max_tokens", "8")
    streamed = llm(llm_folder, *options, QUESTION)
    assert "Paris" in streamed
    assert llm(llm_folder, *options, "--no-stream", QUESTION) == streamed
    logged = json.loads(llm(llm_folder, "logs", "-n", "1", "--json"))[0]
    assert logged["output_tokens"] > 0


def test_llm_holds_the_answer_to_a_schema(llm_folder):
    answer = llm(llm_folder, "-m", "batchscope", "-o", "max_tokens", "60", "-o", "temperature", "0",
                 "--schema", json.dumps(SCHEMA), QUESTION)  # fmt: skip
    assert isinstance(json.loads(answer)["big"], bool)


def chat_openai(site, **fields):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(base_url=site.base + "/v1", api_key=KEY, model=MODEL, temperature=0, max_tokens=60, **fields)


def test_langchain_invokes_and_streams(site):
    model = chat_openai(site, stream_usage=True)
    whole = model.invoke(QUESTION)
    assert "Paris" in whole.content
    chunks = list(model.stream(QUESTION))
    assert "".join(chunk.content for chunk in chunks) == whole.content
    assert whole.usage_metadata["input_tokens"] == sum(
        chunk.usage_metadata["input_tokens"] for chunk in chunks if chunk.usage_metadata
    )


def test_langchain_takes_structured_answers_in_each_of_its_ways(site):
    from pydantic import BaseModel

    class Answer(BaseModel):
        """Whether it is so."""

        yes: bool

    for method in ("json_schema", "function_calling"):
        answer = chat_openai(site).with_structured_output(Answer, method=method).invoke(QUESTION)
        assert isinstance(answer, Answer)


def curl(*arguments: str) -> str:
    command = ["curl", "--silent", "--max-time", "60", "-H", f"Authorization: Bearer {KEY}"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=True).stdout


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")


@needs_curl
def test_curl_reads_an_answer_and_a_stream(site):
    body = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0, "max_tokens": 8}
    post = [f"{site.base}/v1/chat/completions", "-H", "Content-Type: application/json"]
    whole = json.loads(curl(*post, "-d", json.dumps(body)))["choices"][0]["message"]["content"]
    assert "Paris" in whole
    lines = curl(*post, "-N", "-d", json.dumps(body | {"stream": True})).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == whole


@needs_curl
def test_curl_reads_an_error(site):
    told = json.loads(curl(f"{site.base}/v1/completions", "-d", "{}", "-H", "Content-Type: application/json"))
    assert told["error"]["message"] == "prompt is missing"
