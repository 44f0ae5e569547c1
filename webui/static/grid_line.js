// One line of the batch: always the same row, whoever holds it.
import { blockWords, runsOf, showBlocks } from "blocks";
import { spansOf } from "cells";
import { cellWords } from "changes";
import { el, setAttr, setText } from "dom";
import { stepOf } from "row_states";
import { lookOf } from "tints";

const COLUMNS = ["num", "", "", "num", "num", "num", "num", "", ""];
// The columns in which the fields of a row are to be seen.
const SHOWN_IN = {
  req_id: 2,
  num_prompt_tokens: 3,
  num_computed_tokens: 4,
  num_tokens_no_spec: 6,
  token_ids: 7,
  block_table: 8,
};

export class GridLine {
  constructor(row) {
    this.row = row;
    this.cells = COLUMNS.map((name) => el("td", name ? { class: name } : {}));
    const { cells } = this;
    this.state = cells[1].appendChild(el("span", { class: "state" }));
    this.step = cells[2].appendChild(el("span", { class: "step" }));
    this.id = cells[2].appendChild(el("span"));
    this.canvas = cells[7].appendChild(el("canvas", { "aria-hidden": "true" }));
    this.look = el("span", { class: "look", hidden: "" });
    cells[0].append(this.look, row);
    this.numbers = cells.slice(3, 7);
    this.tr = el("tr", { "data-row": row, "aria-rowindex": row + 2 }, ...cells);
    this.reqId = null;
    this.spans = this.runs = [];
  }

  /** Show what is in the row: `held` is the folded row or null, `gone` what left it in this pass. */
  fill(held, { state, gone, scheduled, sampled }) {
    this.reqId = held?.req_id ?? null;
    const kind = held ? (state?.kind ?? "held") : gone ? "left" : null;
    setAttr(this.tr, "data-empty", held ? null : "");
    setAttr(this.tr, "data-kind", kind);
    this.#look();
    this.words = kind === null ? "" : stateWords(kind, state, this.row);
    if (held && gone) this.words += `; ${gone.reqId} left this row in this pass: ${gone.why}`;
    setText(this.state, held && gone ? stateWords(kind, state, this.row) : this.words);
    setText(this.id, this.reqId ?? (gone ? `${gone.reqId ?? ""} ${gone.why}` : ""));
    this.#fillNumbers(held, scheduled);
    const step = stepOf(held, scheduled);
    setText(this.step, step);
    setAttr(this.step, "data-step", step);
    this.runs = held ? runsOf(held.block_table ?? []) : [];
    this.spans = held ? spansOfRow(held, { scheduled, sampled, step }) : [];
  }

  /** Light the line, frame it where it was chosen, and mark a block among its blocks. */
  light({ lit, chosen, block, history }) {
    this.tr.classList.toggle("lit", lit);
    setAttr(this.tr, "data-chosen", chosen ? "" : null);
    setAttr(this.tr, "title", history || null);
    setAttr(this.state, "title", this.words || null);
    showBlocks(this.cells[8], this.runs, block);
  }

  /** Mark the cells that differ from before, with the old and the new value; `cells` as changedCells gives them. */
  mark(cells) {
    for (const [field, column] of Object.entries(SHOWN_IN)) {
      const cell = this.cells[column];
      const change = this.reqId === null ? undefined : cells?.get(`${this.row} ${field}`);
      setAttr(cell, "data-changed", change ? "" : null);
      const rest = field === "block_table" ? blockWords(this.runs) : null;
      setAttr(cell, "title", change ? cellWords(field, change) : rest);
    }
  }

  #fillNumbers(held, scheduled) {
    const numbers = held && [
      held.num_prompt_tokens,
      held.num_computed_tokens,
      scheduled ?? "–",
      held.num_tokens_no_spec - held.num_prompt_tokens,
    ];
    this.numbers.forEach((cell, k) => setText(cell, numbers ? numbers[k] : ""));
  }

  /** The mark by which a request's blocks are known on the KV map. */
  #look() {
    const { look, reqId } = this;
    if (look.reqId === reqId) return;
    look.reqId = reqId;
    look.hidden = reqId === null;
    if (reqId === null) return;
    const { tint, pattern } = lookOf(reqId);
    setAttr(look, "data-tint", tint);
    setAttr(look, "data-pattern", pattern);
  }
}

function spansOfRow(held, { scheduled, sampled, step }) {
  const { num_computed_tokens: computed, num_tokens_no_spec: known } = held;
  return spansOf({ computed, scheduled: scheduled ?? 0, known, sampled: sampled?.length ?? 0, step });
}

function stateWords(kind, state, row) {
  if (state?.from === null || state?.from === undefined) return kind;
  if (kind === "swapped") return `swap ${state.from}→${row}`;
  return state.swapped ? `${kind} ⇄${state.from}→${row}` : `${kind} ${state.from}→${row}`;
}
