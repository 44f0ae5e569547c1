// Passes in a row and the states between them: any moment of them at the cost of folding a few entries.
import { fold } from "fold";
import { blockMoments } from "moments";
import { rowStates } from "row_states";

const KEPT = 8; // states that are kept once they have been asked for, about

/** `before` is the state before the first entry; nobody else may change it. */
export class Segment {
  constructor(before, entries = []) {
    this.entries = [];
    this.passes = [];
    this.states = [{ at: 0, state: before }]; // each before the entry of that number
    for (const entry of entries) this.push(entry);
  }

  /** Take the next entry; `state` is the one before it where that is at hand. Returns its Pass, null for an event. */
  push(entry, state = null) {
    this.entries.push(entry);
    if (entry.kind !== "pass") {
      this.passes.at(-1)?.events.push(entry);
      return null;
    }
    const pass = new Pass(entry, this, this.entries.length - 1, state);
    this.passes.push(pass);
    return pass;
  }

  find(passId) {
    return this.passes[passId - this.passes[0]?.record.pass_id];
  }

  /** The state before an entry, a copy of its own. */
  stateBefore(index) {
    const from = this.states.findLastIndex(({ at }) => at <= index);
    const state = copyState(this.states[from].state);
    const every = Math.max(KEPT, Math.ceil(this.entries.length / KEPT));
    const kept = [];
    for (let at = this.states[from].at; at < index; at++) {
      fold(state, this.entries[at]);
      if ((at + 1) % every === 0) kept.push({ at: at + 1, state: copyState(state) });
    }
    this.states.splice(from + 1, 0, ...kept);
    return state;
  }
}

/** One pass of a Segment: its record, the events after it and when it came; states and moments are of its end. */
export class Pass {
  constructor(record, segment, index, state = null) {
    Object.assign(this, { record, segment, index, events: [], at: performance.now() });
    if (state) this.#look(state);
  }

  /** What happened to the rows, as rowStates gives it. */
  get states() {
    if (!this.looked) this.#look(this.before());
    return this.looked.states;
  }

  /** What happened to the KV blocks, as blockMoments gives it. */
  get moments() {
    if (!this.looked) this.#look(this.before());
    return this.looked.moments;
  }

  /** The state before the pass, a copy of its own. */
  before() {
    return this.segment.stateBefore(this.index);
  }

  #look(state) {
    this.looked = happened(this.record, state);
  }
}

/** What a record does to the rows and blocks of the state before it. */
export function happened(record, { rows, requests }) {
  return {
    states: rowStates(record, rows),
    moments: blockMoments(record, (reqId) => requests.get(reqId)?.block_ids ?? []),
  };
}

/** A copy that can be folded into. Lists that fold replaces as a whole are shared. */
export function copyState(state) {
  const requests = new Map();
  for (const [reqId, known] of state.requests) {
    const { output_token_ids: ids, finish_reason: ended } = known;
    requests.set(reqId, { ...known, output_token_ids: ended ? ids : ids.slice() });
  }
  return {
    ...state,
    rows: state.rows.map((row) => row && { ...row, ...ownLists(row) }),
    requests,
    finished: state.finished.slice(),
    blocks: new Map(state.blocks),
  };
}

function ownLists({ token_ids: tokens, block_table: blocks }) {
  return { ...(tokens && { token_ids: tokens.slice() }), ...(blocks && { block_table: blocks.slice() }) };
}
