// Reads a block of a trace file: the keyframe and the entries that were recorded. The same as tracer/trace_reader.py.
import { fold, newState } from "fold";

const HEAD = 16; // tag, stored length, inflated length, crc32
const SPAN = 24; // first seq, entries, first pass, passes
const WIDTHS = { 0xca: 5, 0xcb: 9, 0xcc: 2, 0xcd: 3, 0xce: 5, 0xcf: 9, 0xd0: 2, 0xd1: 3, 0xd2: 5, 0xd3: 9 };
const HEADS = { 0xdc: 3, 0xdd: 5, 0xde: 3, 0xdf: 5 }; // of long lists and maps
const TEXTS = { 0xc4: 1, 0xc5: 2, 0xc6: 4, 0xd9: 1, 0xda: 2, 0xdb: 4 }; // bytes that hold the length

/** The section's data, inflated. `prefix` bytes before it are left out. */
export async function inflate(section, prefix = 0) {
  const stored = new Blob([section.subarray(HEAD + prefix)]);
  const stream = stored.stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** { keyframe, entries, ended } of a block's section; `ended` is a Map of the requests that finished in it. */
export async function readBlock(section) {
  const [skeleton, planes] = globalThis.MessagePack.decode(await inflate(section, SPAN));
  const { keyframe, entries, ended } = globalThis.MessagePack.decode(restore(skeleton, planes));
  const decoded = entries.map((entry) =>
    entry instanceof Uint8Array ? globalThis.MessagePack.decode(entry) : entry,
  );
  return { keyframe, entries: decoded, ended: new Map(ended) };
}

/** Put the numbers of the planes in place of the zeros of the skeleton, as tracer/planes.py does. */
export function restore(skeleton, planes) {
  const count = planes.length / 4;
  const out = new Uint8Array(skeleton.length + planes.length);
  let [from, to, next] = [0, 0, 0];
  for (let at = 0; at < skeleton.length; ) {
    if (skeleton[at] !== 0) {
      at += widthAt(skeleton, at);
      continue;
    }
    out.set(skeleton.subarray(from, at), to);
    to += at - from;
    out[to] = 0xd2; // a number of 32 bits
    for (let byte = 0; byte < 4; byte++) out[to + 4 - byte] = planes[byte * count + next];
    next += 1;
    to += 5;
    at += 1;
    from = at;
  }
  if (next !== count) throw new Error("The block is damaged: its numbers do not fit its structure.");
  out.set(skeleton.subarray(from), to);
  return out.subarray(0, to + skeleton.length - from);
}

/** How many bytes of msgpack to pass over: a scalar, or the head of a list or of a map. */
function widthAt(bytes, at) {
  const head = bytes[at];
  if (head < 0xa0 || head >= 0xe0) return 1;
  if (head < 0xc0) return 1 + (head & 0x1f);
  const size = TEXTS[head];
  if (size === undefined) return WIDTHS[head] ?? HEADS[head] ?? 1;
  let length = 0;
  for (let i = 1; i <= size; i++) length = length * 256 + bytes[at + i];
  return 1 + size + length;
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
