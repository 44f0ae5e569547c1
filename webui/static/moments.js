// What happened to each KV block in one pass, read off the facts and the block assignments that the pass recorded.
import { factsOf } from "row_states";

/** Letter, what it means, and the colour of its badge, in the order in which a narrow cell prefers them. */
export const MOMENTS = {
  E: { does: "evicted", means: "its cached contents were lost to a new holder", colour: "discarded" },
  H: { does: "hit", means: "found in the prefix cache", colour: "sampled" },
  R: { does: "resumed", means: "given to a request that came back", colour: "prefill" },
  P: { does: "preempted", means: "given up with all others of its request", colour: "decode" },
  "-": { does: "freed", means: "given back by its last holder", colour: "computed" },
  "+": { does: "taken", means: "newly allocated", colour: "prefill" },
};
const ORDER = Object.keys(MOMENTS);

/** Map from block id to letters of MOMENTS. `blocksOf(reqId)` tells what a request held before the pass. */
export function blockMoments(record, blocksOf) {
  const seen = new Map(ORDER.map((letter) => [letter, new Set()]));
  const note = (letter, ids) => ids.forEach((blockId) => seen.get(letter).add(blockId));
  const schedule = factsOf(record, "schedule");
  const hits = schedule.hits ?? {};
  note("E", schedule.evicted ?? []);
  for (const ids of Object.values(hits)) note("H", ids);
  for (const reqId of schedule.preempted_req_ids ?? []) note("P", blocksOf(reqId));
  for (const { reqId, ids, resumed } of takenBy(schedule)) {
    const hit = new Set(Object.hasOwn(hits, reqId) ? hits[reqId] : []);
    note(
      "+",
      ids.filter((blockId) => !hit.has(blockId)),
    );
    if (resumed) note("R", ids);
  }
  for (const { phase, blocks = [] } of record.phases) {
    note(
      phase === "schedule" ? "P" : "-", // the scheduler takes blocks away only by preempting
      blocks.filter(([, refCnt]) => refCnt === 0).map(([blockId]) => blockId),
    );
  }
  return lettersOf(seen);
}

/** The block ids that the pass gave out, by request; those of a resumed one are its whole table. */
function takenBy({ scheduled_new_reqs: fresh = [], scheduled_cached_reqs: cached = {} }) {
  const taken = fresh.map(({ req_id: reqId, block_ids: ids }) => ({ reqId, ids: ids.flat(), resumed: false }));
  (cached.req_ids ?? []).forEach((reqId, i) => {
    const resumed = cached.resumed_req_ids.includes(reqId);
    taken.push({ reqId, ids: cached.new_block_ids[i]?.flat() ?? [], resumed });
  });
  return taken;
}

/** Join the letters of each block. An eviction or a resumption says already that it was taken, P that it was freed. */
function lettersOf(seen) {
  const letters = new Map();
  for (const [letter, ids] of seen) {
    for (const blockId of ids) {
      const before = letters.get(blockId) ?? "";
      const said = letter === "+" ? /[ER]/.test(before) : letter === "-" && before.includes("P");
      if (!said) letters.set(blockId, before + letter);
    }
  }
  return letters;
}
