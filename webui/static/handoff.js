// The hand-off between execute_model and sample_tokens: what is parked, what sampling gave, what was discarded.
import { $, el, fillTable, resize, setAttr, setText } from "dom";
import { hover } from "hover";
import { factsOf } from "row_states";

/** Shows the two-state runner at the shown phase of the shown pass. */
export class Handoff {
  constructor(store, vocab) {
    Object.assign(this, { store, vocab });
    this.body = $("handoff").tBodies[0];
    this.masks = $("handoff-masks");
    this.body.addEventListener("pointerover", (event) => this.#point(event.target.closest("tr")));
    this.body.addEventListener("pointerleave", () => hover.set());
    hover.onChange(() => this.#light());
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
    this.#light();
  }

  /** The grammars' masks in the scheduler's order, each with its row: how many tokens it allows, and the likeliest. */
  #masks(parks, bitmask, samples) {
    const reqIds = bitmask.structured_output_request_ids ?? [];
    this.masks.hidden = !reqIds.length;
    const vocabSize = parks.logits_shape?.[1];
    const lines = reqIds.map((reqId) => {
      const row = parks.req_ids?.indexOf(reqId);
      const at = samples.masked_rows?.indexOf(row) ?? -1;
      const likeliest = (candidates) => candidates?.[at]?.map((candidate) => this.#candidate(candidate)).join("  ") ?? "";
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

  #rows(parks, inputs, sampled, kept) {
    const reqIds = parks.req_ids ?? [];
    const lines = resize(this.body, reqIds.length, () => el("tr", {}, ...Array.from({ length: 5 }, () => el("td"))));
    reqIds.forEach((reqId, row) => {
      const discarded = kept ? !kept[row].length : Boolean(inputs.discard_request_mask?.[row]);
      const texts = [
        row,
        reqId,
        inputs.logits_indices?.[row] ?? "",
        sampled ? this.vocab.glyph(sampled[row]) : "waits",
        discarded ? (kept ? "✕ discarded" : "✕ masked") : kept ? "✓" : "",
      ];
      texts.forEach((text, k) => setText(lines[row].cells[k], text));
      setAttr(lines[row], "data-kept", kept && discarded ? "no" : "yes");
    });
  }

  #point(line) {
    hover.set({ row: line.rowIndex - 1, reqId: line.cells[1].textContent });
  }

  #light() {
    Array.from(this.body.rows, (line, row) =>
      line.classList.toggle("lit", hover.lights(row, line.cells[1].textContent)),
    );
  }
}
