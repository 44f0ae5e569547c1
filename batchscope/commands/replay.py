"""`batchscope replay FILE`: the same page on a recorded run, without an engine."""

import argparse
import sys
from pathlib import Path

from tracer.trace_reader import TraceReader


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("replay", help="show a recorded run, without an engine")
    parser.add_argument("file", type=Path, help="what `batchscope serve --record` wrote")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on, 0 for any (default: %(default)s)")
    parser.add_argument(
        "--share", action="store_true", help="guard the page by two tokens, so that others may be let in"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until stopped. Returns 2, after one line on stderr, where the file or the port cannot work."""
    from batchscope.recorded import told
    from webui.replay import ReplayLLM
    from webui.security import Access
    from webui.server import listen, serve_until_stopped

    try:
        llm = ReplayLLM(reader := TraceReader(args.file))
        Access.make(args.host, args.port, args.share)
        with listen(args.host, args.port) as listener:
            access = Access.make(args.host, listener.getsockname()[1], args.share)
            print(told(reader), file=sys.stderr)
            serve_until_stopped(llm, listener, access)
    except (ValueError, OSError) as error:
        print(f"batchscope replay: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
