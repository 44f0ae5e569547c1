// Rebuilds the batch and the requests from log entries, by assignment alone. The same lines as tracer/fold.py.

export const KEPT_FINISHED = 256; // finished requests that the state still knows

/** The state before the first entry; `rows` has maxNumSeqs maps or nulls, `requests` is a Map by id. */
export function newState(maxNumSeqs) {
  return {
    seq: -1,
    pass_id: -1,
    rows: Array(maxNumSeqs).fill(null),
    requests: new Map(),
    finished: [],
    gate: {},
    blocks: new Map(),
  };
}

/** Apply one log entry to the state, in place, and return it. */
export function fold(state, entry) {
  if (entry.kind === "pass") {
    for (const phase of entry.phases) {
      for (const change of phase.changes ?? []) applyChange(state.rows, change);
      mergeRequests(state, phase.requests ?? []);
      assignBlocks(state, phase.blocks ?? []);
      for (const [reqId, start, ids] of phase.output ?? []) {
        putFrom(state.requests.get(reqId).output_token_ids, start, ids);
      }
    }
    state.pass_id = entry.pass_id;
  } else {
    mergeRequests(state, entry.requests ?? []);
    assignBlocks(state, entry.blocks ?? []);
    if (entry.kind === "gate") state.gate = entry.facts;
  }
  state.seq = entry.seq;
  return state;
}

/** Apply one assignment of tracer.schema.Change to the rows. */
export function applyChange(rows, change) {
  const [head, a, b, c, d] = change;
  if (head === "set") {
    b.forEach((row, i) => {
      rows[row] ??= {};
      rows[row][a] = Array.isArray(c[i]) ? c[i].slice() : c[i]; // the entry is kept: never share its lists
    });
  } else if (head === "put") {
    b.forEach((row, i) => putFrom(rows[row][a], c[i], d[i]));
  } else if (head === "clear") {
    rows[a] = null;
  } else if (head === "move") {
    rows[b] = rows[a];
    rows[a] = null;
  } else if (head === "swap") {
    [rows[a], rows[b]] = [rows[b], rows[a]];
  } else {
    throw new Error(`unknown change ${head} in the trace: it was made by a newer version; reload the page`);
  }
}

/** list[start:] = ids, as Python does it. */
function putFrom(list, start, ids) {
  list.length = Math.min(start, list.length);
  for (const id of ids) list.push(id);
}

function assignBlocks(state, blocks) {
  for (const [blockId, refCnt, cached] of blocks) state.blocks.set(blockId, [refCnt, cached]);
}

function mergeRequests(state, requests) {
  for (const [reqId, partial] of requests) {
    if ("prompt_token_ids" in partial) {
      // added: an id that has finished and comes again is another request
      state.requests.delete(reqId);
      state.requests.set(reqId, { output_token_ids: [] });
      state.finished = state.finished.filter((known) => known !== reqId);
    }
    if (!state.requests.has(reqId)) state.requests.set(reqId, { output_token_ids: [] });
    Object.assign(state.requests.get(reqId), partial);
    if ("finish_reason" in partial) {
      state.finished.push(reqId);
      if (state.finished.length > KEPT_FINISHED) state.requests.delete(state.finished.shift());
    }
  }
}

/** The state that /api/state gives as JSON, in the form that fold works on. */
export function stateFromJson(json) {
  const blocks = Object.entries(json.blocks).map(([blockId, block]) => [Number(blockId), block]);
  return { ...json, requests: new Map(Object.entries(json.requests)), blocks: new Map(blocks) };
}
