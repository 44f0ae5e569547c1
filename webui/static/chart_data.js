// What the charts show of a pass: a few numbers, read off its record.
import { factsOf } from "row_states";

/** The parts of a pass's time: name and the phases in it. What is left, between the phases, is "between". */
export const PARTS = {
  schedule: ["schedule"],
  "update the batch": [
    "synchronize_input_prep",
    "remove_finished",
    "remove_unscheduled",
    "update_cached",
    "add_requests",
    "condense",
    "reorder",
    "refresh_metadata",
  ],
  "prepare inputs": ["prepare_inputs", "attention_metadata"],
  forward: ["forward"],
  "park logits": ["park_logits"],
  bitmask: ["grammar_bitmask"],
  sample: ["sample_tokens", "bookkeeping"],
  apply: ["process_aborts", "update_from_output"],
};

/**
 * The numbers of one pass by name: prefill and decode (tokens); used, cached and free (KV blocks as of schedule; cached
 * is null where it is not recorded); times in ms by the names of PARTS and "between"; kept, moved, entered and left
 * (rows); condensed and swapped (moves).
 */
export function summaryOf(record) {
  return { pass: record.pass_id, ...tokensOf(record), ...blocksOf(record), ...timesOf(record), ...rowsOf(record) };
}

/** A token decodes where it is the one newest token of its request; all others of the pass are prefill. */
function tokensOf(record) {
  const { num_scheduled_tokens: scheduled = {}, total_num_scheduled_tokens: total = 0, scheduled_cached_reqs: cached } =
    factsOf(record, "schedule");
  const { req_ids: reqIds = [] } = factsOf(record, "refresh_metadata");
  const { discard_request_mask: discard = [] } = factsOf(record, "prepare_inputs");
  const unfinished = new Set(reqIds.filter((_, row) => discard[row]));
  const decodes = (cached?.req_ids ?? []).filter(
    (reqId, i) => scheduled[reqId] === 1 && cached.num_output_tokens[i] > 0 && !unfinished.has(reqId),
  );
  return { prefill: total - decodes.length, decode: decodes.length };
}

function blocksOf(record) {
  const { num_gpu_blocks: all = 1, num_free_blocks: free = 0, num_cached_blocks: cached } = factsOf(record, "schedule");
  return { used: all - 1 - free, cached: cached ?? null, free: free - (cached ?? 0) };
}

function timesOf(record) {
  const took = new Map(record.phases.map(({ phase, start, end }) => [phase, (end - start) / 1e6]));
  const whole = Math.max(0, ...record.phases.map(({ end }) => end)) / 1e6;
  const times = {};
  let rest = whole;
  for (const [part, phases] of Object.entries(PARTS)) {
    times[part] = phases.reduce((sum, phase) => sum + (took.get(phase) ?? 0), 0);
    rest -= times[part];
  }
  return { ...times, between: Math.max(0, rest) };
}

/** kept: rows that stayed where they were, so that the pass cost them two writes. moved: to another index. */
function rowsOf(record) {
  const { num_reqs: count = 0 } = factsOf(record, "refresh_metadata");
  const added = new Set(factsOf(record, "add_requests").rows);
  const condensed = factsOf(record, "condense").moved ?? [];
  const swapped = factsOf(record, "reorder").moved ?? [];
  const origin = new Map(); // row -> the row that its request had before the moves, where it has another one now
  const from = (row) => origin.get(row) ?? row;
  for (const [src, dst] of condensed) origin.set(dst, from(src));
  for (const [a, b] of swapped) [from(a), from(b)].forEach((row, i) => origin.set(i ? a : b, row));
  const rows = Array.from({ length: count }, (_, row) => row);
  const entered = rows.filter((row) => added.has(from(row))).length;
  const moved = rows.filter((row) => !added.has(from(row)) && from(row) !== row).length;
  const left = record.phases
    .filter(({ phase }) => phase === "remove_finished" || phase === "remove_unscheduled")
    .flatMap(({ changes = [] }) => changes.filter(([head]) => head === "clear")).length;
  const counts = { kept: count - entered - moved, moved, entered, left };
  return { ...counts, condensed: condensed.length, swapped: swapped.length };
}
