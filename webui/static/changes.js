// What changed in the batch in the shown phase, or in the whole pass where none is chosen, by recorded assignments.
import { words } from "template";

const SHORT = 12; // values of a list

/**
 * The cells that differ from before: a Map from "row field" to { old, new }, undefined for a row that is empty. Null
 * where what was before is not known.
 */
export function changedCells(store) {
  return once(store, "cells", () => {
    const before = store.before()?.rows;
    if (!before) return null;
    const after = store.rows();
    const cells = new Map();
    for (const row of touchedRows(shownPhases(store))) {
      for (const field of new Set([...Object.keys(before[row] ?? {}), ...Object.keys(after[row] ?? {})])) {
        const cell = { old: before[row]?.[field], new: after[row]?.[field] };
        if (!same(cell.old, cell.new)) cells.set(`${row} ${field}`, cell);
      }
    }
    return cells;
  });
}

/** Each assignment in its order, as { phase, row, text }: "row 3 num_computed_tokens 16 → 17". */
export function changeLines(store) {
  return once(store, "lines", () => {
    const before = store.before()?.rows;
    if (!before) return [];
    const rows = before.slice();
    return shownPhases(store).flatMap(({ phase, changes = [] }) => linesOf(phase, changes, rows));
  });
}

/** Old and new in words: a list that grew shows what it grew by. */
export function cellWords(field, { old, new: now }) {
  const lists = Array.isArray(old) && Array.isArray(now);
  if (lists && old.length < now.length && same(old, now.slice(0, old.length)))
    return `${field}[${old.length}:] ${words(now.slice(old.length), SHORT)} appended`;
  return `${field} ${valueWords(old)} → ${valueWords(now)}`;
}

function linesOf(phase, changes, rows) {
  const lines = [];
  let entered = null; // the line of a row that is being filled
  for (const change of changes) {
    for (const line of apply(change, rows)) {
      if (line.enters) entered = { phase, row: line.row, text: `row ${line.row} empty → ${line.now}` };
      if (line.enters) lines.push(entered);
      else if (entered?.row === line.row && line.old === undefined) {
        entered.text += `${entered.text.includes(":") ? "," : ":"} ${line.field} ${valueWords(line.now)}`;
      } else lines.push({ phase, row: line.row, text: line.text ?? cellText(line) });
    }
  }
  return lines;
}

const cellText = ({ row, field, old, now }) => `row ${row} ${cellWords(field, { old, new: now })}`;

/** Make one assignment in `rows`, which is a list of its own but holds others' rows. Yields what it changed. */
function* apply([head, a, b, c, d], rows) {
  if (head === "clear") {
    yield { row: a, text: `row ${a} ${rows[a]?.req_id ?? "empty"} → empty` };
    rows[a] = null;
  } else if (head === "move") {
    yield { row: b, text: `row ${a} → row ${b}: ${rows[a]?.req_id} moved` };
    [rows[b], rows[a]] = [rows[a], null];
  } else if (head === "swap") {
    yield { row: a, text: `row ${a} ⇄ row ${b}: ${rows[a]?.req_id} and ${rows[b]?.req_id} changed places` };
    [rows[a], rows[b]] = [rows[b], rows[a]];
  } else {
    for (const [i, row] of b.entries()) {
      const old = rows[row]?.[a];
      const now = head === "put" ? [...(old ?? []).slice(0, c[i]), ...d[i]] : c[i];
      const enters = rows[row] === null;
      rows[row] = { ...rows[row], [a]: now };
      yield { row, field: a, old, now, enters };
    }
  }
}

function shownPhases(store) {
  const phases = store.record()?.phases ?? [];
  return store.phase === null ? phases : phases.filter(({ phase }) => phase === store.phase);
}

function touchedRows(phases) {
  const rows = new Set();
  for (const [head, a, b] of phases.flatMap(({ changes = [] }) => changes)) {
    if (head === "set" || head === "put") b.forEach((row) => rows.add(row));
    else rows.add(a);
    if (head === "move" || head === "swap") rows.add(b);
  }
  return [...rows].sort((a, b) => a - b);
}

function same(one, other) {
  if (!Array.isArray(one) || !Array.isArray(other)) return one === other;
  return one.length === other.length && one.every((value, i) => value === other[i]);
}

function valueWords(value) {
  return value === undefined ? "empty" : words(value, SHORT);
}

/** What `make` gives for this version of the store. */
function once(store, name, make) {
  const known = KNOWN.get(store);
  if (known?.version !== store.version) KNOWN.set(store, { version: store.version });
  const kept = KNOWN.get(store);
  if (!(name in kept)) kept[name] = make();
  return kept[name];
}

const KNOWN = new WeakMap();
