"""`batchscope export FILE OUT.html`: a recorded run as one page that opens from a disk, without a network."""

import argparse
import contextlib
import sys
from pathlib import Path

from tracer.trace_reader import TraceReader


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("export", help="make one HTML file of a recorded run")
    parser.add_argument("file", type=Path, help="what `batchscope serve --record` wrote")
    parser.add_argument("out", type=Path, metavar="OUT.html", help="the page to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the page. Returns 2, after one line on stderr and without a page, where that cannot be done."""
    from batchscope.recorded import told
    from webui.export import export

    if not args.out.parent.is_dir():
        print(f"batchscope export: there is no folder {args.out.parent}: make it first", file=sys.stderr)
        return 2
    made = args.out.with_name(args.out.name + ".part")
    try:
        with contextlib.closing(TraceReader(args.file)) as reader:
            print(told(reader), file=sys.stderr)
            with made.open("w", encoding="utf-8") as out:
                out.writelines(export(reader))
        made.replace(args.out)
    except (ValueError, OSError) as error:
        made.unlink(missing_ok=True)
        print(f"batchscope export: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {args.out.stat().st_size / 1e6:.1f} MB, opens without a network", file=sys.stderr)
    return 0
