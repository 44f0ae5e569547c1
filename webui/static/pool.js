// The KV blocks at one moment: { blocks: Map id -> [ref_cnt, cached], held: Map request id -> its block ids in order }.

/** What a folded state knows of them. Nothing is copied: it holds until the state is folded on. */
export function poolOf({ blocks, requests }) {
  const held = new Map();
  for (const [reqId, { block_ids: ids }] of requests) if (ids?.length) held.set(reqId, ids);
  return { blocks, held };
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
