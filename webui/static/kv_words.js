// One KV block in words: for the line under the map and for the table that stands for it.
import { MOMENTS } from "moments";

const NO_BLOCK = [0, 0];

/** All that is known of a block. `map` has pool, owners, blockSize, moments, rows and requests (Map by id). */
export function describe(map, blockId) {
  const [refCnt, cached] = map.pool.blocks.get(blockId) ?? NO_BLOCK;
  const owners = map.owners.get(blockId) ?? [];
  const letters = map.moments.get(blockId) ?? "";
  return {
    blockId,
    slots: `${blockId * map.blockSize}–${(blockId + 1) * map.blockSize - 1}`,
    owners: owners.map(([reqId]) => ({ reqId, row: map.rowOf(reqId) })),
    refCnt,
    cached: Boolean(cached),
    state: blockId === 0 ? "null block" : refCnt ? "held" : cached ? "free, findable" : "free",
    ...(owners.length ? contents(map, owners[0]) : { positions: "", tokens: [] }),
    happened: Array.from(letters, (letter) => `${letter} ${MOMENTS[letter].does}`).join(", "),
  };
}

/** The positions whose keys and values are in a request's block number `index` after the shown pass, and their tokens. */
function contents({ blockSize, rows, rowOf, scheduled, requests }, [reqId, index]) {
  const row = rows[rowOf(reqId)];
  const request = requests.get(reqId);
  const known = row?.token_ids ?? [...(request?.prompt_token_ids ?? []), ...(request?.output_token_ids ?? [])];
  const from = index * blockSize;
  const written = row ? row.num_computed_tokens + (scheduled[reqId] ?? 0) : known.length;
  const to = Math.min(from + blockSize, written);
  return { positions: to > from ? `${from}–${to - 1}` : "", tokens: known.slice(from, Math.max(from, to)) };
}

/** The line for a block that is pointed at. */
export function blockLine(block, text) {
  if (block.blockId === 0) return "block 0 · the null block: never handed out, unused block-table entries point at it";
  const parts = [`block ${block.blockId}`, `slots ${block.slots}`];
  for (const { reqId, row } of block.owners.slice(0, 4)) parts.push(row === null ? `${reqId}, no row` : `row ${row} ${reqId}`);
  if (block.owners.length > 4) parts.push(`${block.owners.length - 4} more`);
  if (block.positions) parts.push(`positions ${block.positions}`);
  else if (block.refCnt) parts.push("nothing written yet");
  parts.push(block.refCnt ? `ref_cnt ${block.refCnt}` : "free");
  if (block.cached) parts.push(block.refCnt ? "findable" : "findable in the prefix cache");
  if (block.happened) parts.push(block.happened);
  if (block.tokens.length) parts.push(`“${text(block.tokens)}”`);
  return parts.join(" · ");
}

/** The cells of a block's line in the table. */
export function blockCells({ blockId, state, owners, refCnt, cached, positions, happened }) {
  const rows = owners.map(({ row }) => row ?? "-").join(" ");
  return [
    blockId,
    state,
    rows,
    owners.map(({ reqId }) => reqId).join(" "),
    refCnt,
    cached ? "yes" : "no",
    positions,
    happened,
  ];
}
