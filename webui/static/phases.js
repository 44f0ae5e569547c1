// One sentence for each phase of a pass, and who does it. The order comes from the server.

export const PHASES = {
  schedule: ["engine core", "Decides which requests get how many tokens in this pass, and gives them KV blocks."],
  execute_model: ["executor", "Carries the SchedulerOutput to the worker. Encloses the phases up to park_logits."],
  synchronize_input_prep: ["model runner", "Waits until the last pass no longer reads the input buffers."],
  remove_finished: ["model runner", "Finished requests leave the batch and the runner's request dictionary."],
  remove_unscheduled: [
    "model runner",
    "Requests that this pass doesn't run leave the batch and stay in the dictionary.",
  ],
  update_cached: [
    "model runner",
    "Running rows get their computed-token count, and block ids where there are new ones.",
  ],
  add_requests: ["model runner", "New and returning requests fill the lowest empty rows."],
  condense: ["model runner", "The last rows move down into the holes that are left."],
  reorder: ["model runner", "The attention backend may swap rows, decodes first."],
  refresh_metadata: ["model runner", "Sampling metadata is rebuilt where the rows changed."],
  prepare_inputs: ["model runner", "All rows are laid end to end on one token axis, in buffers that live on."],
  attention_metadata: ["model runner", "What the attention layers will fetch from the forward context."],
  forward: ["model runner", "The model runs over all tokens of the pass at once."],
  park_logits: [
    "model runner",
    "Only the rows at logits_indices are projected; the logits wait, and None is returned.",
  ],
  grammar_bitmask: ["engine core", "The mask of allowed tokens is built between the two calls."],
  sample_tokens: ["model runner", "The second call: takes the parked logits and samples every row."],
  bookkeeping: ["model runner", "Samples of rows that are still in prefill are discarded; the others are appended."],
  process_aborts: ["engine core", "Aborts that came during the pass take effect before its outputs are applied."],
  update_from_output: ["engine core", "New tokens go to their requests, and some requests end."],
};

/** The side that a phase runs on: "core" or "runner". */
export function sideOf(name) {
  return PHASES[name]?.[0] === "model runner" ? "runner" : "core";
}

/** A duration in nanoseconds, in the unit that reads best. */
export function duration(ns) {
  if (ns < 1e4) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e6) return `${Math.round(ns / 1e3)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(ns < 1e7 ? 2 : 1)} ms`;
  return `${(ns / 1e9).toFixed(2)} s`;
}
