"""README.md and CONTRIBUTING.md name files and flags that exist; files stay short enough to read."""

import functools
import re
import sys
from pathlib import Path

import pytest
from helpers.house import ROOMS, ROOT, run

DOCUMENTS = ("README.md", "CONTRIBUTING.md")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_a_document_names_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    paths = re.findall(rf"`((?:{'|'.join(ROOMS)}|tests|notebooks|\.ci)/[\w./-]*)`", text)
    assert paths
    missing = [path for path in links + paths if not (ROOT / path).exists()]
    assert not missing


@functools.cache
def known_flags() -> set[str]:
    commands = Path(sys.executable).parent / "batchscope"
    kinds = ("serve",), ("conformance",), ("bench", "throughput"), ("bench", "report"), ("generate",), ("chat",)
    known = "".join(run(commands, *words, "--help").stdout for words in kinds)
    return set(re.findall(r"--[a-z][\w-]+", known)) | {"--timeout"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_flag_that_a_document_names_exists(name: str) -> None:
    named = set(re.findall(r"`(?:batchscope \w+ )?(--[a-z][\w-]+)", (ROOT / name).read_text(encoding="utf-8")))
    assert named <= known_flags(), named - known_flags()


def test_no_file_is_longer_than_500_lines() -> None:
    long = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if len(path.read_text().splitlines()) > 500]
    assert not long
