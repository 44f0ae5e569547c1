// Every pass of the run: the newest are in the store's tail, the others in blocks that are fetched and kept decoded.
import { getTraceBlock, getTraceIndex } from "api";
import { Segment } from "segment";
import { endedBlocks, readBlock, stateOf } from "trace_block";

const KEPT_BLOCKS = 12; // decoded
const KEPT_ENDED = 128; // blocks of which the finished requests are kept
const NEAR = 12; // so many passes before the border of a block the next one is fetched
const EXPECT_MS = 60; // where the pointer moves along the line, it counts once it has rested for so long
const REST_MS = 150; // the neighbours of a block are fetched once nobody has moved for so long
const FILL_AFTER_MS = 700; // and then what is not known of requests that had ended, block by block
const FILL_EVERY_MS = 40;
const FILL_MS = 250; // what is filled in is shown this often

export class History {
  constructor(store) {
    this.store = store;
    this.spans = []; // of each block: [first seq, entries, first pass, passes]
    this.oldest = 0; // the oldest block that is not forgotten
    this.passes = 0;
    this.created = null; // when the run began: what tells it from others
    this.blocks = new Map(); // by number, the last ones used: Segment
    this.ended = new Map(); // by number of a block: Map of the requests that finished in it
    this.loading = new Map();
  }

  /** The first pass that can be shown. */
  get first() {
    return this.spans[this.oldest]?.[2] ?? 0;
  }

  /** The newest whole pass, -1 where there is none. */
  get last() {
    return this.store.frozen ? this.passes - 1 : this.store.state.pass_id;
  }

  /** Ask which blocks there are. */
  async refresh() {
    const { blocks, passes, created, oldest_block: oldest } = await getTraceIndex();
    if (this.created !== null && created !== this.created) location.reload(); // another run is served here now
    Object.assign(this, { spans: blocks, passes, created, oldest });
  }

  /** The Pass with that number if it is at hand, else null. */
  at(passId) {
    const segments = [...this.store.tail, this.blocks.get(this.#numberOf(passId))];
    for (const segment of segments) {
      const pass = segment?.find(passId);
      if (pass) return pass;
    }
    return null;
  }

  /** The Pass with that number. Throws an Error with words for the user where it cannot be had. */
  async find(passId) {
    if (passId >= this.passes && !this.at(passId)) await this.refresh();
    for (const again of [false, true]) {
      const pass = this.at(passId) ?? (await this.#block(this.#numberOf(passId), again))?.find(passId);
      if (pass) return pass;
      await this.refresh(); // the last block has grown since
    }
    throw new Error(`There is no pass ${passId}.`);
  }

  /** The records of `count` passes up to pass `passId`, oldest first; fewer where there are not so many. */
  async near(passId, count) {
    const last = Math.min(passId, this.last);
    const records = [];
    for (let next = Math.max(this.first, last - count + 1); next <= last; next += 1) {
      const { segment } = await this.find(next);
      const found = segment.passes.map((pass) => pass.record).filter((record) => record.pass_id >= next);
      records.push(...found.filter((record) => record.pass_id <= last));
      next = records.at(-1).pass_id;
    }
    return records;
  }

  /** The segments from the one with the newest pass on, up to the state that is at their end, where that is known. */
  async newest(state = null) {
    const seq = state?.seq ?? Infinity;
    await this.refresh();
    const from = this.spans.findLastIndex(([first, , , count]) => first <= seq && count > 0);
    const segments = [];
    for (let number = Math.max(from, 0); number < this.spans.length && this.spans[number][0] <= seq; number++) {
      segments.push(await this.#read(number, seq));
    }
    if (state) takeEnded(segments, state);
    clearTimeout(this.started);
    this.started = setTimeout(() => this.#fetchAround(this.first), REST_MS);
    return segments;
  }

  /** Have at hand a pass that one is about to ask for: `soon`, or once no other one was expected for a moment. */
  expect(passId, soon) {
    clearTimeout(this.expecting);
    if (soon) this.#fetchAround(passId);
    else this.expecting = setTimeout(() => this.#fetchAround(passId), EXPECT_MS);
  }

  /** Have at hand what may be shown after this pass, and what it does not know of its requests. */
  prepare({ record, segment }) {
    clearTimeout(this.resting);
    const by = record.pass_id - (this.prepared ?? record.pass_id);
    this.prepared = record.pass_id;
    if (Math.abs(by) <= NEAR) this.#fetchAround(record.pass_id + Math.sign(by) * NEAR);
    this.resting = setTimeout(() => {
      this.#fetchAround(this.first); // where one key leads
      this.#fetchAround(segment.passes[0].record.pass_id - 1);
      this.#fetchAround(segment.passes.at(-1).record.pass_id + 1);
      this.resting = setTimeout(() => this.#complete(segment), FILL_AFTER_MS);
    }, REST_MS);
  }

  #fetchAround(passId) {
    if (passId < this.first || passId >= this.passes || this.at(passId)) return;
    this.#block(this.#numberOf(passId)).catch(() => {}); // told when one gets there
  }

  #numberOf(passId) {
    return this.spans.findLastIndex(([, , first, count]) => first <= passId && count > 0);
  }

  /** The decoded block, or undefined where there is none; `again` where it may have grown. */
  #block(number, again = false) {
    const known = again ? null : this.blocks.get(number);
    if (known || number < 0) {
      if (known) keep(this.blocks, number, known, KEPT_BLOCKS);
      return known;
    }
    if (!this.loading.has(number)) {
      const loading = this.#read(number).finally(() => this.loading.delete(number));
      this.loading.set(number, loading);
    }
    return this.loading.get(number).then((segment) => {
      keep(this.blocks, number, segment, KEPT_BLOCKS);
      return segment;
    });
  }

  /** Fetch and decode a block, its entries up to `seq`. */
  async #read(number, seq = Infinity) {
    const { keyframe, entries, ended } = await readBlock(await getTraceBlock(number));
    keep(this.ended, number, ended, KEPT_ENDED);
    const segment = new Segment(
      stateOf(keyframe, (block) => this.ended.get(block)),
      entries.filter((entry) => entry.seq <= seq),
    );
    segment.missing = [...endedBlocks(keyframe)].filter(([block]) => !this.ended.has(block)).reverse();
    return segment;
  }

  /** Load what requests said that had finished before a segment, newest first, as long as it is shown. */
  async #complete(segment) {
    if (segment.completing || !segment.missing?.length) return;
    segment.completing = true;
    let told = performance.now();
    while (segment.missing.length && this.store.shown()?.segment === segment) {
      await new Promise((resolve) => setTimeout(resolve, FILL_EVERY_MS));
      const [number, reqIds] = segment.missing.shift();
      const ended = this.ended.get(number) ?? (await this.#endedIn(number));
      for (const state of [...segment.states.map((kept) => kept.state), this.store.state]) fillIn(state, reqIds, ended);
      if (segment.missing.length && performance.now() - told < FILL_MS) continue;
      told = performance.now();
      this.store.refilled();
    }
    segment.completing = false;
  }

  async #endedIn(number) {
    try {
      const { ended } = await readBlock(await getTraceBlock(number));
      keep(this.ended, number, ended, KEPT_ENDED);
      return ended;
    } catch {
      return new Map(); // forgotten: they stay without their text
    }
  }
}

/** Put requests in the place of those of which only the end was known. */
function fillIn({ requests }, reqIds, ended) {
  for (const reqId of reqIds) {
    const known = requests.get(reqId);
    if (known && !("arrival_pass" in known) && ended.has(reqId)) requests.set(reqId, ended.get(reqId));
  }
}

/** Put requests that had ended before segments in their places, from the state after them, where they are the same. */
function takeEnded(segments, state) {
  const added = new Set(segments.flatMap((segment) => segment.entries.flatMap(addedIn)));
  const ended = new Map([...state.requests].filter(([reqId]) => !added.has(reqId)));
  for (const segment of segments) {
    const { requests } = segment.states[0].state;
    const missing = (reqId) => !("arrival_pass" in (requests.get(reqId) ?? {}));
    for (const [, reqIds] of segment.missing) fillIn({ requests }, reqIds, ended);
    segment.missing = segment.missing.filter(([, reqIds]) => reqIds.some(missing));
  }
}

/** The ids of the requests that are new in an entry. */
function addedIn(entry) {
  const requests = entry.phases?.flatMap((phase) => phase.requests ?? []) ?? entry.requests ?? [];
  return requests.filter(([, partial]) => "prompt_token_ids" in partial).map(([reqId]) => reqId);
}

/** Put an entry into a Map that forgets the oldest. */
function keep(map, key, value, most) {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value);
}
