// What belongs together at the shown moment: a token, its row and request, its KV block and slot, its logits.
import { axisOf } from "axis_data";
import { beforePaint } from "dom";
import { hover } from "hover";
import { ownersOf } from "pool";
import { selection } from "selection";

/** One thing and all that belongs to it. What it doesn't have is null. */
class Link {
  constructor(reqIds, { token = null, position = null, block = null, slot = null } = {}, moment) {
    Object.assign(this, { reqIds, token, position, block, slot });
    this.rows = new Set(reqIds.map(moment.rowOf).filter((row) => row !== null));
    this.blocks = new Set(reqIds.flatMap((reqId) => moment.held.get(reqId) ?? []));
    if (block !== null) this.blocks.add(block);
  }

  /** The row, where it is one. */
  get row() {
    return this.rows.size === 1 ? this.rows.values().next().value : null;
  }
}

class Links {
  constructor() {
    this.listeners = [];
    this.bringers = [];
    const bring = beforePaint(() => this.#bring());
    hover.onChange((brings) => {
      this.#tell();
      if (brings) bring();
    });
    selection.onChange(() => {
      this.#tell();
      bring();
    });
  }

  /** Watch a store. */
  attach(store, blockSize) {
    Object.assign(this, { store, blockSize, moment: null });
  }

  /** `listener()` is called when something else is pointed at or chosen. */
  onChange(listener) {
    this.listeners.push(listener);
  }

  /** `bringer(link)` is called to bring what is lit into sight: after a key, or where it was chosen. */
  onBring(bringer) {
    this.bringers.push(bringer);
  }

  /** The flat arrays of the shown pass, null where they are not made yet. */
  get axis() {
    return this.#now().axis;
  }

  /** Map from block id to [[request id, index of the block in its table], ...]. */
  get owners() {
    return this.#now().owners;
  }

  /** The row of a request, null where it has none. */
  rowOf(reqId) {
    return this.#now().rowOf(reqId);
  }

  /** The Link of what the pointer or the keyboard is at, or null. */
  get pointed() {
    const moment = this.#now();
    if (moment.pointed === undefined) moment.pointed = this.#linkOf(hover, moment);
    return moment.pointed;
  }

  /** The Link of what was chosen and stays, or null. */
  get chosen() {
    const moment = this.#now();
    if (moment.chosen === undefined) moment.chosen = this.#chosenLink(moment);
    return moment.chosen;
  }

  /** What is lit: what is pointed at, else what was chosen. */
  get lit() {
    return this.pointed ?? this.chosen;
  }

  #tell() {
    if (this.moment) this.moment.pointed = this.moment.chosen = undefined;
    for (const listener of this.listeners) listener();
  }

  #bring() {
    const { lit } = this;
    if (lit) for (const bringer of this.bringers) bringer(lit);
  }

  #now() {
    const { store } = this;
    if (this.moment?.version !== store.version) this.moment = momentOf(store);
    return this.moment;
  }

  #linkOf({ token, block, reqId }, moment) {
    if (token !== null) return this.#tokenLink(token, moment);
    if (block !== null)
      return new Link(
        (moment.owners.get(block) ?? []).map(([owner]) => owner),
        { block },
        moment,
      );
    return reqId === null ? null : new Link([reqId], {}, moment);
  }

  #tokenLink(token, moment) {
    const { axis } = moment;
    if (!axis || token >= axis.ids.length) return null;
    const [reqId, slot] = [axis.reqIds[axis.rows[token]], axis.slots[token]];
    const block = Math.floor(slot / this.blockSize);
    return new Link([reqId], { token, position: axis.positions[token], block, slot }, moment);
  }

  #chosenLink(moment) {
    const { reqId, position } = selection;
    if (reqId === null) return null;
    if (position === null) return new Link([reqId], {}, moment);
    const token = tokenAt(moment, reqId, position);
    if (token !== null) return this.#tokenLink(token, moment);
    const block = moment.held.get(reqId)?.[Math.floor(position / this.blockSize)] ?? null;
    const slot = block === null ? null : block * this.blockSize + (position % this.blockSize);
    return new Link([reqId], { position, block, slot }, moment);
  }
}

function momentOf(store) {
  const rows = store.rows();
  const indices = new Map(rows.flatMap((row, i) => (row ? [[row.req_id, i]] : [])));
  const pool = store.pool();
  return {
    version: store.version,
    axis: axisOf(store.record(), rows),
    held: pool.held,
    owners: ownersOf(pool),
    rowOf: (reqId) => indices.get(reqId) ?? null,
  };
}

/** The index on the token axis of a request's token at a position; null where the pass does not compute it. */
function tokenAt({ axis, rowOf }, reqId, position) {
  const row = rowOf(reqId);
  if (!axis || row === null || row >= axis.starts.length - 1) return null;
  const token = axis.positions.indexOf(position, axis.starts[row]);
  return token >= 0 && token < axis.starts[row + 1] ? token : null;
}

export const links = new Links();
