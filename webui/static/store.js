// The page's model: the newest state, the last passes, and which pass and phase is shown.
import { fold, newState } from "fold";
import { poolOf } from "pool";
import { copyState, happened, Segment } from "segment";

const SEGMENT = 64; // passes of a segment
const ENTRIES = 1024; // entries of a segment, where the engine rests and events come
const SEGMENTS = 3; // segments kept
const NOTHING = { states: { rows: new Map(), left: [] }, moments: new Map() };

/** Holds everything that the views draw. `tail` are the segments of the last passes; a parked one keeps its own. */
export class Store {
  constructor(maxNumSeqs) {
    this.maxNumSeqs = maxNumSeqs;
    this.frozen = false; // a recorded run: no pass comes by itself
    this.version = 0; // grows on each change
    this.wake = () => {}; // called on each change: there is something to draw
    this.listeners = [];
    this.pools = {}; // the last of each kind
    this.parked = null; // the Pass that is shown, null for the newest
    this.phase = null; // the phase up to which the shown pass is folded, null for its end
    this.reset(newState(maxNumSeqs), []);
  }

  /** Take another state as the newest, after the entries of the segments `tail`. What is parked stays where it is. */
  reset(state, tail) {
    this.state = state; // the head: the newest that is known
    this.tail = tail;
    this.latest = tail.flatMap((segment) => segment.passes).at(-1) ?? null;
    this.#changed();
  }

  /** Fold one entry; a pass is kept so that one can step back to it. */
  apply(entry) {
    this.latest = this.#openSegment().push(entry, this.state) ?? this.latest;
    fold(this.state, entry);
    this.#changed();
    if (entry.kind === "pass") for (const listener of this.listeners) listener(entry);
  }

  /** `listener(record)` is called for each pass that is folded live. */
  onPass(listener) {
    this.listeners.push(listener);
  }

  get paused() {
    return this.state.gate.paused === true;
  }

  get live() {
    return this.parked === null;
  }

  /** The passes that one can step back to, oldest first, as { record, states, moments, events, at }. */
  passes() {
    return this.tail.flatMap((segment) => segment.passes);
  }

  /** The passes that came after pass `passId`, two segments back at most, when the latest is shown. */
  passesSince(passId) {
    if (!this.live || passId === this.state.pass_id) return [];
    const last = this.tail.slice(-2).flatMap((segment) => segment.passes);
    return last.filter(({ record }) => record.pass_id > passId);
  }

  /** The pass that is shown, or null before the first; one in which the engine is held has a partial record. */
  shown() {
    return this.parked ?? this.newest();
  }

  /** The newest pass, shown or not. */
  newest() {
    return this.#held() ?? this.latest;
  }

  /** The shown pass up to the shown phase. */
  record() {
    const record = this.shown()?.record;
    return record && this.phase !== null ? upTo(record, this.phase) : record;
  }

  /** The rows as they were at the shown moment. */
  rows() {
    return this.#moment().rows;
  }

  /** The KV blocks at the shown moment, as pool.js has them. */
  pool() {
    return this.#poolOf("now", this.#moment());
  }

  /** The requests at the shown moment: Map from id to what is known of them. */
  requests() {
    return this.#moment().requests;
  }

  /** What happened to the rows up to the shown moment, as rowStates gives it. */
  states() {
    return this.#inside()?.happened.states ?? (this.shown() ?? NOTHING).states;
  }

  /** What happened to the KV blocks up to the shown moment, as blockMoments gives it. */
  moments() {
    return this.#inside()?.happened.moments ?? (this.shown() ?? NOTHING).moments;
  }

  /** { rows, pool } before the shown phase, or before the shown pass; null where there is no pass. */
  before() {
    const shown = this.shown();
    if (!shown) return null;
    this.preceding = this.#once(this.preceding, () => {
      return { state: fold(shown.before(), phasesBefore(shown.record, this.phase)) };
    });
    const { state } = this.preceding;
    return { rows: state.rows, pool: this.#poolOf("before", state) };
  }

  /** Whether what is shown stands still, so that it is shown exactly. */
  get still() {
    return this.frozen || this.paused || !this.live || this.phase !== null;
  }

  /** Show a pass and stay there, at a phase where one is given: null for its end. The newest is followed if frozen. */
  show(pass, phase = this.phase) {
    const newest = pass === this.newest() && (this.frozen || pass.record.partial);
    this.parked = newest ? null : pass;
    this.phase = phase;
    this.#changed();
  }

  /** Follow the newest pass, at the phase that is shown. */
  follow() {
    this.parked = null;
    this.#changed();
  }

  goLive() {
    this.parked = this.phase = null;
    this.#changed();
  }

  showPhase(name) {
    this.phase = name;
    this.#changed();
  }

  #changed() {
    this.version += 1;
    this.wake();
  }

  /** What is known of the past has been filled in. */
  refilled() {
    this.rebuilt = this.preceding = null;
    this.#changed();
  }

  #openSegment() {
    const last = this.tail.at(-1);
    if (last && last.passes.length < SEGMENT && last.entries.length < ENTRIES) return last;
    this.tail.push(new Segment(copyState(this.state)));
    if (this.tail.length > SEGMENTS) this.tail.shift();
    return this.tail.at(-1);
  }

  /** The pass in which the engine is held, up to where it has come; null where it is not. */
  #held() {
    const { held } = this.state.gate;
    if (!held || held.pass_id <= this.state.pass_id) return null;
    if (this.partial?.of !== held) {
      const record = { kind: "pass", partial: true, seq: this.state.seq, ...held };
      const segment = new Segment(copyState(this.state));
      this.partial = { of: held, pass: segment.push(record, this.state) };
    }
    return this.partial.pass;
  }

  /** The state at the shown moment: rows, requests and blocks. */
  #moment() {
    return this.#inside()?.state ?? this.state;
  }

  /** What is to be seen at the shown moment, rebuilt; null at the end of the latest pass, which is the state itself. */
  #inside() {
    const shown = this.shown();
    if (!shown || (this.live && this.phase === null && !shown.record.partial)) return null;
    this.rebuilt = this.#once(this.rebuilt, () => this.#rebuild(shown));
    return this.rebuilt;
  }

  #rebuild(shown) {
    const before = shown.before();
    const record = this.record();
    const seen = this.phase === null ? shown : happened(record, before);
    return { state: fold(before, record), happened: seen };
  }

  /** What `make` gives for the shown pass and phase, from the last time where they are the same. */
  #once(last, make) {
    const [pass, phase] = [this.shown(), this.phase];
    return last?.pass === pass && last.phase === phase ? last : { pass, phase, ...make() };
  }

  #poolOf(name, state) {
    const known = this.pools[name];
    if (known?.state !== state || (state === this.state && known.version !== this.version)) {
      this.pools[name] = { state, version: this.version, value: poolOf(state) };
    }
    return this.pools[name].value;
  }
}

function upTo(record, name) {
  const at = record.phases.findIndex((phase) => phase.phase === name);
  return at < 0 ? record : { ...record, phases: record.phases.slice(0, at + 1) };
}

function phasesBefore(record, name) {
  const at = record.phases.findIndex((phase) => phase.phase === name);
  return { ...record, phases: record.phases.slice(0, Math.max(at, 0)) };
}
