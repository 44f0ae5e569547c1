"""The command line: `batchscope COMMAND`. Each module of batchscope.commands is one command of the same name."""

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Iterable, Sequence

import batchscope.commands

COMMANDS = [module.name for module in pkgutil.iter_modules(batchscope.commands.__path__)]


def make_parser(commands: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser with these commands in it."""
    parser = argparse.ArgumentParser(
        prog="batchscope", description="A real LLM inference engine whose persistent batch can be watched."
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"batchscope.commands.{name}").add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0 well, 1 not, 2 for a setting or a file that cannot work."""
    argv = sys.argv[1:] if argv is None else list(argv)
    named = [name for name in COMMANDS if name in argv[:1]]  # others need not be imported, nor what they import
    args = make_parser(named or COMMANDS).parse_args(argv)
    return args.run(args)
