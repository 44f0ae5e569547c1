// What a phase does and did, in plain words: the sentences of tracer/explanations, as the run recorded them.
import { Scope, sentencesOf } from "template";

const NOT_RUN = "It did not run in this pass.";
const NOT_YET = "It has not run yet: the engine is held in this pass.";

/** `explanations` is that of /api/config, by phase; undefined in recordings that were made without. */
export class Explanations {
  constructor(explanations) {
    this.explanations = explanations;
  }

  /** { who, does, here, absent, why } of a phase, or null where that was not recorded. */
  of(phase) {
    return this.explanations?.[phase] ?? null;
  }

  /** What the phase did in a pass, as tracer.explanations.here says it. */
  here(record, phase) {
    return this.#sentences(record, phase).join(" ");
  }

  /** The first sentence of that. */
  short(record, phase) {
    return this.#sentences(record, phase)[0] ?? "";
  }

  /** The three paragraphs of tracer.explanations.explain_phase. */
  text(record, phase) {
    const { does, why } = this.of(phase);
    return [does, this.here(record, phase), why].join("\n\n");
  }

  #sentences(record, phase) {
    const scope = new Scope(record, phase);
    const { here, absent = [] } = this.of(phase);
    if (record.phases.some((each) => each.phase === phase)) return sentencesOf(here, scope);
    return record.partial ? [NOT_YET] : [NOT_RUN, ...sentencesOf(absent, scope)];
  }
}
