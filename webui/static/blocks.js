// A row's KV block ids as text: ascending neighbours joined, and the block that is pointed at marked.
import { el } from "dom";

/** [1, 2, 3, 9] is [[1, 3], [9, 9]]. */
export function runsOf(blocks) {
  const runs = [];
  for (const block of blocks) {
    if (runs.length && runs.at(-1)[1] + 1 === block) runs.at(-1)[1] = block;
    else runs.push([block, block]);
  }
  return runs;
}

/** Show the runs in a cell; `block` is marked where it is among them. */
export function showBlocks(cell, runs, block) {
  const text = blockWords(runs);
  const key = `${text} ${block}`;
  if (cell.shown === key) return;
  cell.shown = key;
  const at = block === null ? -1 : runs.findIndex(([from, to]) => from <= block && block <= to);
  if (at < 0) cell.textContent = text;
  else
    cell.replaceChildren(
      blockWords(runs.slice(0, at)),
      " ",
      marked(runs[at], block),
      " ",
      blockWords(runs.slice(at + 1)),
    );
}

/** [[1, 3], [9, 9]] is 1–3 9. */
export function blockWords(runs) {
  return runs.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(" ");
}

function marked(run, block) {
  const around = [
    run[0] < block ? `${blockWords([[run[0], block - 1]])} ` : "",
    block < run[1] ? ` ${blockWords([[block + 1, run[1]]])}` : "",
  ];
  return el("span", {}, around[0], el("mark", {}, block), around[1]);
}
