// The KV map: every physical block as one cell, with its holders, and what the shown pass did to it.
import { $, el, fillTable, setAttr, setText } from "dom";
import { hover } from "hover";
import { drawMap } from "kv_draw";
import { blockAt, cornerOf, gridFor } from "kv_grid";
import { blockCells, blockLine, describe } from "kv_words";
import { MOMENTS } from "moments";
import { countPool, ownersOf } from "pool";
import { remember, remembered } from "remember";
import { factsOf } from "row_states";
import { selection } from "selection";
import { Paints } from "tints";

const FLAG_MS = 700; // how long a moment stays while passes rush by
const TABLE_ROWS = 512; // blocks that are held or findable; a pool may have 20,000
const TABLE_EVERY_MS = 1000;
const OPEN_FROM = 50; // rem of the window's height; in a lower one the map is closed until it is asked for

/** Draws the KV blocks at the shown moment. `numBlocks` counts the null block. */
export class KvMap {
  constructor(store, theme, vocab, { num_gpu_blocks: numBlocks, block_size: blockSize }) {
    Object.assign(this, { store, theme, vocab, numBlocks, blockSize });
    this.paints = new Paints();
    this.flags = new Map(); // by block id: letters and until when they are to be seen
    this.scroll = $("kv-scroll");
    this.tally = Object.fromEntries(Object.entries(MOMENTS).map(([letter, moment]) => [letter, tallyOf(letter, moment)]));
    $("kv-moments").append(...Object.values(this.tally).map(({ node }) => node));
    this.choice = remembered("kv-map");
    this.#listen();
  }

  #listen() {
    this.scroll.addEventListener("scroll", () => this.#draw());
    this.scroll.addEventListener("keydown", (event) => this.#key(event));
    $("kv").addEventListener("pointermove", (event) => this.#point(this.#blockAt(event)));
    $("kv").addEventListener("pointerleave", () => hover.set());
    $("kv").addEventListener("click", (event) => this.#choose(this.#blockAt(event)));
    $("kv-table-toggle").addEventListener("click", () => this.#toggleTable());
    $("kv-open").addEventListener("click", () => this.toggle());
    hover.onChange(() => this.#lightAll());
    selection.onChange(() => this.#lightAll());
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
    this.#follow();
    this.#draw();
    this.#tellMoments();
    this.#readout();
    this.#table();
    return fading;
  }

  /** Take what is to be drawn from the store. */
  #see() {
    const { store } = this;
    this.pool = store.pool();
    this.owners = ownersOf(this.pool);
    this.rows = store.rows();
    this.requests = store.state.requests;
    this.scheduled = factsOf(store.record(), "schedule").num_scheduled_tokens ?? {};
    const rowOf = new Map(this.rows.flatMap((row, i) => (row ? [[row.req_id, i]] : [])));
    this.rowOf = (reqId) => rowOf.get(reqId) ?? null;
    this.moments = store.moments();
    return this.#flag();
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
    const room = Math.round(Math.max(6 * px, Math.min(22 * px, innerHeight * 0.15)));
    const left = Math.ceil(px * (1 + 0.5 * String(this.numBlocks).length));
    const box = { width: $("kv-body").clientWidth - 8, height: room, widest: 2.6 * px, left };
    const key = JSON.stringify(box);
    if (this.measured === key) return;
    this.measured = key;
    this.grid = gridFor(this.numBlocks, box);
    const whole = this.grid.lines * this.grid.size;
    $("kv-track").style.height = `${whole}px`;
    this.height = Math.min(room, whole);
    for (const id of ["kv", "kv-scroll"]) $(id).style.height = `${this.height}px`;
    $("kv-table").style.height = `${Math.max(room, this.height)}px`;
  }

  #draw() {
    if (!this.open || !this.grid) return;
    const map = { pool: this.pool, owners: this.owners, grid: this.grid, count: this.numBlocks };
    const { theme, paints, rowOf, drawn: moments } = this;
    const lit = this.#lit();
    setAttr($("kv"), "data-lit", lit && Array.from(lit).join(" "));
    drawMap($("kv"), map, { top: this.scroll.scrollTop, theme, paints, rowOf, moments, pointed: hover.block, lit });
  }

  /** The blocks of what is pointed at, else of the chosen request; null where that is nothing. */
  #lit() {
    const reqIds = hover.owners.length ? hover.owners : [hover.reqId ?? (hover.block === null ? selection.reqId : null)];
    const ids = reqIds.flatMap((reqId) => this.pool.held.get(reqId) ?? []);
    if (hover.block !== null) ids.push(hover.block);
    return ids.length ? new Set(ids) : null;
  }

  #lightAll() {
    if (!this.pool || !this.open) return;
    this.#draw();
    this.#readout();
  }

  /** The light stays on a block, whoever holds it now. */
  #follow() {
    if (hover.block !== null && hover.token === null) this.#point(hover.block);
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

  #readout() {
    const pointed = hover.block !== null;
    $("kv-legend").hidden = pointed;
    $("kv-readout").hidden = !pointed;
    const text = (ids) => ids.map((id) => this.vocab.glyph(id)).join("");
    setText($("kv-readout"), pointed ? blockLine(describe(this, hover.block), text) : "");
    setAttr($("kv-readout"), "title", $("kv-readout").textContent);
  }

  #blockAt({ offsetX, offsetY }) {
    return blockAt(offsetX, offsetY + this.scroll.scrollTop, this.grid, this.numBlocks);
  }

  #point(block) {
    if (block === null) return hover.set();
    hover.set({ block, owners: (this.owners.get(block) ?? []).map(([reqId]) => reqId) });
  }

  #choose(block) {
    const [owner] = this.owners.get(block) ?? [];
    if (owner) selection.toggle(owner[0]);
  }

  /** Arrows go from block to block while the map has the focus. */
  #key(event) {
    const { columns, size } = this.grid;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (event.key === "Enter") this.#choose(hover.block);
    else if (by === undefined || event.shiftKey) return;
    else this.#point(Math.max(0, Math.min(this.numBlocks - 1, hover.block === null ? 0 : hover.block + by)));
    event.preventDefault();
    event.stopPropagation();
    const top = cornerOf(hover.block ?? 0, this.grid).y;
    const seen = this.scroll.scrollTop;
    if (top < seen || top + size > seen + this.height) this.scroll.scrollTop = top - this.height / 2;
  }

  #toggleTable() {
    const shown = $("kv-table").classList.toggle("hidden-visually") === false;
    setAttr($("kv-table-toggle"), "aria-pressed", shown);
    this.scroll.hidden = shown;
    setAttr($("kv-table"), "tabindex", shown ? 0 : -1);
    this.tableAt = 0;
    this.render();
  }

  /** The same blocks as a table, plain free ones left out, rewritten at rest or once a second. */
  #table() {
    const now = performance.now();
    if (!this.store.still && now - (this.tableAt ?? 0) < TABLE_EVERY_MS) return;
    this.tableAt = now;
    const ids = Array.from(this.pool.blocks.keys())
      .filter((blockId) => this.pool.blocks.get(blockId).some(Boolean) || this.moments.has(blockId))
      .sort((a, b) => a - b);
    const rows = ids.slice(0, TABLE_ROWS).map((blockId) => blockCells(describe(this, blockId)));
    fillTable($("kv-table").querySelector("tbody"), rows);
    const more = ids.length - TABLE_ROWS;
    setText($("kv-more"), more > 0 ? `and ${more} blocks more` : "");
  }
}

function tallyOf(letter, { does, means, colour }) {
  const number = el("span", { class: "number" });
  const badge = el("b", { "data-colour": colour }, letter);
  return { number, node: el("li", { title: `${does}: ${means}` }, badge, ` ${does} `, number) };
}
