// The KV map: every physical block as one cell, with its holders, and what the shown pass did to it.
import { Box } from "box";
import { $, beforePaint, el, setAttr, setText } from "dom";
import { hover } from "hover";
import { drawMap } from "kv_draw";
import { blockAt, cornerOf, gridFor } from "kv_grid";
import { blockCells, blockLine, describe } from "kv_words";
import { links } from "links";
import { MOMENTS } from "moments";
import { countPool } from "pool";
import { remember, remembered } from "remember";
import { factsOf } from "row_states";
import { selection } from "selection";
import { TableTwin } from "table_twin";
import { Paints } from "tints";

const FLAG_MS = 700; // how long a moment stays while passes rush by
const OPEN_FROM = 62; // rem of the window's height; in a lower one the map is closed until it is asked for

/** Draws the KV blocks at the shown moment. `numBlocks` counts the null block. */
export class KvMap {
  constructor(store, theme, vocab, { num_gpu_blocks: numBlocks, block_size: blockSize }) {
    Object.assign(this, { store, theme, vocab, numBlocks, blockSize });
    this.paints = new Paints();
    this.rowOf = (reqId) => links.rowOf(reqId);
    this.flags = new Map(); // by block id: letters and until when they are to be seen
    this.redraw = beforePaint(() => this.#draw());
    this.box = new Box($("kv-scroll"), this.redraw);
    this.body = new Box($("kv-body"), () => this.#sized());
    this.twin = new TableTwin("kv", ["kv-scroll"], theme, store);
    this.tally = Object.fromEntries(
      Object.entries(MOMENTS).map(([letter, moment]) => [letter, tallyOf(letter, moment)]),
    );
    $("kv-moments").append(...Object.values(this.tally).map(({ node }) => node));
    this.choice = remembered("kv-map");
    this.#listen();
  }

  #listen() {
    $("kv-scroll").addEventListener("keydown", (event) => this.#key(event));
    $("kv").addEventListener("pointermove", (event) => hover.set({ block: this.#blockAt(event) }));
    $("kv").addEventListener("pointerleave", () => hover.set());
    $("kv").addEventListener("click", (event) => this.#choose(this.#blockAt(event)));
    $("kv-open").addEventListener("click", () => this.toggle());
    links.onChange(() => {
      if (!this.pool || !this.open) return;
      this.#tellLit();
      this.redraw();
    });
    links.onBring(({ block, blocks }) => this.#bring(block ?? blocks.values().next().value ?? null));
  }

  get open() {
    return this.choice ? this.choice === "open" : innerHeight >= OPEN_FROM * this.theme.px;
  }

  /** Open or close the panel, and keep it so. */
  toggle() {
    this.choice = this.open ? "closed" : "open";
    remember("kv-map", this.choice);
    this.render();
  }

  /** Draw. Returns true while a moment still has to fade. */
  render() {
    this.#showOpen();
    const fading = this.#see();
    this.#count();
    if (!this.open) return false;
    this.#measure();
    this.#draw();
    this.#tellMoments();
    this.#tellLit();
    this.#table();
    return fading;
  }

  #sized() {
    if (!this.pool || !this.open) return;
    this.#measure();
    this.#draw();
  }

  /** Take what is to be drawn from the store. */
  #see() {
    const { store } = this;
    this.pool = store.pool();
    this.rows = store.rows();
    this.requests = store.requests();
    this.scheduled = factsOf(store.record(), "schedule").num_scheduled_tokens ?? {};
    this.moments = store.moments();
    return this.#flag();
  }

  get owners() {
    return links.owners;
  }

  /** The exact moments of the shown pass when it stands still; while passes rush by, letters that fade. */
  #flag() {
    const { store } = this;
    const now = performance.now();
    const fresh = this.seen === undefined ? [] : store.passesSince(this.seen);
    this.seen = store.state.pass_id;
    if (store.still) this.flags.clear();
    for (const kept of store.still ? [] : fresh) {
      for (const [blockId, letters] of kept.moments) this.flags.set(blockId, { letters, until: now + FLAG_MS });
    }
    for (const [blockId, { until }] of this.flags) if (until < now) this.flags.delete(blockId);
    const shown = store.still
      ? Array.from(this.moments, ([blockId, letters]) => [blockId, { letters, alpha: 1 }])
      : Array.from(this.flags, ([blockId, { letters, until }]) => [
          blockId,
          { letters, alpha: Math.min(1, (1.5 * (until - now)) / FLAG_MS) },
        ]);
    this.drawn = new Map(shown);
    return this.flags.size > 0;
  }

  #showOpen() {
    $("kv-body").hidden = $("kv-table-toggle").hidden = !this.open;
    setAttr($("kv-open"), "aria-expanded", this.open);
    setText($("kv-open"), this.open ? "hide" : "show");
  }

  #measure() {
    const { px } = this.theme;
    const { width } = this.body;
    if (!width) return; // not laid out yet
    const room = Math.round(Math.max(6 * px, Math.min(22 * px, innerHeight * 0.15)));
    const left = Math.ceil(px * (1 + 0.5 * String(this.numBlocks).length));
    const key = `${width} ${room} ${left}`;
    if (this.measured === key) return;
    this.measured = key;
    this.grid = gridFor(this.numBlocks, { width: width - 8, height: room, widest: 2.6 * px, left });
    const whole = this.grid.lines * this.grid.size;
    $("kv-track").style.height = `${whole}px`;
    this.height = Math.min(room, whole);
    for (const id of ["kv", "kv-scroll"]) $(id).style.height = `${this.height}px`;
    $("kv-table").style.height = `${Math.max(room, this.height)}px`;
  }

  #draw() {
    if (!this.open || !this.grid || !this.pool) return;
    const { pool, owners, grid, numBlocks: count, blockSize, theme, paints, drawn: moments } = this;
    const { lit } = links;
    const view = { top: this.box.top, theme, paints, moments, lit, rowOf: this.rowOf };
    drawMap($("kv"), { width: this.box.width, height: this.height }, { pool, owners, grid, count, blockSize }, view);
  }

  #tellLit() {
    const { lit } = links;
    setAttr($("kv"), "data-lit", lit?.blocks.size ? Array.from(lit.blocks).join(" ") : null);
    this.#readout(lit?.block ?? null);
  }

  #count() {
    const { used, cached, free } = countPool(this.pool, this.numBlocks);
    const number = (value) => value.toLocaleString("en");
    const parts = [`${number(used)} used`, `${number(cached)} cached`, `${number(free)} free`];
    setText($("kv-count"), `${parts.join(" · ")} of ${number(this.numBlocks)}`);
  }

  #tellMoments() {
    const count = Object.fromEntries(Object.keys(MOMENTS).map((letter) => [letter, 0]));
    for (const { letters } of this.drawn.values()) for (const letter of letters) count[letter] += 1;
    for (const [letter, { node, number }] of Object.entries(this.tally)) {
      setText(number, count[letter] || "");
      setAttr(node, "data-none", count[letter] ? null : "");
    }
  }

  #readout(block) {
    $("kv-legend").hidden = block !== null;
    $("kv-readout").hidden = block === null;
    const text = (ids) => ids.map((id) => this.vocab.glyph(id)).join("");
    const words = block === null ? "" : blockLine(describe(this, block), text);
    setText($("kv-readout"), words);
    setAttr($("kv-readout"), "title", words || null);
  }

  #blockAt({ offsetX, offsetY }) {
    return this.grid ? blockAt(offsetX, offsetY + this.box.top, this.grid, this.numBlocks) : null;
  }

  /** Choose the request that holds a block; of several, one after the other, then none. */
  #choose(block) {
    const ids = (this.owners.get(block) ?? []).map(([reqId]) => reqId);
    if (ids.length) selection.choose(ids[ids.indexOf(selection.reqId) + 1] ?? null);
  }

  /** Arrows go from block to block while the map has the focus. */
  #key(event) {
    const { columns } = this.grid;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (event.key === "Enter") this.#choose(hover.block);
    else if (by === undefined || event.shiftKey) return;
    else hover.bring({ block: Math.max(0, Math.min(this.numBlocks - 1, hover.block === null ? 0 : hover.block + by)) });
    event.preventDefault();
    event.stopPropagation();
  }

  /** Bring a block into view. */
  #bring(block) {
    if (block === null || !this.grid) return;
    const { y } = cornerOf(block, this.grid);
    const { top } = this.box;
    if (y < top || y + this.grid.size > top + this.height) this.box.scrollTo({ top: y - this.height / 2 });
  }

  /** The same blocks as a table, plain free ones left out. */
  #table() {
    const ids = Array.from(this.pool.blocks.keys())
      .filter((blockId) => this.pool.blocks.get(blockId).some(Boolean) || this.moments.has(blockId))
      .sort((a, b) => a - b);
    this.twin.show(ids.length, (line) => blockCells(describe(this, ids[line])));
  }
}

function tallyOf(letter, { does, means, colour }) {
  const number = el("span", { class: "number" });
  const badge = el("b", { "data-colour": colour }, letter);
  return { number, node: el("li", { title: `${does}: ${means}` }, badge, ` ${does} `, number) };
}
