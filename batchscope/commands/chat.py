"""`batchscope chat`: a conversation in the terminal."""

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchscope.streaming import Streamer

HELP = "/clear forgets the conversation, Ctrl-C ends an answer, Ctrl-D or /quit leaves."


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from batchscope.streaming import add_flags

    parser = subparsers.add_parser("chat", help="talk with a model in the terminal")
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation")
    add_flags(parser, max_tokens=None, temperature=0.2)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Talk until the input ends. Returns 2, after one line on stderr, where a setting cannot work."""
    from batchscope.streaming import Streamer

    try:
        streamer = Streamer(args)
    except (ValueError, OSError) as error:
        print(f"batchscope chat: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    try:
        Conversation(streamer, args.system).hold()
    finally:
        streamer.close()
    return 0


class Conversation:
    """What was said so far, and the turns that go on from it."""

    def __init__(self, streamer: "Streamer", system: str | None) -> None:
        self._streamer = streamer
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)

    def hold(self) -> None:
        """Read lines and answer them until the input ends."""
        interactive = sys.stdin.isatty()
        if interactive:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 (lines can be edited and recalled)
            print(HELP, file=sys.stderr)
        while True:
            try:
                line = input("> " if interactive else "").strip()
            except (EOFError, KeyboardInterrupt):
                return
            if line == "/quit":
                return
            if line == "/clear":
                self._messages = list(self._opening)
            elif line:
                self._turn(line)

    def _turn(self, line: str) -> None:
        """Answer one message. One that cannot be answered is not part of the conversation."""
        said: list[str] = []
        messages = [*self._messages, {"role": "user", "content": line}]
        try:
            for piece in self._streamer.chat(messages):
                said.append(piece)
                print(piece, end="", flush=True)
        except ValueError as error:
            print(f"{error} (/clear forgets the conversation)", file=sys.stderr)
            return
        except KeyboardInterrupt:
            pass
        print(flush=True)
        self._messages = [*messages, {"role": "assistant", "content": "".join(said)}]
