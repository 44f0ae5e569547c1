// The page's model: the folded state, the last passes, and which pass and phase is shown.
import { applyChange, fold, newState } from "fold";
import { blockMoments } from "moments";
import { clonePool, foldPool, livePool, poolOf, poolPart } from "pool";
import { rowStates } from "row_states";

const SEGMENT = 40; // passes between two keyframes
const SEGMENTS = 6; // segments kept: about the last 200 passes

/**
 * Holds everything that the views draw. A segment is { before, passes }: rows and KV blocks before its first pass. Where
 * this page came after a pass, its segment has { before: null, after } instead.
 */
export class Store {
  constructor(maxNumSeqs) {
    this.maxNumSeqs = maxNumSeqs;
    this.frozen = false; // a recorded run: no pass comes by itself
    this.reset(newState(maxNumSeqs), null);
  }

  /** Start anew from a state; `record` is the pass that made it, shown until the next one comes. */
  reset(state, record) {
    this.state = state;
    this.parked = null; // pass id of the shown pass, null for the latest
    this.phase = null; // the phase up to which the shown pass is folded, null for its end
    this.rebuilt = null;
    this.segments = record ? [{ before: null, after: keyframe(state), passes: [this.#kept(record, null)] }] : [];
    this.version = (this.version ?? 0) + 1;
  }

  /** Fold one entry; a pass is kept so that one can step back to it. */
  apply(entry) {
    this.version += 1;
    if (entry.kind === "pass") this.#keep(entry);
    else this.#keepEvent(entry);
    fold(this.state, entry);
  }

  get paused() {
    return this.state.gate.paused === true;
  }

  get live() {
    return this.parked === null;
  }

  /** The passes that one can step back to, oldest first, as { record, states, moments, events, at }. */
  passes() {
    return this.segments.flatMap((segment) => segment.passes);
  }

  /** The passes that came after pass `passId`, two segments back at most, when the latest is shown. */
  passesSince(passId) {
    if (!this.live || passId === this.state.pass_id) return [];
    const last = this.segments.slice(-2).flatMap((segment) => segment.passes);
    return last.filter((kept) => kept.record.pass_id > passId);
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

  /** The KV blocks at the shown phase of the shown pass, as pool.js has them. */
  pool() {
    const inside = this.#inside();
    if (inside) return inside.pool;
    if (this.latest?.version !== this.version) this.latest = { version: this.version, pool: livePool(this.state) };
    return this.latest.pool;
  }

  /** What happened to the KV blocks up to the shown phase of the shown pass, as blockMoments gives it. */
  moments() {
    return this.#inside()?.moments ?? this.shown()?.moments ?? new Map();
  }

  /** Whether what is shown stands still, so that it is shown exactly. */
  get still() {
    return this.frozen || this.paused || !this.live || this.phase !== null;
  }

  /** The shown pass up to the shown phase. */
  record() {
    const record = this.shown()?.record;
    return record && this.phase !== null ? upTo(record, this.phase) : record;
  }

  /** False where this page joined after the pass and cannot rebuild the rows inside it. */
  get knowsInside() {
    const shown = this.shown();
    return !shown || this.#segmentOf(shown.record.pass_id)?.before !== null;
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
    if (!segment || segment.before === null || segment.passes.length >= SEGMENT) {
      segment = { before: keyframe(this.state), passes: [] };
      this.segments.push(segment);
      if (this.segments.length > SEGMENTS && !this.#holdsParked(this.segments[0])) this.segments.shift();
    }
    segment.passes.push(this.#kept(record, this.state));
  }

  /** Between passes only KV blocks change: an abort gives them back. */
  #keepEvent(entry) {
    const part = poolPart(entry);
    if (part) this.segments.at(-1)?.passes.at(-1).events.push(part);
  }

  #kept(record, before) {
    const states = rowStates(record, before?.rows ?? null, this.maxNumSeqs);
    const moments = blockMoments(record, (reqId) => before?.requests.get(reqId)?.block_ids ?? []);
    return { record, states, moments, events: [], at: performance.now() };
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

  /** What is to be seen at the shown moment, rebuilt; null at the end of the latest pass, which is the state itself. */
  #inside() {
    const shown = this.shown();
    if (!shown || (this.live && this.phase === null)) return null;
    const key = `${shown.record.seq} ${this.phase}`;
    if (this.rebuilt?.key !== key) this.rebuilt = { key, ...this.#rebuild(shown) };
    return this.rebuilt;
  }

  #rebuild(shown) {
    const segment = this.#segmentOf(shown.record.pass_id);
    if (segment.before === null) return { ...segment.after, states: shown.states, moments: shown.moments };
    const { rows, pool } = { rows: cloneRows(segment.before.rows), pool: clonePool(segment.before.pool) };
    for (const kept of segment.passes) {
      if (kept === shown) break;
      foldInto(rows, pool, kept.record);
      for (const part of kept.events) foldPool(pool, part);
    }
    const record = this.record();
    const states = rowStates(record, rows, this.maxNumSeqs);
    const held = new Map(pool.held);
    foldInto(rows, pool, record);
    return { rows, pool, states, moments: blockMoments(record, (reqId) => held.get(reqId) ?? []) };
  }
}

function upTo(record, name) {
  const at = record.phases.findIndex((phase) => phase.phase === name);
  return at < 0 ? record : { ...record, phases: record.phases.slice(0, at + 1) };
}

function foldInto(rows, pool, record) {
  for (const phase of record.phases) {
    for (const change of phase.changes ?? []) applyChange(rows, change);
    foldPool(pool, phase);
  }
}

function keyframe(state) {
  return { rows: cloneRows(state.rows), pool: poolOf(state) };
}

function cloneRows(rows) {
  return rows.map((row) => row && { ...row, token_ids: row.token_ids?.slice(), block_table: row.block_table?.slice() });
}
