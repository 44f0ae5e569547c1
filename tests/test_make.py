"""`make` on a fresh machine: what it refuses, what it repeats, and what it says when there is no browser."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from helpers.house import ROOT, copy_house, run


def test_make_lists_its_targets() -> None:
    listing = run("make").stdout
    assert all(f"make {target}" in listing for target in ("setup", "demo", "test", "lint", "bench"))


def test_make_refuses_an_old_python_and_says_what_to_do(tmp_path: Path) -> None:
    house = copy_house(tmp_path)
    old = house / "python3.9"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
    old.chmod(0o755)
    result = run("make", "setup", f"PYTHON={old}", cwd=house)
    assert result.returncode != 0
    assert "needs Python 3.11 or newer" in result.stdout
    assert "Python 3.9.1" in result.stdout
    assert not (house / ".venv").exists()


def test_make_installs_again_only_when_the_requirements_change(tmp_path: Path) -> None:
    house = copy_house(tmp_path)
    stamps = [house / ".venv" / name for name in (".made", ".run", ".dev")]
    stamps[0].parent.mkdir()
    for stamp in stamps:
        stamp.touch()
    assert "pip install" not in run("make", "--dry-run", "test", cwd=house).stdout
    os.utime(house / "constraints.txt", (stamps[2].stat().st_mtime + 5,) * 2)
    assert "pip install" in run("make", "--dry-run", "test", cwd=house).stdout


@pytest.mark.parametrize(("ci", "code", "said"), [("", 0, "BROWSER TESTS DID NOT RUN"), ("true", 1, "must run")])
def test_without_a_chromium_browser_tests_are_skipped_loudly_and_fail_in_ci(
    tmp_path: Path, ci: str, code: int, said: str
) -> None:
    for name in ("conftest.py", "chromium.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path)
    (tmp_path / "test_one.py").write_text("def test_page(browser): pass\ndef test_other(): pass\n")
    nowhere = {"PATH": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path), "BATCHSCOPE_CHROMIUM": ""}
    result = run(sys.executable, "-m", "pytest", "-q", ".", cwd=tmp_path, CI=ci, **nowhere)
    assert result.returncode == code, result.stdout
    assert said in result.stdout
    assert "1 passed" in result.stdout
