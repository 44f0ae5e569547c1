"""`batchscope generate PROMPT`: a prompt's continuation, in the terminal as it comes."""

import argparse
import sys


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from batchscope.streaming import add_flags

    parser = subparsers.add_parser("generate", help="continue a prompt in the terminal")
    parser.add_argument("prompt", nargs="?", help="the text to continue; without one, or as -, standard input")
    parser.add_argument("--chat", action="store_true", help="send it as a user's message in the model's chat form")
    add_flags(parser, max_tokens=128, temperature=0.0)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the continuation. Returns 2, after one line on stderr, where a setting or the prompt cannot work."""
    from batchscope.streaming import Streamer, show

    try:
        prompt = sys.stdin.read() if args.prompt in (None, "-") else args.prompt
        streamer = Streamer(args)
        try:
            show(streamer.chat([{"role": "user", "content": prompt}]) if args.chat else streamer.answer(prompt))
        finally:
            streamer.close()
    except (ValueError, OSError) as error:
        print(f"batchscope generate: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    return 0
