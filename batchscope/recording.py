"""A file to record a server's run in, made before the model is loaded so that a bad name is told at once."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from engine.async_llm import AsyncLLM
from engine.config import ConfigError, EngineConfig
from tracer.recording import Recording
from tracer.schema import SCHEMA_VERSION
from tracer.trace_format import Header
from tracer.trace_writer import Scan, TraceWriter
from webui.page_facts import EngineFacts


@contextlib.contextmanager
def recording_to(path: Path | None, config: EngineConfig) -> Iterator[TraceWriter | None]:
    """Make the file, None for none; leave nothing where the block ends before the recording has begun.

    Raises TraceError where it cannot be made and ConfigError where there will be nothing to record.
    """
    if path is None:
        yield None
        return
    if not config.trace_config.trace:
        raise ConfigError("--record needs the trace, and --no-trace turns it off: leave one of them out")
    writer = TraceWriter(path)
    try:
        yield writer
    finally:
        if not writer.size:
            writer.abandon()


def begin_recording(llm: AsyncLLM, writer: TraceWriter) -> Recording:
    """Write the file's header and return the recording, to be started. Raises TraceError, and ends the engine then."""
    facts = EngineFacts(llm.config, llm.tokenizer, llm.sources)
    header = Header(
        schema_version=SCHEMA_VERSION,
        engine="batchscope",
        model=facts.model_name,
        created=llm.log.created,
        max_num_seqs=llm.config.scheduler_config.max_num_seqs,
        config=facts.config(),
    )
    try:
        writer.begin(header, facts.vocabulary()[0], _compiled_scan())
    except BaseException:
        llm.shutdown()
        raise
    return Recording(llm.log, writer)


def _compiled_scan() -> Scan:
    from batchscope.trace_scan import scan  # numba takes half a second to import

    with contextlib.suppress(OSError):  # it has compiled the function before it tries to save it
        scan(b"\x90", [])
    return scan
