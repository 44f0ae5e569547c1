"""What a run of the bench leaves behind: measurements, with the machine and the settings they were made on."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from batchscope.bench import machine

NOT_SETTINGS = ("run", "measure", "command", "json", "chart", "file", "peers", "peer_model")  # or of this machine alone


def headed(args: argparse.Namespace, measured: dict[str, Any]) -> dict[str, Any]:
    """Return measurements with date, machine and settings."""
    settings = {name: _plain(value) for name, value in vars(args).items() if name not in NOT_SETTINGS}
    head = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine.describe()}
    return head | {"settings": settings} | measured


def write_json(path: Path, measured: dict[str, Any]) -> None:
    path.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def changed(args: argparse.Namespace, **values: Any) -> argparse.Namespace:
    """Return arguments with some of them replaced."""
    return argparse.Namespace(**(vars(args) | values))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, Path) else value
