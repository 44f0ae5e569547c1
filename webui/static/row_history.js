// Which rows a request has had: followed through the recorded moves of the passes that are at hand.

export const OUT = "out"; // it was in no row

/**
 * The rows that a request has had up to the shown moment, oldest first, such as [7, 3, 2], with OUT where it had none in
 * between. Empty where it never had one.
 */
export function rowHistory(store, reqId) {
  if (known.store !== store || known.version !== store.version)
    known = { store, version: store.version, rows: new Map() };
  if (!known.rows.has(reqId)) known.rows.set(reqId, rowsOf(store, reqId));
  return known.rows.get(reqId);
}

let known = {}; // of the moment that is shown

function rowsOf(store, reqId) {
  const shown = store.shown();
  if (!shown) return [];
  const at = [];
  for (const segment of segmentsUpTo(store, shown)) {
    const held = segment.states[0].state.rows.findIndex((row) => row?.req_id === reqId);
    note(at, held < 0 ? OUT : held);
    for (const { record } of segment.passes) {
      if (record.pass_id > shown.record.pass_id) break;
      const { phases } = record === shown.record ? store.record() : record;
      for (const phase of phases) for (const change of phase.changes ?? []) note(at, follow(at.at(-1), change, reqId));
    }
  }
  return at[0] === OUT ? at.slice(1) : at;
}

/** "row 7 → 3 → 2", with the last few. */
export function historyWords(rows, most = 8) {
  if (!rows.length) return "";
  const shown = rows.slice(-most);
  return `row ${rows.length > most ? "… → " : ""}${shown.join(" → ")}`;
}

function segmentsUpTo(store, shown) {
  const before = store.tail.filter(({ passes }) => passes[0]?.record.pass_id <= shown.record.pass_id);
  return before.includes(shown.segment) ? before : [shown.segment];
}

function note(at, row) {
  if (at.at(-1) !== row) at.push(row);
}

function follow(row, [head, a, b, c], reqId) {
  if (head === "set" && a === "req_id") {
    const added = c.indexOf(reqId);
    if (added >= 0) return b[added];
    return b.includes(row) ? OUT : row;
  }
  if (head === "clear" && a === row) return OUT;
  if (head === "move" && a === row) return b;
  if (head === "swap" && (a === row || b === row)) return a === row ? b : a;
  return row;
}
