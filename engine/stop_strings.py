"""Finds the strings that end a request in text that comes piece by piece."""


class StopStrings:
    """Holds back as much of the text's end as may become a stop string, and no more."""

    def __init__(self, stop: list[str], include_in_output: bool) -> None:
        self._stop = stop
        self._include = include_in_output
        self._held = ""

    def push(self, text: str, may_stop: bool = True) -> tuple[str, str | None]:
        """Add text; return what can be shown and the stop string that was completed first, if any.

        With `may_stop` False, a stop string that ends within this text is let through.
        """
        if not self._stop:
            return text, None
        held, self._held = self._held, ""
        text = held + text
        if may_stop and (found := self._find(text)):
            start, stop = found
            return text[: start + len(stop) if self._include else start], stop
        keep = max(self._overlap(text, stop) for stop in self._stop)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """Return what is held back: no more text comes."""
        held, self._held = self._held, ""
        return held

    def _find(self, text: str) -> tuple[int, str] | None:
        hits = [(start, stop) for stop in self._stop if (start := text.find(stop)) >= 0]
        return min(hits, key=lambda hit: (hit[0] + len(hit[1]), hit[0])) if hits else None

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """Return the length of the longest end of `text` that begins `stop` without completing it."""
        for length in range(min(len(stop) - 1, len(text)), 0, -1):
            if text.endswith(stop[:length]):
                return length
        return 0
