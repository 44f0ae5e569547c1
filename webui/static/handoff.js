// The hand-off between execute_model and sample_tokens: what is parked, what sampling gave, what was discarded.
import { $, fillTable, setAttr, setText } from "dom";
import { hover } from "hover";
import { links } from "links";
import { LongTable } from "long_table";
import { factsOf } from "row_states";
import { selection } from "selection";

const AROUND = 16; // lines in the document before and after those that can be seen

/** Shows the two-state runner at the shown phase of the shown pass. */
export class Handoff {
  constructor(store, theme, vocab) {
    Object.assign(this, { store, vocab, lines: [] });
    const dress = (tr, row) => this.#dress(tr, row);
    this.table = new LongTable($("handoff-scroll"), $("handoff"), { theme, around: AROUND, dress });
    this.masks = $("handoff-masks");
    const body = $("handoff").tBodies[0];
    const lineOf = (event) => this.lines[event.target.closest("tr").cells[0].textContent];
    body.addEventListener("pointerover", (event) => hover.set(lineOf(event)));
    body.addEventListener("pointerleave", () => hover.set());
    body.addEventListener("click", (event) => selection.toggle(lineOf(event)?.of ?? null));
    links.onChange(() => this.table.light());
    links.onBring(({ row }) => row !== null && this.table.window.show(row));
  }

  render() {
    const record = this.store.record();
    const parks = factsOf(record, "park_logits");
    const { sampled } = factsOf(record, "sample_tokens");
    const kept = factsOf(record, "bookkeeping").sampled_token_ids;
    const parked = Boolean(parks.parked) && !sampled;
    setText($("handoff-state"), parked ? "parked" : "ready");
    setAttr($("handoff-state"), "data-state", parked ? "parked" : "ready");
    setText($("handoff-line"), this.#line(record, parks, sampled, kept));
    this.#rows(parks, factsOf(record, "prepare_inputs"), sampled, kept);
    this.#masks(parks, factsOf(record, "grammar_bitmask"), factsOf(record, "sample_tokens"));
  }

  /** The grammars' masks in the scheduler's order, each with its row: how many tokens it allows, and the likeliest. */
  #masks(parks, bitmask, samples) {
    const reqIds = bitmask.structured_output_request_ids ?? [];
    this.masks.hidden = !reqIds.length;
    const vocabSize = parks.logits_shape?.[1];
    const lines = reqIds.map((reqId) => {
      const row = parks.req_ids?.indexOf(reqId);
      const at = samples.masked_rows?.indexOf(row) ?? -1;
      const likeliest = (candidates) =>
        candidates?.[at]?.map((candidate) => this.#candidate(candidate)).join("  ") ?? "";
      return [
        row,
        `${bitmask.num_allowed_tokens?.[reqId]} of ${vocabSize}`,
        likeliest(samples.candidates_before),
        likeliest(samples.candidates_after),
      ];
    });
    fillTable(this.masks.tBodies[0], lines);
  }

  #candidate([id, logit]) {
    return `${this.vocab.glyph(id)} ${logit.toFixed(1)}`;
  }

  #line(record, parks, sampled, kept) {
    if (!record) return "Nothing has run yet: nothing is parked.";
    const shape = `logits [${parks.logits_shape?.join(", ")}]`;
    if (kept) {
      const discarded = kept.filter((ids) => !ids.length).length;
      return `sample_tokens took the parked ${shape}: ${kept.length - discarded} samples kept, ${discarded} discarded.`;
    }
    if (sampled) return `sample_tokens takes the ${shape}; the park is clear.`;
    if (parks.parked) return `execute_model returns None; ${shape} wait for sample_tokens.`;
    const { returned } = factsOf(record, "execute_model");
    if (this.store.phase === null && returned && returned !== "None") {
      return `execute_model returned ${returned}: no tokens, nothing parked, no sample_tokens.`;
    }
    return "Nothing is parked yet in this pass.";
  }

  /** A line for each row: it points at the token whose logits are its own. */
  #rows(parks, inputs, sampled, kept) {
    const tokens = inputs.logits_indices ?? [];
    this.lines = (parks.req_ids ?? []).map((of, row) => ({
      of,
      ...(row in tokens ? { token: tokens[row] } : { reqId: of }),
    }));
    this.kept = kept;
    this.table.show(this.lines.length, (row) => {
      const discarded = kept ? !kept[row].length : Boolean(inputs.discard_request_mask?.[row]);
      return [
        row,
        this.lines[row].of,
        tokens[row] ?? "",
        sampled ? this.vocab.glyph(sampled[row]) : "waits",
        discarded ? (kept ? "✕ discarded" : "✕ masked") : kept ? "✓" : "",
      ];
    });
  }

  #dress(tr, row) {
    tr.classList.toggle("lit", links.pointed?.rows.has(row) ?? false);
    setAttr(tr, "data-chosen", links.chosen?.rows.has(row) ? "" : null);
    setAttr(tr, "data-kept", this.kept && !this.kept[row]?.length ? "no" : "yes");
  }
}
