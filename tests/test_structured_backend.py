"""Grammars alone: which tokens they allow, byte by byte, and what can't be compiled."""

import json
import threading

import numpy as np
import pytest
from helpers.tiny_engine import tiny

from engine.structured_output.compile_pool import CompilePool
from engine.structured_output.llguidance_backend import LLGuidanceBackend
from engine.structured_outputs_params import MAX_SPEC_BYTES, StructuredOutputsParams
from engine.tokenizer import Tokenizer

VOCAB_SIZE = 327  # not a multiple of 32; tokens from 259 on are " w259", " w260", ...
END = 256


@pytest.fixture(scope="module")
def backend():
    return LLGuidanceBackend(Tokenizer.load(tiny(model=f"tiny-{VOCAB_SIZE}").model_config))


def allowed(grammar):
    row = np.full(-(-VOCAB_SIZE // 32), -1, dtype=np.int32)
    grammar.fill_bitmask(row)
    return set(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())


def compiled(backend, **spec):
    return backend.compile(StructuredOutputsParams(**spec))


def takes(backend, text, **spec):
    """Whether the grammar allows these bytes one by one and can end after them."""
    grammar = compiled(backend, **spec)
    for byte in text.encode():
        if byte not in allowed(grammar):
            return False
        assert grammar.accept_tokens([byte]) is None
    return END in allowed(grammar)


def test_a_mask_allows_exactly_what_can_follow_and_the_end_only_where_the_output_can_be_complete(backend):
    grammar = compiled(backend, regex="ab?[0-9]{0,2}")
    digits = set(b"0123456789")
    steps = [(b"a", set(b"a")), (b"b", digits | set(b"b") | {END}), (b"7", digits | {END}), (b"5", digits | {END})]
    for byte, expected in steps:
        assert allowed(grammar) == expected
        assert not grammar.is_terminated()
        assert grammar.accept_tokens([byte[0]]) is None
    assert grammar.is_terminated()
    assert allowed(grammar) == {END}


def test_tokens_of_several_bytes_are_allowed_where_they_fit_and_special_ones_never(backend):
    assert allowed(compiled(backend, regex=" w26[0-9]")) == {ord(" "), *range(260, 270)}
    everything = allowed(compiled(backend, regex="(?s:.)+"))
    assert everything.isdisjoint({256, 257, 258})
    assert max(everything) == VOCAB_SIZE - 1, "the bits past the vocabulary are clear"


def test_a_fork_goes_its_own_way(backend):
    first = compiled(backend, regex="[ab]c")
    second = first.fork()
    assert first.accept_tokens(list(b"ac")) is None
    assert (first.is_terminated(), second.is_terminated()) == (True, False)
    assert allowed(second) == set(b"ab")


def test_a_refused_token_is_named_with_the_reason(backend):
    error = compiled(backend, regex="[0-9]+").accept_tokens([ord("x")])
    assert error is not None
    assert error.startswith("the grammar refused the sampled tokens [120]: ")
    assert "\n" not in error
    assert compiled(backend, regex="[0-9]+").accept_tokens([END]) is not None, "nothing has come: it can't end"


SCHEMA = {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}, "required": ["a"]}


def test_json_is_compact_with_at_most_one_space_after_commas_and_colons(backend):
    assert takes(backend, '{"a":[1,2]}', json=SCHEMA)
    assert takes(backend, '{"a": [1, 2]}', json=json.dumps(SCHEMA))
    assert not takes(backend, '{"a":  [1]}', json=SCHEMA)
    assert not takes(backend, '{ "a":[1]}', json=SCHEMA)
    assert not takes(backend, '{"a":[]', json=SCHEMA)
    assert takes(backend, '{"x":{"y":null}}', json_object=True)
    assert not takes(backend, "[1]", json_object=True)
    assert takes(backend, "[1]", json={})


def test_choices_are_taken_as_they_stand(backend):
    choice = ["red", 'a"\\b\n', "grün", "[0-9]"]
    assert all(takes(backend, text, choice=choice) for text in choice)
    assert not takes(backend, "7", choice=choice)
    assert not takes(backend, "re", choice=choice)


def test_grammars_are_lark_or_ebnf(backend):
    for grammar in ('start: "a" | "b" start', 'root ::= "a" | "b" root'):
        assert takes(backend, "bba", grammar=grammar)
        assert not takes(backend, "bb", grammar=grammar)


COSTLY = {
    "allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {"type": "integer"}}} for i in range(6)]} for j in range(12)]
}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"regex": "[0-9"}, "structured_outputs.regex cannot be compiled: "),
        ({"json": {"type": "objekt"}}, "structured_outputs.json cannot be compiled: Invalid type: objekt"),
        ({"json": {"$ref": "http://example.com/schema"}}, "cannot be compiled: Resource"),
        ({"json": {"type": "array", "uniqueItems": True}}, 'Unimplemented keys: ["uniqueItems"]'),
        ({"json": {"x-guidance": {"lenient": 7}}}, "structured_outputs.json cannot be compiled: "),
        ({"grammar": "start: nobody"}, 'unknown name: "nobody"'),
        ({"grammar": 'start: start "a"'}, "structured_outputs.grammar cannot be compiled: no output can begin"),
        ({"grammar": "root ::= ((("}, "structured_outputs.grammar cannot be compiled: "),
        ({"grammar": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000}, "structured_outputs.grammar cannot be"),
        ({"regex": "(" * 20_000 + "a" + ")" * 20_000}, "structured_outputs.regex cannot be compiled: "),
        ({"json": COSTLY}, "structured_outputs.json cannot be compiled: schema too large"),
    ],
)
def test_what_cannot_be_compiled_is_an_error_of_one_line(backend, spec, words):
    with pytest.raises(ValueError, match="cannot be compiled") as refused:
        compiled(backend, **spec)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_the_longest_chain_of_rules_does_not_exhaust_the_stack(backend):
    """Compiled in a thread of the pool: in an ordinary one it would end the process."""
    count = 5000
    rules = "".join(f"r{i}: r{i + 1}\n" for i in range(count))
    grammar = f'start: r0\n{rules}r{count}: "a"'
    assert MAX_SPEC_BYTES - 4_000 < len(grammar) <= MAX_SPEC_BYTES
    before = threading.stack_size()
    pool = CompilePool(1)
    assert threading.stack_size() == before
    fork = pool.submit(compiled, backend).exception(20)
    assert isinstance(fork, ValueError), "an exception is the future's"
    chain = pool.submit(backend.compile, StructuredOutputsParams(grammar=grammar)).result(20)
    pool.shutdown()
    assert allowed(chain.fork()) == set(b"a")


def test_thousands_of_choices_are_one_terminal(backend):
    choices = StructuredOutputsParams(choice=[f"choice {i}" for i in range(3000)])
    assert backend.compile(choices).accept_tokens(list(b"choice 2999")) is None
    assert backend.compile(choices).accept_tokens(list(b"choice 3000")) is not None
