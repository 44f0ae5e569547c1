"""One module a command, with `add_parser(subparsers)` and `run(args) -> int`."""
