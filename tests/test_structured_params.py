"""What a request may ask its output to look like, and what is refused before the engine sees it."""

import msgspec
import pytest

from engine.sampling_params import SamplingParams
from engine.structured_outputs_params import MAX_SPEC_BYTES, StructuredOutputsParams

GOOD = [
    {"json": {"type": "object"}},
    {"json": '{"type": "object"}'},
    {"json": {}},
    {"json_object": True},
    {"regex": "[0-9]+"},
    {"choice": ["yes", "no"]},
    {"grammar": 'root ::= "a"'},
]


@pytest.mark.parametrize("given", GOOD)
def test_each_kind_is_taken_from_json_and_crosses_to_the_engine(given):
    params = SamplingParams.make(structured_outputs=given)
    assert params.structured_outputs == StructuredOutputsParams(**given)
    there = msgspec.msgpack.decode(msgspec.msgpack.encode(params), type=SamplingParams)
    assert there.structured_outputs == params.structured_outputs


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "must have one of json, json_object, regex, choice, grammar, got none"),
        ({"json_object": False}, "got none"),
        ({"regex": "a", "choice": ["b"]}, "got regex and choice"),
        ({"regex": ""}, "structured_outputs.regex must be text that is not empty"),
        ({"grammar": " \n"}, "structured_outputs.grammar must be text that is not empty"),
        ({"choice": []}, "structured_outputs.choice must be a list of texts that are not empty"),
        ({"choice": ["a", ""]}, "structured_outputs.choice must be a list of texts that are not empty"),
        ({"json": ""}, "structured_outputs.json must be a JSON schema"),
        ({"json": '{"type": '}, "structured_outputs.json must be a JSON schema"),
        ({"json": "[" * 60_000}, "structured_outputs.json must be a JSON schema"),
        ({"json": "[1]"}, "structured_outputs.json must be a JSON schema"),
        ({"json": 3}, "structured_outputs.json"),
        ({"structural_tag": "x"}, "structural_tag"),
        ({"regex": "a" * (MAX_SPEC_BYTES + 1)}, f"at most {MAX_SPEC_BYTES} bytes, got {MAX_SPEC_BYTES + 1}"),
        ({"json": {"enum": ["a" * MAX_SPEC_BYTES]}}, f"at most {MAX_SPEC_BYTES} bytes"),
        ({"json": '"' + "a" * MAX_SPEC_BYTES}, f"at most {MAX_SPEC_BYTES} bytes"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(given, sentence):
    with pytest.raises(ValueError, match=r"structured_outputs|structural_tag") as refused:
        SamplingParams.make(structured_outputs=given)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
