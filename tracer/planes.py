"""Msgpack with its whole numbers taken out, which deflate packs into half the space.

What is left is the skeleton: the same msgpack with 0 for every whole number of 32 bits. The numbers, in the order in
which they stand in it, follow as four planes: all lowest bytes, then all second ones, and so on. So the ids and slots
of a pass stand side by side, whatever is between them in the record. webui/static/trace_block.js puts them back too.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import numpy as np

from tracer.trace_format import BLCK, MAX_CONTAINERS, MAX_INFLATED, MAX_SKELETON, TraceError, decode_as

CHUNK = 1 << 14  # numbers made at a time
LOW, HIGH = -(1 << 31), (1 << 31) - 1
PLAIN = {str, float, bool, bytes, type(None)}  # have no whole numbers in them


class _Packed(msgspec.Struct, array_like=True):
    skeleton: Annotated[bytes, msgspec.Meta(max_length=MAX_SKELETON)]
    planes: Annotated[bytes, msgspec.Meta(max_length=MAX_INFLATED[BLCK])]


def take(value: dict[str, Any] | list[Any], numbers: list[int]) -> None:
    """Put 0 in the place of the numbers of a value of lists, maps and scalars; they are put at the end of `numbers`.

    Raises TypeError where a key of a map is no text or something is neither of these; part of the value has been
    changed then.
    """
    if isinstance(value, dict):
        if not set(map(type, value)) <= {str}:
            raise TypeError("a map's keys must be text")
        _take_items(value, value.items(), numbers)
    elif len(value) < 2 or type(value[0]) is not int or not _take_all(value, numbers):
        _take_items(value, enumerate(value), numbers)


def _take_items(value: Any, items: Iterable[tuple[Any, Any]], numbers: list[int]) -> None:
    for key, item in items:
        kind = type(item)
        if kind is int:
            if LOW <= item <= HIGH:
                numbers.append(item)
                value[key] = 0
        elif kind is list or kind is dict:
            take(item, numbers)
        elif kind not in PLAIN:
            raise TypeError(f"a {kind.__name__} is no value of a trace")


def _take_all(value: list[Any], numbers: list[int]) -> bool:
    """Take them at once if they are but numbers."""
    if len(set(map(type, value))) > 1 or min(value) < LOW or max(value) > HIGH:
        return False
    numbers += value
    value[:] = [0] * len(value)
    return True


def pack_planes(value: Any, numbers: list[int]) -> bytes:
    """Return what `take` made of a value. Raises TraceError where it is larger than a reader would take."""
    skeleton = msgspec.msgpack.encode(value)
    if len(skeleton) > MAX_SKELETON or _count_containers(skeleton) > MAX_CONTAINERS:
        raise TraceError("a block has too many values: its batch is too large for a trace")
    planes = np.array(numbers, dtype="<i4").view(np.uint8).reshape(-1, 4).T.tobytes()
    return msgspec.msgpack.encode(_Packed(skeleton, planes))


def join(data: bytes) -> Any:
    """Return the value that `take` and `pack_planes` took apart. Raises TraceError."""
    packed = decode_as(data, _Packed, "block")
    if len(packed.planes) % 4 or len(packed.planes) // 4 > len(packed.skeleton):
        raise TraceError("a block's numbers do not fit its structure")
    if _count_containers(packed.skeleton) > MAX_CONTAINERS:
        raise TraceError(f"a block has more than {MAX_CONTAINERS} lists and maps")
    planes = np.frombuffer(packed.planes, np.uint8).reshape(4, -1)
    flat = np.ascontiguousarray(planes.T).view("<i4").ravel()
    numbers = itertools.chain.from_iterable(flat[at : at + CHUNK].tolist() for at in range(0, len(flat), CHUNK))
    try:
        value = _put(decode_as(packed.skeleton, Any, "block"), numbers)
    except (StopIteration, RecursionError):
        raise TraceError("a block's numbers do not fit its structure") from None
    if next(numbers, None) is not None:
        raise TraceError("a block has numbers that belong nowhere")
    return value


def _count_containers(skeleton: bytes) -> int:
    """How many lists and maps there can be in it at most: bytes that would begin one."""
    heads = np.frombuffer(skeleton, np.uint8)
    return int(np.count_nonzero((heads & 0xE0 == 0x80) | (heads & 0xFC == 0xDC)))


def _put(value: Any, numbers: Iterator[int]) -> Any:
    kind = type(value)
    if kind is int:
        return value or next(numbers)
    if kind is list:
        if not any(value) and set(map(type, value)) == {int}:
            taken = list(itertools.islice(numbers, len(value)))
            if len(taken) < len(value):
                raise StopIteration
            return taken
        return [_put(item, numbers) for item in value]
    if kind is dict:
        return {key: _put(item, numbers) for key, item in value.items()}
    return value
