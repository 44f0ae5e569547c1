// The persistent batch: one line a row, as wide as the batch can be. Line i is always row i; what moves slides into it.
import { runsOf, showBlocks } from "blocks";
import { drawCells, scaleFor, spansOf } from "cells";
import { $, el, setAttr, setText } from "dom";
import { Ghosts } from "ghosts";
import { hover } from "hover";
import { drawLegend } from "legend";
import { factsOf, stepOf } from "row_states";
import { selection } from "selection";
import { lookOf } from "tints";

const FLAG_MS = 600; // how long a row's state stays while passes rush by
const SLIDE_MS = 380;
const FRESH = 8; // passes of which one frame shows what happened
const COLUMNS = ["num", "", "", "num", "num", "num", "num", "", ""];

/** Draws the store's rows; `picked(row)` is called with the row that is clicked. */
export class BatchGrid {
  constructor(store, theme, blockSize, picked) {
    Object.assign(this, { store, theme, blockSize });
    this.body = $("batch").tBodies[0];
    this.lines = Array.from({ length: store.maxNumSeqs }, (_, row) => this.#line(row));
    this.body.append(...this.lines.map((line) => line.tr));
    this.ghosts = new Ghosts();
    this.flags = new Map(); // by request id: the states that are still to be seen
    this.drawn = new Map(); // by request id: the row where it was drawn last
    this.body.addEventListener("pointerover", (event) => this.#point(this.#rowAt(event)));
    this.body.addEventListener("pointerleave", () => hover.set());
    this.body.addEventListener("click", (event) => {
      const row = this.#rowAt(event);
      if (this.lines[row].reqId !== null) selection.toggle(this.lines[row].reqId);
      picked(row);
    });
    $("batch-scroll").addEventListener("scroll", () => this.#cells());
    hover.onChange(() => this.#light());
    selection.onChange(() => this.#light());
  }

  /** Choose the occupied row before or after the one that is lit. */
  chooseRow(by) {
    const held = this.rows.flatMap((row, i) => (row ? [i] : []));
    const at = held.indexOf(hover.row);
    const row = held[at < 0 ? (by > 0 ? 0 : held.length - 1) : Math.max(0, Math.min(held.length - 1, at + by))];
    if (row === undefined) return;
    this.#point(row);
    this.lines[row].tr.scrollIntoView({ block: "nearest" });
  }

  /** Draw. Returns true while a flag still has to fade. */
  render() {
    const { store } = this;
    const record = store.record();
    this.#measure();
    this.rows = store.rows();
    this.scheduled = factsOf(record, "schedule").num_scheduled_tokens ?? {};
    this.sampled = factsOf(record, "bookkeeping").sampled_token_ids ?? [];
    const states = this.#statesToShow();
    this.rows.forEach((row, i) => this.#fill(this.lines[i], row, states.byId.get(row?.req_id), states.left.get(i)));
    this.#slide();
    this.#follow();
    this.#count([...states.left.values()]);
    this.#cells();
    this.#light();
    drawLegend($("legend"), this.perCell, this.theme);
    return this.flags.size > 0;
  }

  /** Look at sizes once, before anything is written: each look after a write lays the page out again. */
  #measure() {
    const [{ tr, canvas }] = this.lines;
    this.size = { top: tr.offsetTop, height: tr.offsetHeight || 1 };
    this.box = { width: canvas.clientWidth, height: canvas.clientHeight };
  }

  /** The exact states of the shown pass when it stands still; while passes rush by, flags that decay. */
  #statesToShow() {
    const states = this.store.states();
    const { still } = this.store;
    const byId = new Map(Array.from(states.rows.values(), (state) => [state.reqId, state]));
    const left = new Map(states.left.map((gone) => [gone.row, gone]));
    const now = performance.now();
    const fresh = this.seen === undefined ? [] : this.store.passesSince(this.seen);
    this.seen = this.store.state.pass_id;
    for (const kept of fresh.slice(-FRESH)) {
      for (const state of kept.states.rows.values()) {
        if (state.kind !== "updated") this.flags.set(state.reqId, { state, until: now + FLAG_MS });
      }
      for (const gone of kept.states.left) {
        this.flags.set(`left ${gone.row}`, { gone, until: now + FLAG_MS });
        if (this.theme.moves) this.ghosts.leave(gone, this.#top(gone.row), this.size.height);
      }
    }
    for (const [key, flag] of this.flags) if (flag.until < now || still) this.flags.delete(key);
    for (const { state, gone } of this.flags.values()) {
      if (state && byId.has(state.reqId)) byId.set(state.reqId, state);
      if (gone && !left.has(gone.row)) left.set(gone.row, gone);
    }
    return { byId, left };
  }

  #fill(line, row, state, gone) {
    const reqId = row?.req_id ?? null;
    const kind = row ? (state?.kind ?? "held") : gone ? "left" : null;
    line.reqId = reqId;
    setAttr(line.tr, "data-empty", row ? null : "");
    setAttr(line.tr, "data-kind", kind);
    showLook(line.look, reqId);
    const words = kind === null ? "" : stateWords(kind, state, line.row);
    setText(line.state, words);
    setAttr(
      line.state,
      "title",
      row && gone ? `${words}; ${gone.reqId} left this row in this pass: ${gone.why}` : words,
    );
    setText(line.id, reqId ?? (gone ? `${gone.reqId ?? ""} ${gone.why}` : ""));
    const scheduled = this.scheduled[reqId];
    const numbers = row && [
      row.num_prompt_tokens,
      row.num_computed_tokens,
      scheduled ?? "–",
      row.num_tokens_no_spec - row.num_prompt_tokens,
    ];
    line.numbers.forEach((cell, k) => setText(cell, numbers ? numbers[k] : ""));
    const step = stepOf(row, scheduled);
    setText(line.step, step);
    setAttr(line.step, "data-step", step);
    line.runs = row ? runsOf(row.block_table ?? []) : [];
    line.spans = row
      ? spansOf({
          computed: row.num_computed_tokens,
          scheduled: scheduled ?? 0,
          known: row.num_tokens_no_spec,
          sampled: this.sampled[line.row]?.length ?? 0,
          step,
        })
      : [];
  }

  /** The light stays on a request, wherever its row goes. */
  #follow() {
    if (hover.reqId === null || hover.token !== null || hover.block !== null) return;
    const row = this.rows.findIndex((held) => held?.req_id === hover.reqId);
    hover.set({ row: row < 0 ? null : row, reqId: hover.reqId });
  }

  #slide() {
    const now = new Map();
    for (const { row, reqId, tr } of this.lines) {
      if (reqId === null) continue;
      now.set(reqId, row);
      const before = this.drawn.get(reqId);
      if (before === undefined || before === row || !this.theme.moves) continue;
      const from = `translateY(${this.#top(before) - this.#top(row)}px)`;
      tr.animate([{ transform: from }, { transform: "none" }], {
        duration: SLIDE_MS,
        easing: "cubic-bezier(.3,.7,.2,1)",
      });
    }
    this.drawn = now;
  }

  /** Draw the cells of the lines that can be seen, where they have changed. */
  #cells() {
    const scroll = $("batch-scroll");
    const { width } = this.box;
    const longest = Math.max(16, ...this.rows.map((row) => row?.num_tokens_no_spec ?? 0));
    const scale = scaleFor(longest, width);
    this.perCell = scale.perCell;
    const { height } = this.size;
    const first = Math.floor(scroll.scrollTop / height) - 1;
    const last = first + Math.ceil(scroll.clientHeight / height) + 2;
    for (const line of this.lines.slice(Math.max(0, first), last + 1)) {
      const key = JSON.stringify([line.spans, scale, width, this.theme.colours.panel, this.theme.px]);
      if (line.key === key) continue;
      line.key = key;
      drawCells(line.canvas, this.box, line.spans, scale, this);
    }
  }

  #count(left) {
    const held = this.rows.filter(Boolean).length;
    const gone = left.map(({ reqId }) => reqId).filter(Boolean);
    const swaps = (factsOf(this.store.record(), "reorder").moved ?? []).map(([a, b]) => `${a}⇄${b}`);
    const parts = [`${held} of ${this.rows.length} rows`];
    if (gone.length) parts.push(`left: ${gone.join(" ")}`);
    if (swaps.length) parts.push(`reorder swaps ${swaps.join(" ")}`);
    setText($("batch-count"), parts.join(", "));
  }

  #light() {
    for (const line of this.lines) {
      const lit = hover.lights(line.row, line.reqId);
      line.tr.classList.toggle("lit", lit);
      setAttr(line.tr, "data-chosen", line.reqId !== null && line.reqId === selection.reqId ? "" : null);
      showBlocks(line.blocks, line.runs, lit ? hover.block : null);
    }
  }

  #line(row) {
    const cells = COLUMNS.map((name) => el("td", name ? { class: name } : {}));
    const state = cells[1].appendChild(el("span", { class: "state" }));
    const step = cells[2].appendChild(el("span", { class: "step" }));
    const id = cells[2].appendChild(el("span"));
    const canvas = cells[7].appendChild(el("canvas", { "aria-hidden": "true" }));
    const look = el("span", { class: "look", hidden: "" });
    cells[0].append(look, row);
    return {
      row,
      tr: el("tr", { "data-row": row }, ...cells),
      look,
      state,
      step,
      id,
      canvas,
      numbers: cells.slice(3, 7),
      blocks: cells[8],
      reqId: null,
      spans: [],
      runs: [],
    };
  }

  #top(row) {
    return this.size.top + row * this.size.height;
  }

  #rowAt(event) {
    return Number(event.target.closest("tr").dataset.row);
  }

  #point(row) {
    hover.set(this.lines[row].reqId === null ? {} : { row, reqId: this.lines[row].reqId });
  }
}

function stateWords(kind, state, row) {
  if (state?.from === null || state?.from === undefined) return kind;
  if (kind === "swapped") return `swap ${state.from}→${row}`;
  return state.swapped ? `${kind} ⇄${state.from}→${row}` : `${kind} ${state.from}→${row}`;
}

/** The mark by which a request's blocks are known on the KV map. */
function showLook(mark, reqId) {
  if (mark.reqId === reqId) return;
  mark.reqId = reqId;
  mark.hidden = reqId === null;
  if (reqId === null) return;
  const { tint, pattern } = lookOf(reqId);
  setAttr(mark, "data-tint", tint);
  setAttr(mark, "data-pattern", pattern);
}
