"""A recorded run in the place of an engine: the same routes show it, and whatever would need an engine is refused."""

from typing import Annotated, Any, NoReturn

import msgspec
from flask import Flask, request

from tracer.phases import Phase
from tracer.schema import SCHEMA_VERSION
from tracer.trace_format import TraceError
from tracer.trace_reader import TraceReader
from webui.errors import ApiError
from webui.page_facts import digest

READING = ("GET", "HEAD", "OPTIONS")


class _Needed(msgspec.Struct):
    """What the page cannot do without, of what `webui.page_facts` tells of an engine."""

    block_size: Annotated[int, msgspec.Meta(ge=1)]
    num_gpu_blocks: Annotated[int, msgspec.Meta(ge=1)]
    why: dict[str, Any]


class ReplayFacts:
    """What the page must know beforehand, as it was when the run was recorded."""

    def __init__(self, reader: TraceReader) -> None:
        self._reader = reader
        self._digest = digest(reader.vocabulary)
        self.model_name = reader.header.model

    def config(self) -> dict[str, Any]:
        """Return what /api/config gave, and under `replay` what is said of the file."""
        return replay_config(self._reader)

    def vocabulary(self) -> tuple[bytes, str]:
        """See webui.page_facts.PageFacts."""
        return self._reader.vocabulary, self._digest


class ReplayLLM:
    """Has the parts of AsyncLLM that look back; the others raise ApiError 409."""

    healthy = True

    def __init__(self, reader: TraceReader) -> None:
        """Raises TraceError where the page could not show the file."""
        self.log = reader
        self.facts = ReplayFacts(reader)
        self.facts.config()

    @property
    def config(self) -> Any:
        self._refuse()

    @property
    def tokenizer(self) -> Any:
        self._refuse()

    @property
    def sources(self) -> Any:
        self._refuse()

    def generate(
        self,
        prompt: Any,
        params: Any,
        request_id: str | None = None,
        priority: int = 0,
        cache_salt: str | None = None,
    ) -> Any:
        self._refuse()

    def abort(self, request_id: str) -> bool:
        self._refuse()

    def call(self, method: str, *args: Any) -> Any:
        self._refuse()

    def set_trace_delay(self, seconds: float) -> None:
        """All is there already."""

    def shutdown(self) -> None:
        self.log.close()

    def guard(self, app: Flask) -> None:
        """Have the app refuse every request that would need an engine, before it looks at it."""

        @app.before_request
        def refuse() -> None:
            if request.method not in READING or request.path.startswith("/v1"):
                self._refuse()

    def _refuse(self) -> NoReturn:
        raise ApiError(
            409, f"this is a replay of {self.log.path.name}: no engine runs here, so nothing can be asked of it"
        )


def replay_config(reader: TraceReader) -> dict[str, Any]:
    """Return what the page needs to know of a recorded run, of whichever version recorded it. Raises TraceError."""
    try:
        msgspec.convert(reader.header.config, _Needed)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"{reader.path} does not say what the page needs to know ({error}): "
            "record it with `batchscope serve --record`"
        ) from None
    here: dict[str, Any] = {"phases": [phase.value for phase in Phase], "schema_version": SCHEMA_VERSION}
    recorded = reader.header.config | {"model": reader.header.model, "max_num_seqs": reader.header.max_num_seqs}
    about = {
        "file": reader.path.name,
        "created": reader.header.created,
        "complete": reader.complete,
        "damage": reader.damage,
    }
    return here | recorded | {"replay": about}
