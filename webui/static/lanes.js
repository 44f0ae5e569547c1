// One pass as lanes over time: who did what from when to when, as recorded. Times are ns from the start of the pass.
import { duration, sideOf } from "phases";

export const LANES = ["engine core", "executor", "runner", "device"];
const HELD_SHARE = 0.15; // of the axis, for the time that a held pass has not told yet

/**
 * Return { bars, calls, parked, overlap, device, end, held } of a pass record.
 *
 * A bar is { name, phase, lane, start, end, look }; look is "work", "call" where a lane waits for the one below, or
 * "park". calls are the two calls that cross the executor, as { name, start, end }. parked is { start, end, shape }; its
 * end is null while the logits wait. overlap is the time in which the bitmask was built while forward ran, null where
 * it is not known: only the CPU's forward pass is known to have ended when the call came back.
 */
export function lanesOf(record) {
  const phases = new Map(record.phases.map((phase) => [phase.phase, phase]));
  const device = phases.get("forward")?.facts.device ?? null;
  const calls = callsOf(phases);
  const parked = parkOf(phases);
  const end = Math.max(0, ...record.phases.map((phase) => phase.end), ...calls.map((call) => call.end));
  const bars = record.phases.flatMap((phase) => barsOf(phase, device));
  for (const call of calls) bars.push({ ...call, phase: call.name, lane: "executor", look: "call" });
  if (parked) bars.push({ name: "parked", phase: "park_logits", lane: "runner", look: "park", ...parked });
  return { bars, calls, parked, device, end, overlap: overlapOf(phases, device), held: record.partial === true };
}

function barsOf({ phase: name, start, end }, device) {
  if (name === "execute_model") return []; // it is a call
  const lane = sideOf(name) === "runner" ? "runner" : "engine core";
  const bar = { name, phase: name, start, end, lane, look: "work" };
  if (name !== "forward") return [bar];
  return onCpu(device) ? [{ ...bar, look: "call" }, { ...bar, lane: "device" }] : [bar];
}

function callsOf(phases) {
  const execute = phases.get("execute_model");
  const sample = phases.get("sample_tokens");
  const calls = execute ? [{ name: "execute_model", start: execute.start, end: execute.end }] : [];
  if (sample) {
    const [start, end] = sample.facts.call_ns ?? [sample.start, phases.get("bookkeeping")?.end ?? sample.end];
    calls.push({ name: "sample_tokens", start, end });
  }
  return calls;
}

function parkOf(phases) {
  const park = phases.get("park_logits");
  if (!park?.facts.parked) return null;
  return { start: park.end, end: phases.get("sample_tokens")?.start ?? null, shape: park.facts.logits_shape };
}

function overlapOf(phases, device) {
  const [forward, bitmask] = [phases.get("forward"), phases.get("grammar_bitmask")];
  if (!forward || !bitmask || !onCpu(device)) return null;
  return Math.max(0, Math.min(forward.end, bitmask.end) - Math.max(forward.start, bitmask.start));
}

const onCpu = (device) => device === "cpu";

/** What the lanes say, in words. `waited` is for how many ns the logits of a held pass have been parked, if they are. */
export function wordsOf(record, { parked, overlap, device, end, held }, waited) {
  const words = [held ? `held after ${duration(end)}` : duration(end)];
  if (parked) {
    const logits = `logits [${parked.shape.join(", ")}]`;
    const since = parked.end === null ? waited : parked.end - parked.start;
    words.push(parked.end === null ? `${logits} parked since ${duration(since)}` : `${logits} parked ${duration(since)}`);
  }
  const bitmask = record.phases.find((phase) => phase.phase === "grammar_bitmask");
  if (bitmask) words.push(overlapWords(bitmask, overlap, device));
  return words.join(" · ");
}

function overlapWords(bitmask, overlap, device) {
  const took = `grammar_bitmask ${duration(bitmask.end - bitmask.start)}`;
  if (device === null) return `${took}, no forward pass to overlap with`;
  if (overlap === null) return `${took}; the times of ${device} are not recorded, so no overlap is claimed`;
  if (overlap) return `${took}, ${duration(overlap)} of it during forward`;
  return `${took}, 0 µs of it during forward: on the CPU it had ended when the call came back`;
}

/** The time axis: { at(ns), edges }, at from 0 to 1. To scale, or stretched so that short phases can be read. */
export function axisOf({ bars, end, held }, stretched) {
  const times = [0, Math.max(1, end), ...bars.flatMap((bar) => [bar.start, bar.end ?? end])];
  const edges = Array.from(new Set(times)).sort((a, b) => a - b);
  const at = stretched ? stretchedScale(edges) : (ns) => ns / edges.at(-1);
  const share = held ? 1 - HELD_SHARE : 1;
  return { at: (ns) => at(ns) * share, edges };
}

/** Between two neighbouring edges the width is log2(1 + µs): longer is wider, and what is short can be seen. */
function stretchedScale(edges) {
  const sums = [0];
  for (let i = 1; i < edges.length; i++) sums.push(sums[i - 1] + Math.log2(1 + (edges[i] - edges[i - 1]) / 1e3));
  return (ns) => {
    const i = Math.max(0, Math.min(edges.findLastIndex((edge) => edge <= ns), edges.length - 2));
    const within = (ns - edges[i]) / (edges[i + 1] - edges[i]);
    return (sums[i] + within * (sums[i + 1] - sums[i])) / sums.at(-1);
  };
}
