"""`batchscope fetch`: gets the default model, once."""

import argparse
import sys

from engine.config import ConfigError
from engine.fetch import fetch_default_model


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("fetch", help="fetch the default model into the cache folder")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the path of the model's file; return 2 where it cannot be had."""
    try:
        print(fetch_default_model())
    except (ConfigError, OSError) as error:
        print(f"batchscope fetch: {error}", file=sys.stderr)
        return 2
    return 0
