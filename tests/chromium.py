"""Finds a Chromium for the browser tests; `python tests/chromium.py` installs one where there is none.

Looked for, in this order: $BATCHSCOPE_CHROMIUM, a browser on PATH, a macOS application, Playwright's own download.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MACOS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
LAUNCH_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ADVICE = "install one (Debian: apt-get install chromium), or set BATCHSCOPE_CHROMIUM to the path of one"


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None. Raises FileNotFoundError where $BATCHSCOPE_CHROMIUM names nothing."""
    if chosen := os.environ.get("BATCHSCOPE_CHROMIUM"):
        if not (path := shutil.which(chosen)):
            raise FileNotFoundError(f"BATCHSCOPE_CHROMIUM is {chosen!r}, which is no program that can be run")
        return path
    for name in ON_PATH:
        if path := shutil.which(name):
            return path
    return next((path for path in (*MACOS, _playwrights_own()) if Path(path).is_file()), None)


def install_chromium() -> str | None:
    """Install a Chromium by apt-get (as root, on Debian), else Playwright's own, and return its path or None."""
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "update", "-qq"], environment)
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], environment)
    if not find_chromium():
        _run([sys.executable, "-m", "playwright", "install", "chromium"], dict(os.environ))
    return find_chromium()


def _run(command: list[str], environment: dict[str, str]) -> None:
    print("+", " ".join(command), flush=True)
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)


def _playwrights_own() -> str:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        return playwright.chromium.executable_path


def main() -> int:
    """Exit code 0, or 1 where there is no Chromium and $CI says that there must be one."""
    if path := find_chromium() or install_chromium():
        print(f"Browser tests will use {path}")
        return 0
    print(f"NO CHROMIUM: the browser tests will not run. To run them, {ADVICE}.", file=sys.stderr)
    return 1 if os.environ.get("CI") else 0


if __name__ == "__main__":
    sys.exit(main())
