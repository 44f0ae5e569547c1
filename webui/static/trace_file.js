// A whole trace file in memory: its sections, its index and its blocks. The format is in tracer/trace_format.py.
import { inflate, readBlock } from "trace_block";

const START = 16; // magic and format version
const HEAD = 16;
const TRAILER = 20;

/** Open the bytes of a complete file. */
export async function openTrace(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const lengthAt = (at) => HEAD + view.getUint32(at + 4);
  const sectionAt = (at) => bytes.subarray(at, at + lengthAt(at));
  const indexAt = Number(view.getBigUint64(bytes.length - TRAILER));
  const index = globalThis.MessagePack.decode(await inflate(sectionAt(indexAt)));
  return new TraceFile(bytes, index, sectionAt(START + lengthAt(START)));
}

class TraceFile {
  constructor(bytes, { blocks, lifetimes }, vocabulary) {
    this.bytes = bytes;
    this.blocks = blocks; // [offset, length, span]
    this.lifetimes = lifetimes; // [request id, [arrival pass, end pass, finish reason]]
    this.packedVocabulary = vocabulary;
  }

  /** [first seq, entries, first pass, passes] of each block. */
  get spans() {
    return this.blocks.map(([, , span]) => span);
  }

  get passes() {
    const [, , first, count] = this.spans.at(-1) ?? [0, 0, 0, 0];
    return first + count;
  }

  vocabulary() {
    return inflate(this.packedVocabulary);
  }

  section(number) {
    const [offset, length] = this.blocks[number];
    return this.bytes.subarray(offset, offset + length);
  }

  /** The record of a pass, or undefined where there is none. */
  async pass(passId) {
    const number = this.spans.findLastIndex(([, , first]) => first <= passId);
    if (number < 0) return undefined;
    const { entries } = await readBlock(this.section(number));
    return entries.find((entry) => entry.kind === "pass" && entry.pass_id === passId);
  }
}
