// What the gate says: where the engine is held, why, and what a breakpoint waits for.

/** What a breakpoint can wait for, in words; `request` and `value` tell which fields it takes. */
export const CONDITIONS = {
  row_moved: { words: "a row moved" },
  preempted: { words: "a request was preempted", request: "may" },
  resumed: { words: "a request was resumed", request: "may" },
  finished: { words: "a request finished", request: "may" },
  request_in_batch: { words: "a request is in the batch", request: "must" },
  total_tokens_above: { words: "a pass has more tokens than", value: true },
};

/** "req-7 was preempted", "a pass has more tokens than 40". */
export function breakpointWords({ on, request, value }) {
  const words = CONDITIONS[on]?.words ?? on;
  if (value !== undefined) return `${words} ${value}`;
  return request === undefined ? words : words.replace("a request", request);
}

/** Where the engine stands, "" where nothing keeps it. `lastPass` is the newest pass that has ended. */
export function gateWords({ stop, hit, paused, permits, held }, lastPass) {
  const pass = held?.pass_id ?? lastPass + 1;
  if (hit) return `breakpoint: ${hit.words}, pass ${hit.pass_id}${stop ? ` · ${heldWords(stop, pass, hit.pass_id)}` : ""}`;
  if (stop) return heldWords(stop, pass);
  if (permits > 0) return `${permits} more ${permits === 1 ? "pass" : "passes"} to go`;
  return paused ? "going to the next stop" : "";
}

/** `said` is a pass that has been named already. */
function heldWords(stop, pass, said = null) {
  const of = pass === said ? "" : ` of pass ${pass}`;
  if (stop === "hand_off") return `held at the hand-off${of}: logits parked`;
  if (stop === "before_update_from_output") return `held before update_from_output${of}`;
  return `held before pass ${pass}`;
}
