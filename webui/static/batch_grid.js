// The persistent batch: one line a row, as wide as the batch can be. Line i is always row i; what moves slides into it.
import { drawCells, paintSpan, scaleFor, spansOf } from "cells";
import { $, el, fitCanvas, setAttr, setText } from "dom";
import { Ghosts } from "ghosts";
import { hover } from "hover";
import { factsOf, stepOf } from "row_states";

const FLAG_MS = 600; // how long a row's state stays while passes rush by
const SLIDE_MS = 380;
const COLUMNS = ["num", "", "", "num", "num", "num", "num", "", ""];
const LEGEND = [
  ["computed", "computed"], ["prefill", "P: prefill now"], ["decode", "D: decode now"], ["todo", "to prefill"], ["sampled", "sampled"],
];

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
    this.body.addEventListener("click", (event) => picked(this.#rowAt(event)));
    $("batch-scroll").addEventListener("scroll", () => this.#cells());
    hover.onChange(() => this.#light());
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
    this.rows = store.rows();
    this.scheduled = factsOf(record, "schedule").num_scheduled_tokens ?? {};
    this.sampled = factsOf(record, "bookkeeping").sampled_token_ids ?? [];
    const states = this.#statesToShow();
    this.rows.forEach((row, i) => this.#fill(this.lines[i], row, states.byId.get(row?.req_id), states.left.get(i)));
    this.#slide();
    this.#count([...states.left.values()]);
    this.#cells();
    this.#light();
    return this.flags.size > 0;
  }

  /** The exact states of the shown pass when it stands still; while passes rush by, flags that decay. */
  #statesToShow() {
    const states = this.store.states();
    const still = this.store.paused || !this.store.live || this.store.phase !== null;
    const byId = new Map(Array.from(states.rows.values(), (state) => [state.reqId, state]));
    const left = new Map(states.left.map((gone) => [gone.row, gone]));
    const now = performance.now();
    for (const kept of this.#fresh()) {
      for (const state of kept.states.rows.values()) {
        if (state.kind !== "updated") this.flags.set(state.reqId, { state, until: now + FLAG_MS });
      }
      for (const gone of kept.states.left) {
        this.flags.set(`left ${gone.row}`, { gone, until: now + FLAG_MS });
        if (this.theme.moves) this.ghosts.leave(gone, this.#top(gone.row), this.lines[gone.row].tr.offsetHeight);
      }
    }
    for (const [key, flag] of this.flags) if (flag.until < now || still) this.flags.delete(key);
    for (const { state, gone } of this.flags.values()) {
      if (state && byId.has(state.reqId)) byId.set(state.reqId, state);
      if (gone && !left.has(gone.row)) left.set(gone.row, gone);
    }
    return { byId, left };
  }

  /** The passes that came since the last drawing, when the latest is shown. */
  #fresh() {
    const seen = this.seen;
    this.seen = this.store.state.pass_id;
    if (seen === undefined || !this.store.live || seen === this.seen) return [];
    return this.store.passes().slice(-8).filter((kept) => kept.record.pass_id > seen);
  }

  #fill(line, row, state, gone) {
    const reqId = row?.req_id ?? null;
    const kind = row ? (state?.kind ?? "held") : gone ? "left" : null;
    line.reqId = reqId;
    setAttr(line.tr, "data-empty", row ? null : "");
    setAttr(line.tr, "data-kind", kind);
    setText(line.state, kind === null ? "" : stateWords(kind, state, line.row));
    setAttr(line.state, "title", row && gone ? `${gone.reqId} left this row in this pass: ${gone.why}` : null);
    setText(line.id, reqId ?? (gone ? `${gone.reqId ?? ""} ${gone.why}` : ""));
    const scheduled = this.scheduled[reqId];
    const numbers = row && [row.num_prompt_tokens, row.num_computed_tokens, scheduled ?? "–", row.num_tokens_no_spec - row.num_prompt_tokens];
    line.numbers.forEach((cell, k) => setText(cell, numbers ? numbers[k] : ""));
    const step = stepOf(row, scheduled);
    setText(line.step, step);
    setAttr(line.step, "data-step", step);
    line.runs = row ? runsOf(row.block_table ?? []) : [];
    line.spans = row ? spansOf({
      computed: row.num_computed_tokens, scheduled: scheduled ?? 0, known: row.num_tokens_no_spec,
      sampled: this.sampled[line.row]?.length ?? 0, step,
    }) : [];
  }

  #slide() {
    const now = new Map();
    for (const { row, reqId, tr } of this.lines) {
      if (reqId === null) continue;
      now.set(reqId, row);
      const before = this.drawn.get(reqId);
      if (before === undefined || before === row || !this.theme.moves) continue;
      const from = `translateY(${this.#top(before) - this.#top(row)}px)`;
      tr.animate([{ transform: from }, { transform: "none" }], { duration: SLIDE_MS, easing: "cubic-bezier(.3,.7,.2,1)" });
    }
    this.drawn = now;
  }

  /** Draw the cells of the lines that can be seen, where they have changed. */
  #cells() {
    const scroll = $("batch-scroll");
    const width = this.lines[0]?.canvas.clientWidth ?? 0;
    const longest = Math.max(16, ...this.rows.map((row) => row?.num_tokens_no_spec ?? 0));
    const scale = scaleFor(longest, width);
    this.perCell = scale.perCell;
    const height = this.lines[0]?.tr.offsetHeight || 1;
    const first = Math.floor(scroll.scrollTop / height) - 1;
    const last = first + Math.ceil(scroll.clientHeight / height) + 2;
    for (const line of this.lines.slice(Math.max(0, first), last + 1)) {
      const key = JSON.stringify([line.spans, scale, width, this.theme.colours.panel, this.theme.px]);
      if (line.key === key) continue;
      line.key = key;
      drawCells(line.canvas, line.spans, scale, this.blockSize, this.theme);
    }
  }

  #count(left) {
    const held = this.rows.filter(Boolean).length;
    const gone = left.map(({ reqId }) => reqId).filter(Boolean);
    setText($("batch-count"), `${held} of ${this.rows.length} rows${gone.length ? `, left: ${gone.join(" ")}` : ""}`);
  }

  #light() {
    for (const line of this.lines) {
      const lit = line.row === hover.row;
      line.tr.classList.toggle("lit", lit);
      this.#blocks(line, lit ? hover.block : undefined);
    }
  }

  /** The block ids as runs; the one that holds the pointed token is marked. */
  #blocks(line, block) {
    const text = line.runs.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(" ");
    const key = `${text} ${block}`;
    if (line.blocks.shown === key) return;
    line.blocks.shown = key;
    line.blocks.title = text;
    const at = line.runs.findIndex(([from, to]) => from <= block && block <= to);
    if (at < 0) {
      line.blocks.textContent = text;
      return;
    }
    const part = (runs) => runs.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(" ");
    line.blocks.replaceChildren(part(line.runs.slice(0, at)), " ", el("mark", {}, part([line.runs[at]])), " ", part(line.runs.slice(at + 1)));
  }

  /** Draw what the cells' looks mean. */
  legend() {
    const fit = fitCanvas($("legend"));
    if (!fit) return;
    const { context, height } = fit;
    context.font = `${this.theme.px * 0.85}px ${this.theme.font}`;
    context.textBaseline = "middle";
    let x = 4;
    const scale = [null, `1 cell: ${this.perCell === 1 ? "a token" : `${this.perCell} tokens`}`];
    for (const [look, words] of [scale, ...LEGEND]) {
      const [cells, size] = look === "prefill" || look === "computed" ? [2, 8] : [1, 10];
      context.save();
      context.translate(x, 0);
      if (look) paintSpan(context, { from: 0, to: cells, look, size, top: 2, tall: height - 4 }, this.theme);
      context.restore();
      if (look) x += 22;
      context.fillStyle = this.theme.colours.quiet;
      context.fillText(words, x, height / 2 + 1);
      x += context.measureText(words).width + 16;
    }
  }

  #line(row) {
    const cells = COLUMNS.map((name) => el("td", name ? { class: name } : {}));
    const state = cells[1].appendChild(el("span", { class: "state" }));
    const step = cells[2].appendChild(el("span", { class: "step" }));
    const id = cells[2].appendChild(el("span"));
    const canvas = cells[7].appendChild(el("canvas", { "aria-hidden": "true" }));
    cells[0].textContent = row;
    return { row, tr: el("tr", { "data-row": row }, ...cells), state, step, id, canvas, numbers: cells.slice(3, 7), blocks: cells[8], reqId: null, spans: [], runs: [] };
  }

  #top(row) {
    return this.lines[row].tr.offsetTop;
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
  return `${kind === "swapped" ? "swap" : kind} ${state.from}→${row}`;
}

/** Block ids in order, ascending neighbours joined: [1, 2, 3, 9] is [[1, 3], [9, 9]]. */
export function runsOf(blocks) {
  const runs = [];
  for (const block of blocks) {
    if (runs.length && runs.at(-1)[1] + 1 === block) runs.at(-1)[1] = block;
    else runs.push([block, block]);
  }
  return runs;
}
