"""The browser folds the log as tracer.fold does: after every entry, for whole logs and for each phase of a pass."""

import copy

import msgspec
import pytest
from helpers.page import open_page, pause, settled, shared_server, until

from tracer.fold import KEPT_FINISHED, apply_change, fold, new_state
from tracer.schema import EventRecord, PassRecord, PhaseRecord, decode, encode

pytestmark = pytest.mark.browser

FOLD_IN_PAGE = """async ([bytes, maxNumSeqs]) => {
  const { fold, newState } = await import("fold");
  const state = newState(maxNumSeqs);
  const states = [];
  for (const entry of MessagePack.decodeMulti(Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0)))) {
    fold(state, entry);
    states.push(JSON.stringify({ ...state, requests: Object.fromEntries(state.requests) }));
  }
  return states;
}"""


@pytest.fixture
def served():
    server = shared_server()
    yield server
    server.rest()


@pytest.fixture
def page(browser, served):
    with open_page(browser, served) as opened:
        yield opened


def entries_of(log: bytes) -> list[PassRecord | EventRecord]:
    unpacked, entries = msgspec.msgpack.Decoder(), []
    while log:  # entries lie end to end: each is as long as its own encoding
        entry = decode_first(unpacked, log)
        entries.append(entry)
        log = log[len(encode(entry)) :]
    return entries


def decode_first(unpacked, log):
    import io

    import msgpack_one

    raise NotImplementedError
