// Shows a recorded run: the state at any pass, from the keyframe of its block and the entries up to it.
import { getTraceBlock, getTraceIndex } from "api";
import { newState } from "fold";
import { endedBlocks, ownLists, readBlock, stateOf } from "trace_block";

const KEPT_BLOCKS = 8; // decoded
const KEPT_ENDED = 256; // blocks of which the finished requests are kept

/** Feeds the store as Net does, but by `show(passId)`. */
export class Replay {
  constructor(store, onStatus) {
    this.store = store;
    this.onStatus = onStatus;
    this.blocks = new Map();
    this.ended = new Map();
    this.at = null; // the shown pass
    this.place = null; // { number, next }: the block and its entry that come next
    this.wanted = null;
  }

  /** Load the index and show the last pass. */
  async start() {
    const { blocks, passes } = await getTraceIndex();
    this.spans = blocks;
    this.passes = passes;
    this.first = blocks[0]?.[2] ?? 0;
    this.store.frozen = true;
    this.onStatus({ state: "replay", why: "" });
    await this.show(passes - 1);
  }

  /** Nothing comes by itself. */
  drain() {
    return false;
  }

  /** Show a pass, or the nearest that there is. Of several calls while one is loading, the last one counts. */
  show(passId) {
    this.wanted = Math.min(Math.max(passId, this.first), this.passes - 1);
    this.moving ??= this.#move().finally(() => {
      this.moving = null;
    });
    return this.moving;
  }

  async #move() {
    while (this.at !== this.wanted) {
      const wanted = this.wanted;
      try {
        await this.#goTo(wanted);
        this.at = wanted;
        this.onStatus({ state: "replay", why: "" });
      } catch (error) {
        this.onStatus({ state: "replay", why: `Pass ${wanted} cannot be shown: ${error.message}` });
        this.wanted = this.at;
        this.place = null;
        return;
      }
    }
  }

  async #goTo(passId) {
    const number = this.spans.findLastIndex(([, , first, count]) => first <= passId && count > 0);
    if (number < 0) return this.store.reset(newState(this.store.maxNumSeqs), null);
    const ahead = this.place && passId > this.at && number - this.place.number <= 1;
    if (!ahead) await this.#enter(number);
    const last = passId === this.passes - 1; // with what came after it
    while ((last || this.store.state.pass_id < passId) && (await this.#step()));
  }

  /** Apply the entry that comes next. Returns false at the end of the run. */
  async #step() {
    const { place } = this;
    let { entries } = await this.#block(place.number);
    if (place.next === entries.length) {
      if (place.number === this.spans.length - 1) return false;
      [place.number, place.next] = [place.number + 1, 0];
      ({ entries } = await this.#block(place.number));
    }
    this.store.apply(entries[place.next]);
    place.next += 1;
    return true;
  }

  /** Start from the keyframe of a block. */
  async #enter(number) {
    const { keyframe } = await this.#block(number);
    const { phase } = this.store;
    this.store.reset(
      stateOf(keyframe, (block) => this.ended.get(block)),
      null,
    );
    this.store.phase = phase;
    this.place = { number, next: 0 };
    this.#fillIn(keyframe);
  }

  async #block(number) {
    const known = this.blocks.get(number);
    this.blocks.delete(number);
    const block = known ?? (await readBlock(await getTraceBlock(number)));
    keep(this.blocks, number, block, KEPT_BLOCKS);
    keep(this.ended, number, block.ended, KEPT_ENDED);
    return block;
  }

  /** Load what is not known of requests that finished before the keyframe, and put it in their places. */
  async #fillIn(keyframe) {
    this.filling = keyframe;
    for (const [block, reqIds] of [...endedBlocks(keyframe)].reverse()) {
      if (this.ended.has(block)) continue;
      const { ended } = await readBlock(await getTraceBlock(block));
      keep(this.ended, block, ended, KEPT_ENDED);
      if (this.filling !== keyframe) return;
      const { requests } = this.store.state;
      for (const reqId of reqIds) {
        if (requests.get(reqId)?.finish_reason) requests.set(reqId, ownLists(ended.get(reqId)));
      }
      this.store.version += 1;
    }
  }
}

/** Put an entry into a Map that forgets the oldest. */
function keep(map, key, value, most) {
  map.delete(key);
  map.set(key, value);
  if (map.size > most) map.delete(map.keys().next().value);
}
