"""Structured output of the real model, sampled at temperature 1 with several seeds."""

import json
import re

import pytest

from batchscope import LLM, SamplingParams

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["tall", "kind", "quick"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
SEEDS = range(3)


@pytest.fixture(scope="module")
def llm(smollm2):
    llm = LLM("smollm2", dtype="float32", max_num_seqs=8, num_gpu_blocks_override=128)
    yield llm
    llm.shutdown()


def answers(llm, prompt, max_tokens=64, **spec):
    params = [
        SamplingParams.make(temperature=1.0, seed=seed, max_tokens=max_tokens, structured_outputs=spec)
        for seed in SEEDS
    ]
    return llm.generate([prompt] * len(params), params, use_tqdm=False)


def test_a_json_schema_gives_json_that_follows_it(llm):
    done = answers(llm, "A person, as JSON:", json=SCHEMA)
    for answer in done:
        person = json.loads(answer.text)
        assert list(person) == ["name", "age", "tags"]
        assert 0 <= person["age"] <= 120
        assert set(person["tags"]) <= {"tall", "kind", "quick"}
        assert len(person["name"]) <= 12
        assert answer.finish_reason == "stop"
    assert len({answer.text for answer in done}) > 1, "the seeds matter"


def test_a_regex_a_choice_and_a_grammar_hold_for_the_whole_output(llm):
    for answer in answers(llm, "The date is", regex=r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]"):
        assert re.fullmatch(r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9]", answer.text)
    for answer in answers(llm, "Is the sky blue?", choice=[" yes, of course", " no"]):
        assert answer.text in (" yes, of course", " no")
    sums = 'root ::= number (" + " number){1,3} "."\nnumber ::= [1-9] [0-9]?'
    for answer in answers(llm, "An exercise:", grammar=sums):
        assert re.fullmatch(r"[1-9][0-9]?( \+ [1-9][0-9]?){1,3}\.", answer.text)


def test_json_object_gives_an_object_beside_free_neighbours_that_do_not_notice(llm):
    free = SamplingParams.make(temperature=1.0, seed=7, max_tokens=12)
    (alone,) = llm.generate("Once upon a time", free, use_tqdm=False)
    bound = SamplingParams.make(temperature=1.0, seed=1, max_tokens=40, structured_outputs={"json_object": True})
    together = llm.generate(["Once upon a time", "Settings:"], [free, bound], use_tqdm=False)
    assert together[0].token_ids == alone.token_ids
    settings = together[1]
    if settings.finish_reason == "stop":
        assert isinstance(json.loads(settings.text), dict)
    else:
        assert settings.text.startswith("{")
