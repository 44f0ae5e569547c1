// Reads a block of a trace file: the keyframe and the entries that were recorded. The same as tracer/trace_reader.py.
import { fold, newState } from "fold";
import { numbersOf, read } from "planes";

const HEAD = 16; // tag, stored length, inflated length, crc32
const SPAN = 24; // first seq, entries, first pass, passes

/** The section's data, inflated. `prefix` bytes before it are left out. */
export async function inflate(section, prefix = 0) {
  const { writable, readable } = new DecompressionStream("deflate-raw");
  const writer = writable.getWriter();
  const written = Promise.all([writer.write(section.subarray(HEAD + prefix)), writer.close()]);
  const [data] = await Promise.all([new Response(readable).arrayBuffer(), written]);
  return new Uint8Array(data);
}

/** { keyframe, entries, ended } of a block's section; `ended` is a Map of the requests that finished in it. */
export async function readBlock(section) {
  const [skeleton, planes] = read(await inflate(section, SPAN));
  const { keyframe, entries, ended } = read(skeleton, numbersOf(planes));
  const decoded = entries.map((entry) => (entry instanceof Uint8Array ? read(entry) : entry));
  return { keyframe, entries: decoded, ended: new Map(ended) };
}

/**
 * The state that a keyframe holds, a copy of its own. `endedIn(block)` gives the Map of those that finished there, or
 * undefined where it is not loaded: such requests are shown as ended, without their text.
 */
export function stateOf(keyframe, endedIn) {
  const state = fold(newState(0), { kind: "keyframe", seq: keyframe.seq, facts: {}, blocks: keyframe.blocks });
  const requests = keyframe.requests.map(([reqId, known]) => [
    reqId,
    ownLists(typeof known === "number" ? (endedIn(known)?.get(reqId) ?? UNKNOWN) : known),
  ]);
  state.pass_id = keyframe.pass_id;
  state.requests = new Map(requests);
  state.finished = keyframe.finished.slice();
  state.gate = keyframe.gate;
  state.rows = keyframe.rows.map((row) => row && rowOf(row, state.requests));
  return state;
}

/** The blocks in which requests of the keyframe finished: Map from block to request ids. */
export function endedBlocks(keyframe) {
  const blocks = new Map();
  for (const [reqId, known] of keyframe.requests) {
    if (typeof known === "number") blocks.set(known, [...(blocks.get(known) ?? []), reqId]);
  }
  return blocks;
}

const UNKNOWN = { prompt_token_ids: [], output_token_ids: [], finish_reason: "ended" };

function rowOf(row, requests) {
  const { prompt_token_ids: prompt = [], output_token_ids: output = [] } = requests.get(row.req_id) ?? {};
  const tokens = row.token_ids === null ? [...prompt, ...output] : row.token_ids?.slice();
  return { ...row, ...(tokens && { token_ids: tokens }), block_table: row.block_table?.slice() };
}

export function ownLists(request) {
  return { ...request, output_token_ids: (request.output_token_ids ?? []).slice() };
}
