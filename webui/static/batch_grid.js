// The persistent batch: one line a row, as wide as the batch can be. Line i is always row i; what moves slides into it.
import { drawCells, scaleFor } from "cells";
import { changedCells } from "changes";
import { $, setAttr, setText } from "dom";
import { Ghosts } from "ghosts";
import { GridLine } from "grid_line";
import { hover } from "hover";
import { Legend } from "legend";
import { links } from "links";
import { historyWords, rowHistory } from "row_history";
import { factsOf } from "row_states";
import { RowWindow } from "row_window";
import { selection } from "selection";

const FLAG_MS = 600; // how long a row's state stays while passes rush by
const SLIDE_MS = 380;
const FRESH = 8; // passes of which one frame shows what happened
const AROUND = 12; // lines in the document before and after those that can be seen
const LATER_MS = 30; // these are brought up to date so long after the others

/** Draws the store's rows. */
export class BatchGrid {
  constructor(store, theme, blockSize) {
    Object.assign(this, { store, theme, blockSize, rows: [], perCell: 1 });
    this.body = $("batch").tBodies[0];
    this.lines = []; // by row, made when they are first seen
    this.shown = []; // those in the document
    this.ghosts = new Ghosts();
    this.legend = new Legend($("legend"), theme);
    this.flags = new Map(); // by request id: the states that are still to be seen
    this.drawn = new Map(); // by request id: the row where it was drawn last
    this.states = { byId: new Map(), left: new Map() };
    setAttr($("batch"), "aria-rowcount", store.maxNumSeqs + 1);
    const changed = () => this.#scrolled();
    this.window = new RowWindow($("batch-scroll"), $("batch"), { theme, around: AROUND, changed });
    this.#listen();
  }

  #listen() {
    const { body } = this;
    body.addEventListener("pointerover", (event) => hover.set({ reqId: this.#lineAt(event).reqId }));
    body.addEventListener("pointerleave", () => hover.set());
    body.addEventListener("click", (event) => {
      const { reqId } = this.#lineAt(event);
      if (reqId !== null) selection.toggle(reqId);
    });
    $("batch-scroll").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || hover.reqId === null) return;
      selection.toggle(hover.reqId);
      event.preventDefault();
    });
    links.onChange(() => this.#light());
    links.onBring(({ row }) => row !== null && this.window.show(row));
  }

  /** Point at the occupied row before or after the one that is lit. */
  chooseRow(by) {
    const held = this.rows.flatMap((row, i) => (row ? [i] : []));
    const at = held.indexOf(links.lit?.row);
    const row = held[at < 0 ? (by > 0 ? 0 : held.length - 1) : Math.max(0, Math.min(held.length - 1, at + by))];
    if (row === undefined) return;
    hover.bring({ reqId: this.rows[row].req_id });
  }

  /** Draw. Returns true while a flag still has to fade. */
  render() {
    const { store } = this;
    const record = store.record();
    this.rows = store.rows();
    this.scheduled = factsOf(record, "schedule").num_scheduled_tokens ?? {};
    this.sampled = factsOf(record, "bookkeeping").sampled_token_ids ?? [];
    this.states = this.#statesToShow();
    this.changes = store.still && store.phase !== null ? changedCells(store) : null;
    this.window.fit(this.rows.length);
    this.#place();
    for (const line of this.shown) line.stale = true;
    this.#fill(this.#seen());
    this.later ??= setTimeout(() => this.#fillOthers(), LATER_MS);
    this.#slide();
    this.#count([...this.states.left.values()]);
    this.#cells(this.#seen());
    this.#light();
    this.legend.show(this.perCell);
    return this.flags.size > 0;
  }

  /** Have those lines in the document that the window asks for. Returns the ones that were not there. */
  #place() {
    const { first, end } = this.window;
    const { lines, shown } = this;
    for (let row = first; row < end; row += 1) lines[row] ??= new GridLine(row);
    for (const { row, tr } of shown) if (row < first || row >= end) tr.remove();
    const [from, to] = shown.length ? [shown[0].row, shown.at(-1).row] : [end, end];
    const above = lines.slice(first, Math.min(end, from));
    const below = lines.slice(Math.max(first, to + 1), end);
    this.body.prepend(...above.map(({ tr }) => tr));
    this.body.append(...below.map(({ tr }) => tr));
    this.shown = lines.slice(first, end);
    return [...above, ...below];
  }

  #scrolled() {
    const entered = this.#place();
    this.#fill(entered);
    this.#fill(this.#seen().filter(({ stale }) => stale));
    this.#cells(entered);
    this.#cells(this.#seen());
    if (entered.length) this.#light();
  }

  #fillOthers() {
    this.later = null;
    this.#fill(this.shown.filter(({ stale }) => stale));
    this.#light();
  }

  #seen() {
    return this.lines.slice(...this.window.seen);
  }

  #fill(lines) {
    const { byId, left } = this.states;
    for (const line of lines) {
      const { row } = line;
      const held = this.rows[row] ?? null;
      const [state, scheduled] = [byId.get(held?.req_id), this.scheduled?.[held?.req_id]];
      line.fill(held, { state, gone: left.get(row), scheduled, sampled: this.sampled?.[row] });
      line.mark(this.changes);
      line.stale = false;
    }
  }

  /** The exact states of the shown pass when it stands still; while passes rush by, flags that decay. */
  #statesToShow() {
    const states = this.store.states();
    const { still } = this.store;
    const byId = new Map(Array.from(states.rows.values(), (state) => [state.reqId, state]));
    const left = new Map(states.left.map((gone) => [gone.row, gone]));
    this.#flag(performance.now());
    const now = performance.now();
    for (const [key, flag] of this.flags) if (flag.until < now || still) this.flags.delete(key);
    for (const { state, gone } of this.flags.values()) {
      if (state && byId.has(state.reqId)) byId.set(state.reqId, state);
      if (gone && !left.has(gone.row)) left.set(gone.row, gone);
    }
    return { byId, left };
  }

  #flag(now) {
    const fresh = this.seen === undefined ? [] : this.store.passesSince(this.seen);
    this.seen = this.store.state.pass_id;
    for (const kept of fresh.slice(-FRESH)) {
      for (const state of kept.states.rows.values()) {
        if (state.kind !== "updated") this.flags.set(state.reqId, { state, until: now + FLAG_MS });
      }
      for (const gone of kept.states.left) {
        this.flags.set(`left ${gone.row}`, { gone, until: now + FLAG_MS });
        if (this.theme.moves) this.ghosts.leave(gone, this.#top(gone.row), this.window.height);
      }
    }
  }

  #slide() {
    const now = new Map(this.rows.flatMap((row, i) => (row ? [[row.req_id, i]] : [])));
    for (const { row, reqId, tr } of this.theme.moves ? this.shown : []) {
      const before = this.drawn.get(reqId);
      if (before === undefined || before === row) continue;
      const from = `translateY(${(before - row) * this.window.height}px)`;
      tr.animate([{ transform: from }, { transform: "none" }], {
        duration: SLIDE_MS,
        easing: "cubic-bezier(.3,.7,.2,1)",
      });
    }
    this.drawn = now;
  }

  /** Draw the cells of some lines where they have changed. */
  #cells(lines) {
    const { theme } = this;
    const [{ canvas }] = this.shown.length ? this.shown : [{}];
    if (!canvas) return;
    const key = `${this.window.box.width} ${theme.px}`;
    if (this.measured !== key) {
      [this.measured, this.canvas] = [key, { width: canvas.clientWidth, height: canvas.clientHeight }];
    }
    const longest = this.rows.reduce((most, row) => Math.max(most, row?.num_tokens_no_spec ?? 0), 16);
    const scale = scaleFor(longest, this.canvas.width);
    this.perCell = scale.perCell;
    const look = `${scale.perCell} ${scale.size} ${key} ${theme.colours.panel}`;
    for (const line of lines) {
      const drawn = `${line.spans} ${look}`;
      if (line.drawn === drawn) continue;
      line.drawn = drawn;
      drawCells(line.canvas, this.canvas, line.spans, scale, this);
    }
  }

  #count(left) {
    const held = this.rows.filter(Boolean).length;
    const gone = left.map(({ reqId }) => reqId).filter(Boolean);
    const swaps = (factsOf(this.store.record(), "reorder").moved ?? []).map(([a, b]) => `${a}⇄${b}`);
    const parts = [`${held} of ${this.rows.length} rows`];
    if (gone.length) parts.push(`left: ${gone.join(" ")}`);
    if (swaps.length) parts.push(`reorder swaps ${swaps.join(" ")}`);
    if (this.changes?.size) parts.push(`Δ ${this.changes.size} values changed in this phase`);
    setText($("batch-count"), parts.join(", "));
  }

  #light() {
    const { pointed, chosen } = links;
    for (const line of this.shown) {
      const lit = pointed?.rows.has(line.row) ?? false;
      const known = lit || chosen?.rows.has(line.row);
      const block = known ? ((lit ? pointed : chosen).block ?? null) : null;
      const history = known ? historyWords(rowHistory(this.store, line.reqId)) : "";
      line.light({ lit, chosen: chosen?.rows.has(line.row) ?? false, block, history });
    }
  }

  /** Where a row begins, in px from the top of what is scrolled: the header comes first. */
  #top(row) {
    return (row + 1) * this.window.height;
  }

  #lineAt(event) {
    return this.lines[Number(event.target.closest("tr").dataset.row)];
  }
}
