"""The compiled way to take numbers out of msgpack gives what the plain one gives, byte for byte."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscope.trace_scan import MAX_DEPTH, scan
from tracer.planes import take

EDGES = [bound + by for bits in (5, 7, 8, 15, 16, 31, 32, 63) for bound in (2**bits, -(2**bits)) for by in (-1, 0, 1)]
NUMBERS = st.sampled_from([n for n in [*EDGES, 2**64 - 1] if n >= -(2**63)]) | st.integers(-300, 300)
LENGTHS = st.sampled_from([0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
SCALARS = NUMBERS | st.none() | st.booleans() | st.floats() | LENGTHS.map("x".__mul__) | LENGTHS.map(b"y".__mul__)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=18) | st.dictionaries(st.text(max_size=40), inner, max_size=18)
)


def plainly(data):
    value, numbers = msgspec.msgpack.decode(data), []
    take(value, numbers)
    return msgspec.msgpack.encode(value), numbers


def scanned(data):
    numbers = []
    return scan(data, numbers), numbers


@given(st.lists(VALUES, max_size=4))
def test_both_ways_take_the_same(value):
    data = msgspec.msgpack.encode(value)
    assert scanned(data) == plainly(data)


@pytest.mark.parametrize("value", [list(range(70_000)), {str(i): -i for i in range(66_000)}, [[[]] * 16] * 16])
def test_both_ways_take_the_same_of_many(value):
    data = msgspec.msgpack.encode(value)
    assert scanned(data) == plainly(data)


@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_damaged_bytes_are_refused_or_taken_as_they_are_read(value, chosen):
    data = bytearray(msgspec.msgpack.encode(value))[:2000]
    data[chosen.draw(st.integers(1, len(data) - 1))] = chosen.draw(st.integers(0, 255))
    try:
        again = msgspec.msgpack.encode(msgspec.msgpack.decode(data))
        wanted = plainly(data) if again == data else (None, [])
    except TypeError:  # a key that is no text
        wanted = (None, [])
    except ValueError as error:
        if "utf-8" in str(error).lower():
            return  # of text, the lengths alone are looked at
        wanted = (None, [])
    found = scanned(bytes(data))
    if found != wanted:  # a key that comes twice is read once
        assert wanted == (None, [])
        assert len(again) < len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x91\xcc\x7f",  # one byte more than 127 needs
        b"\x91\xd0\x05",
        b"\x91\xcf" + bytes(7) + b"\x01",
        b"\x91\xd3" + b"\xff" * 8,
        b"\x91\xd9\x02ab",
        b"\xdc\x00\x01\x00",
        b"\x81\x01\x02",  # a key that is no text
        b"\x91\xd4\x01\x01",  # an extension
        b"\x91\xca\x00\x00\x00\x00",  # a float of 32 bits
        b"\x92\x01",  # ends too early
        b"\x91\x01\x01",  # or too late
        b"\x91\xa5ab",
        b"\x91" * MAX_DEPTH + b"\x01",
        b"",
    ],
)  # fmt: skip
def test_what_msgspec_would_not_write_is_refused(data):
    numbers = [7]
    assert scan(data, numbers) is None
    assert numbers == [7]
