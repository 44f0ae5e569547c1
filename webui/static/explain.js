// Why a request is or isn't in a recorded pass: the same answers as tracer/explain.py, from the trace in the page.
import { factsOf } from "row_states";
import { Why } from "why";

/** { request, pass, code, numbers, text }; without a pass it is the last one. */
export async function explain(trace, config, reqId, pass) {
  const last = trace.passes - 1;
  const passId = pass === null || pass === "" ? Math.max(last, 0) : Number(pass);
  const lives = trace.lifetimes.filter(([id]) => id === reqId).map(([, life]) => life);
  const [code, numbers] = await reason(trace, reqId, passId, last, lives);
  return { request: reqId, pass: passId, code, numbers, text: new Why(config.why).sentence(code, numbers) };
}

async function reason(trace, reqId, passId, last, lives) {
  if (!lives.length) return ["unknown", {}];
  const life = lives.findLast(([arrival]) => arrival <= passId);
  if (!life) return ["not_arrived", { arrival_pass: lives[0][0] }];
  const [, end, finishReason] = life;
  if (end !== null && end < passId) {
    return finishReason === "abort" ? ["aborted", { pass: end }] : ["finished", { pass: end, reason: finishReason }];
  }
  if (passId > last) return ["not_run", { pass: passId, last }];
  return factsOf(await trace.pass(passId), "schedule").why[reqId];
}
