// The KV blocks at one moment: { blocks: Map id -> [ref_cnt, cached], held: Map request id -> its block ids in order }.

/** A copy of what the folded state knows. The lists in it are replaced, never changed, so they can be shared. */
export const poolOf = (state) => clonePool(livePool(state));

/** The same without a copy of the blocks: for a look at once. */
export function livePool({ blocks, requests }) {
  const held = new Map();
  for (const [reqId, { block_ids: ids }] of requests) if (ids?.length) held.set(reqId, ids);
  return { blocks, held };
}

export const clonePool = ({ blocks, held }) => ({ blocks: new Map(blocks), held: new Map(held) });

/** Apply what a phase or an event assigns to the blocks and to their holders, in place. */
export function foldPool(pool, { blocks = [], requests = [] }) {
  for (const [blockId, refCnt, cached] of blocks) pool.blocks.set(blockId, [refCnt, cached]);
  for (const [reqId, { block_ids: ids }] of requests) {
    if (ids?.length) pool.held.set(reqId, ids);
    else if (ids) pool.held.delete(reqId);
  }
}

/** The part of an event that foldPool needs, or null where it has none. */
export function poolPart({ blocks = [], requests = [] }) {
  const owners = requests.flatMap(([reqId, { block_ids: ids }]) => (ids ? [[reqId, { block_ids: ids }]] : []));
  return blocks.length || owners.length ? { blocks, requests: owners } : null;
}

/** Map from block id to [[request id, index of the block in its table], ...]. */
export function ownersOf({ held }) {
  const owners = new Map();
  for (const [reqId, ids] of held) {
    ids.forEach((blockId, index) => {
      const known = owners.get(blockId);
      if (known) known.push([reqId, index]);
      else owners.set(blockId, [[reqId, index]]);
    });
  }
  return owners;
}

/** How many of `numBlocks` are held, free but still findable, and plain free. Block 0 is the null block: none of them. */
export function countPool({ blocks }, numBlocks) {
  let [used, cached] = [0, 0];
  for (const [refCnt, findable] of blocks.values()) {
    if (refCnt) used += 1;
    else if (findable) cached += 1;
  }
  return { used, cached, free: numBlocks - 1 - used - cached };
}
