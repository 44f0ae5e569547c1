"""Calls are read from a growing list, each as soon as it is complete."""

import json

from hypothesis import given
from hypothesis import strategies as st

from webui.tool_calls import CallList

names = st.text(min_size=1, max_size=5)
plain = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
values = st.recursive(plain, lambda each: st.lists(each, max_size=3) | st.dictionaries(names, each, max_size=3))
calls = st.lists(st.tuples(names, st.dictionaries(names, values, max_size=3)), min_size=1, max_size=4)


@given(made=calls, step=st.integers(1, 9), indent=st.sampled_from([None, 2]))
def test_however_the_text_arrives_the_calls_are_the_same(made, step, indent):
    text = json.dumps([{"name": name, "parameters": parameters} for name, parameters in made], indent=indent)
    reader = CallList()
    read = [call for at in range(0, len(text), step) for call in reader.feed(text[at : at + step])]
    assert [(name, json.loads(arguments)) for name, arguments in read] == made
    assert reader.num_calls == len(made)
    assert reader.rest == ""


def test_a_call_comes_when_its_brace_closes_and_what_is_cut_stays():
    reader = CallList()
    assert reader.feed('[{"name": "f", "parameters": {"a": "}"}') == []
    assert reader.feed("}") == [("f", '{"a": "}"}')]
    assert reader.feed(', {"name": "g", "par') == []
    assert reader.rest == ', {"name": "g", "par'
