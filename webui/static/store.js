// The page's model: the folded state, the last passes, and which pass and phase is shown.
import { applyChange, fold, newState } from "fold";
import { rowStates } from "row_states";

const SEGMENT = 40; // passes between two keyframes
const SEGMENTS = 6; // segments kept: about the last 200 passes

/** Holds everything that the views draw. A segment is { rows, passes }: the rows before its first pass (or null). */
export class Store {
  constructor(maxNumSeqs) {
    this.maxNumSeqs = maxNumSeqs;
    this.reset(newState(maxNumSeqs), null);
  }

  /** Start anew from a state; `record` is the pass that made it, shown until the next one comes. */
  reset(state, record) {
    this.state = state;
    this.parked = null; // pass id of the shown pass, null for the latest
    this.phase = null; // the phase up to which the shown pass is folded, null for its end
    this.segments = record ? [{ rows: null, passes: [this.#kept(record, null)] }] : [];
    this.version = (this.version ?? 0) + 1;
  }

  /** Fold one entry; a pass is kept so that one can step back to it. */
  apply(entry) {
    this.version += 1;
    if (entry.kind === "pass") this.#keep(entry);
    fold(this.state, entry);
  }

  get paused() {
    return this.state.gate.paused === true;
  }

  get live() {
    return this.parked === null;
  }

  /** The passes that one can step back to, oldest first, as { record, states, at }. */
  passes() {
    return this.segments.flatMap((segment) => segment.passes);
  }

  /** The pass that is shown, or null before the first. */
  shown() {
    const last = this.segments.at(-1)?.passes.at(-1) ?? null;
    return this.live ? last : (this.#find(this.parked) ?? last);
  }

  /** The rows as they were at the shown phase of the shown pass. */
  rows() {
    return this.#inside()?.rows ?? this.state.rows;
  }

  /** What happened to the rows up to the shown phase of the shown pass, as rowStates gives it. */
  states() {
    return this.#inside()?.states ?? this.shown()?.states ?? { rows: new Map(), left: [] };
  }

  /** The shown pass up to the shown phase. */
  record() {
    const record = this.shown()?.record;
    return record && this.phase !== null ? upTo(record, this.phase) : record;
  }

  /** False where this page joined after the pass and cannot rebuild the rows inside it. */
  get knowsInside() {
    const shown = this.shown();
    return !shown || this.#segmentOf(shown.record.pass_id)?.rows !== null;
  }

  /** Show the pass `by` places away; past the newest it is the live pass again. Returns false at the oldest. */
  walk(by) {
    const passes = this.passes();
    const at = passes.indexOf(this.shown()) + by;
    if (at < 0 || !passes.length) return false;
    this.parked = at >= passes.length - 1 ? null : passes[at].record.pass_id;
    this.version += 1;
    return true;
  }

  goLive() {
    this.parked = this.phase = null;
    this.version += 1;
  }

  showPhase(name) {
    this.phase = name;
    this.version += 1;
  }

  #keep(record) {
    let segment = this.segments.at(-1);
    if (!segment || segment.rows === null || segment.passes.length >= SEGMENT) {
      segment = { rows: cloneRows(this.state.rows), passes: [] };
      this.segments.push(segment);
      if (this.segments.length > SEGMENTS && !this.#holdsParked(this.segments[0])) this.segments.shift();
    }
    segment.passes.push(this.#kept(record, this.state.rows));
  }

  #kept(record, before) {
    return { record, states: rowStates(record, before, this.maxNumSeqs), at: performance.now() };
  }

  #holdsParked(segment) {
    return this.segments.length < 2 * SEGMENTS && segment.passes.some((kept) => kept.record.pass_id === this.parked);
  }

  #segmentOf(passId) {
    return this.segments.findLast((segment) => segment.passes[0].record.pass_id <= passId);
  }

  #find(passId) {
    return this.#segmentOf(passId)?.passes.find((kept) => kept.record.pass_id === passId);
  }

  /** Rows and states rebuilt at the shown moment; null at the end of the latest pass, or where they are unknown. */
  #inside() {
    const shown = this.shown();
    if (!shown || (this.live && this.phase === null)) return null;
    const key = `${shown.record.seq} ${this.phase}`;
    if (this.rebuilt?.key === key) return this.rebuilt;
    const rows = this.#rowsBefore(shown);
    if (rows === null) return null;
    const record = this.record();
    const states = rowStates(record, rows, this.maxNumSeqs);
    foldRows(rows, record);
    return (this.rebuilt = { key, rows, states });
  }

  #rowsBefore(shown) {
    const segment = this.#segmentOf(shown.record.pass_id);
    if (segment.rows === null) return null;
    const rows = cloneRows(segment.rows);
    for (const kept of segment.passes) {
      if (kept === shown) break;
      foldRows(rows, kept.record);
    }
    return rows;
  }
}

function upTo(record, name) {
  const at = record.phases.findIndex((phase) => phase.phase === name);
  return at < 0 ? record : { ...record, phases: record.phases.slice(0, at + 1) };
}

function foldRows(rows, record) {
  for (const phase of record.phases) {
    for (const change of phase.changes ?? []) applyChange(rows, change);
  }
}

function cloneRows(rows) {
  return rows.map((row) => row && { ...row, token_ids: row.token_ids?.slice(), block_table: row.block_table?.slice() });
}
