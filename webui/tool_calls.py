"""Reads a growing JSON list of calls, [{"name": ..., "parameters": {...}}, ...], and gives each when it is complete."""

import msgspec


class _Made(msgspec.Struct):
    name: str
    parameters: msgspec.Raw


class CallList:
    """One answer's calls. `rest` is text that is no complete call yet, empty after the list's end."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.rest = ""
        self._depth = 0
        self._scanned = 0  # characters of `rest` that were looked at
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> list[tuple[str, str]]:
        """Take more text; return the calls that it completes, each a name and its arguments as JSON."""
        self.rest += text
        made: list[tuple[str, str]] = []
        while (end := self._end_of_object()) is not None:
            call = msgspec.json.decode(self.rest[self.rest.index("{") : end], type=_Made)
            made.append((call.name, bytes(call.parameters).decode()))
            self.rest, self._scanned = self.rest[end:], 0
        if self.num_calls + len(made) and self.rest.strip() in ("", "]", ","):
            self.rest, self._scanned = "", 0
        self.num_calls += len(made)
        return made

    def _end_of_object(self) -> int | None:
        """Look at what is new; return the index after the brace that ends a call, or None."""
        for i in range(self._scanned, len(self.rest)):
            self._scanned = i + 1
            if self._ends_at(self.rest[i]):
                return i + 1
        return None

    def _ends_at(self, char: str) -> bool:
        if self._in_string:
            self._in_string = self._escaped or char != '"'
            self._escaped = char == "\\" and not self._escaped
        elif char == '"':
            self._in_string = True
        elif char in "{}":
            self._depth += 1 if char == "{" else -1
            return self._depth == 0
        return False
