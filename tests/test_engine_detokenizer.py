"""Text comes as it is generated, and nothing is shown that would have to be taken back."""

from itertools import pairwise

import pytest
from helpers.fake_tokenizer import FakeTokenizer
from hypothesis import given
from hypothesis import strategies as st

from engine.detokenizer import IncrementalDetokenizer
from engine.sampling_params import SamplingParams


def detokenizer(prompt: bytes = b"x", **params: object) -> IncrementalDetokenizer:
    return IncrementalDetokenizer(FakeTokenizer(), list(prompt), SamplingParams.make(max_tokens=None, **params))


def stream(engine: IncrementalDetokenizer, pieces: list[bytes]) -> tuple[list[str], str | None]:
    """Feed pieces until a stop string; return what was shown after each, and at the end, and the stop string."""
    shown = []
    for piece in pieces:
        text, stop = engine.update(list(piece))
        shown.append(text)
        if stop is not None:
            return shown, stop
    return [*shown, engine.flush()], None


def test_an_emoji_over_three_tokens_appears_whole() -> None:
    """CASES 44."""
    emoji = "🦙".encode()
    shown, _ = stream(detokenizer(), [b"a", emoji[:1], emoji[1:3], emoji[3:], b"b"])
    assert shown == ["a", "", "", "🦙", "b", ""]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_prompt_that_ends_in_half_a_character_is_completed_and_not_repeated(cut: int) -> None:
    emoji = "🦙".encode()
    shown, _ = stream(detokenizer(b"prompt " + emoji[:cut]), [emoji[cut:], b"!"])
    assert "".join(shown) == "🦙!"


def test_a_half_character_that_is_not_continued_is_not_shown() -> None:
    assert stream(detokenizer("é".encode()[:1]), [b"A", b"B"])[0] == ["A", "B", ""]
    assert stream(detokenizer(), [b"A", "é".encode()[:1]])[0] == ["A", "", ""]


def test_what_may_begin_a_stop_string_is_held_back_and_flushed_at_the_end() -> None:
    """CASES 44: the stop string DEFGHIJ arrives as DEF, G, HI and the request ends there."""
    shown, stop = stream(detokenizer(stop="DEFGHIJ"), [b"abcDEF", b"G", b"HI"])
    assert shown == ["abc", "", "", "DEFGHI"]
    assert stop is None


def test_a_stop_string_over_several_tokens_is_found_and_left_out() -> None:
    shown, stop = stream(detokenizer(stop=["zzz", "DEF"]), [b"abcD", b"EFgh", b"never"])
    assert ("".join(shown), stop) == ("abc", "DEF")


def test_a_stop_string_is_kept_when_asked_for() -> None:
    shown, stop = stream(detokenizer(stop="DEF", include_stop_str_in_output=True), [b"abcD", b"EFgh"])
    assert ("".join(shown), stop) == ("abcDEF", "DEF")


def test_a_stop_string_within_min_tokens_does_not_stop() -> None:
    shown, stop = stream(detokenizer(stop="ab", min_tokens=2), [b"a", b"b", b"c", b"a", b"b"])
    assert ("".join(shown), stop) == ("abc", "ab")


def test_special_tokens_and_the_token_that_stopped_are_skipped_unless_asked_for() -> None:
    assert detokenizer().update([65, 0])[0] == "A"
    assert detokenizer(skip_special_tokens=False).update([65, 0])[0] == "A<end>"
    assert detokenizer().update([65, 66], ended_by_stop_token=True)[0] == "A"
    assert detokenizer(include_stop_str_in_output=True).update([65, 66], ended_by_stop_token=True)[0] == "AB"


@given(
    text=st.text(alphabet="abcé🦙", max_size=30),
    stop=st.lists(st.text(alphabet="abcé", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 120), max_size=20),
)
def test_how_the_tokens_arrive_does_not_matter(text: str, stop: list[str], cuts: list[int]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in pairwise(edges)]
    shown, reason = stream(detokenizer(stop=stop), pieces)
    one_by_one, same_reason = stream(detokenizer(stop=stop), [bytes([byte]) for byte in data])
    assert "".join(shown) == "".join(one_by_one)
    assert reason == same_reason
    ends = [text.find(each) + len(each) for each in stop if each in text]
    assert "".join(shown) == (text[: min(ends)].removesuffix(reason) if reason else text)
