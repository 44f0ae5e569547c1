"""Recorded runs of the tiny model: rows that chunk, move, wait, are preempted and aborted."""

import functools
from collections.abc import Collection
from pathlib import Path

from batchscope import LLM, SamplingParams
from tracer.history import Cuts
from tracer.lifetimes import Lifetimes
from tracer.schema import SCHEMA_VERSION, Entry, decode
from tracer.trace_format import Header
from tracer.trace_writer import TraceWriter
from webui.page_facts import EngineFacts

MAX_NUM_SEQS = 8


@functools.cache
def run() -> tuple[list[bytes], Header, bytes]:
    """Return (log entries, header, vocabulary) of one run."""
    llm = LLM("tiny", max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=48, num_gpu_blocks_override=30)
    try:
        prompts = [f"request {i} " * (1 + i % 5) for i in range(40)]
        params = [SamplingParams(max_tokens=9 + 7 * (i % 6), temperature=0.0, ignore_eos=True) for i in range(40)]
        llm.generate(prompts[:30], params[:30], use_tqdm=False)
        for i in range(30, 40):
            llm.engine.add_request(f"extra-{i}", prompts[i], params[i])
        llm.engine.step()
        for i in range(30, 36):
            llm.engine.abort_request(f"extra-{i}")
        for _ in range(5):
            llm.engine.step()
        facts = EngineFacts(llm.config, llm.tokenizer, llm.engine.core_client.call("sources"))
        header = header_of(MAX_NUM_SEQS, config=facts.config())
        return llm.log.entries(0, llm.log.last_seq), header, facts.vocabulary()[0]
    finally:
        llm.shutdown()


def header_of(max_num_seqs: int, **fields) -> Header:
    known = {"schema_version": SCHEMA_VERSION, "engine": "batchscope", "model": "tiny", "created": 1.7e9, "config": {}}
    return Header(max_num_seqs=max_num_seqs, **known | fields)


def write(path: Path, entries: list[bytes] | None = None, header: Header | None = None) -> Path:
    """Record the run, or other entries, in a file."""
    known, its_header, vocabulary = run()
    header = header or its_header
    writer = TraceWriter(path)
    writer.begin(header, vocabulary)
    write_all(writer, known if entries is None else entries, header.max_num_seqs)
    return path


def write_all(writer: TraceWriter, entries: list[bytes], max_num_seqs: int, ends: Collection[int] = ()) -> None:
    """Write the entries and close the file; after those of the numbers in `ends` a block ends in any case."""
    cuts, lifetimes = Cuts(max_num_seqs), Lifetimes()
    for number, data in enumerate(entries):
        entry = decode(data)
        cuts.fold(entry, len(data))
        lifetimes.observe(entry)
        if number in ends:
            cuts.cut()
    cuts.cut()
    start = 0
    for number, span in enumerate(cuts.spans()):
        writer.write(span, cuts.edges(number), entries[start : start + span.num_entries])
        start += span.num_entries
    writer.close(lifetimes.all())
    cuts.close()


def decoded(entries: list[bytes]) -> list[Entry]:
    return [decode(data) for data in entries]
