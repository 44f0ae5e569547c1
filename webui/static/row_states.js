// What happened to each row in one pass, read off the changes that the pass recorded.

/**
 * Return { rows, left }. rows is a Map from row to { kind, from, reqId }: kind is "new", "resumed", "back", "moved",
 * "swapped", "updated", or "held" where the record hasn't come to it; from is the row it had before, if it has another
 * now, and swapped tells that reorder put it there. left lists { row, reqId, why }. `before` holds the rows before the
 * pass.
 */
export function rowStates(record, before) {
  const shadow = before.map((held, row) => held && { origin: row, reqId: held.req_id });
  const left = [];
  for (const phase of record.phases) {
    for (const change of phase.changes ?? []) follow(shadow, left, phase, change);
  }
  const schedule = factsOf(record, "schedule");
  const updated = record.phases.some((phase) => phase.phase === "update_cached");
  const rows = new Map();
  shadow.forEach((held, row) => {
    if (held?.reqId !== undefined) rows.set(row, { ...stateOf(held, row, schedule, updated), reqId: held.reqId });
  });
  return { rows, left };
}

/** The facts of a phase of a record, {} where the phase did not run. */
export function factsOf(record, name) {
  return record?.phases.find((phase) => phase.phase === name)?.facts ?? {};
}

function follow(shadow, left, phase, [head, a, b, c]) {
  if (head === "clear") {
    if (shadow[a]) left.push({ row: a, reqId: shadow[a].reqId, why: leftBecause(phase.phase) });
    shadow[a] = null;
  } else if (head === "move") {
    [shadow[b], shadow[a]] = [shadow[a] && { ...shadow[a], by: "moved" }, null];
  } else if (head === "swap") {
    [shadow[a], shadow[b]] = [
      shadow[b] && { ...shadow[b], by: "swapped" },
      shadow[a] && { ...shadow[a], by: "swapped" },
    ];
  } else if (head === "set" && a === "req_id") {
    b.forEach((row, i) => {
      shadow[row] = { origin: row, reqId: c[i], added: true };
    });
  }
}

function leftBecause(phase) {
  return phase === "remove_finished" ? "finished" : "unscheduled";
}

function stateOf(held, row, schedule, updated) {
  const from = held.origin === row ? null : held.origin;
  if (held.added) {
    const resumed = schedule.scheduled_cached_reqs?.resumed_req_ids?.includes(held.reqId);
    const fresh = schedule.scheduled_new_reqs?.some((request) => request.req_id === held.reqId);
    const kind = resumed ? "resumed" : fresh === false ? "back" : "new";
    return held.by === "swapped" ? { kind, from, swapped: true } : { kind, from };
  }
  if (from !== null) return { kind: held.by ?? "moved", from };
  return { kind: updated ? "updated" : "held", from: null };
}

/** "P" while a row still computes known tokens, "D" when it decodes one new one, "" when it isn't scheduled. */
export function stepOf(row, scheduled) {
  if (!row || !scheduled) return "";
  return scheduled > 1 || row.num_computed_tokens < row.num_prompt_tokens ? "P" : "D";
}
