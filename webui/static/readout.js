// One line about what is lit: a token, a row, or a request without a row.

/** Describe a Link on an axis as axis_data makes it, or null; `rows` tells which rows the request has had. */
export function readout(axis, link, { blockSize, glyph, rows }) {
  if (link.position !== null) return tokenWords(axis, link, { blockSize, glyph, rows });
  if (axis && link.row !== null && link.row < axis.starts.length - 1) return rowWords(axis, link, rows);
  if (link.reqIds.length !== 1) return "";
  const held = link.blocks.size ? `${link.blocks.size} blocks` : "no blocks";
  return [rows || "no row yet", link.reqIds[0], held].join(" · ");
}

function tokenWords(axis, { token, row, position, slot, reqIds }, { blockSize, glyph, rows }) {
  const parts =
    token === null ? ["not in this pass"] : [`token ${token} “${glyph(axis.ids[token])}” id ${axis.ids[token]}`];
  parts.push(row === null ? reqIds[0] : `row ${row}`, `position ${position}`);
  if (slot !== null)
    parts.push(`slot ${slot} = block ${Math.floor(slot / blockSize)} × ${blockSize} + ${slot % blockSize}`);
  const logit = token === null ? undefined : axis.logits.get(token);
  if (logit !== undefined) parts.push(`logits ${logit}${axis.discard[row] ? ", discarded" : ""}`);
  if (rows.includes("→")) parts.push(rows);
  return parts.join(" · ");
}

function rowWords(axis, { row, reqIds }, rows) {
  const [from, to] = axis.starts.slice(row, row + 2);
  const parts = [
    `row ${row} ${reqIds[0]}`,
    `tokens ${from} to ${to - 1}`,
    `positions ${axis.positions[from]} to ${axis.positions[to - 1]}`,
  ];
  if (axis.discard[row]) parts.push("still in prefill: its sample is discarded");
  if (rows.includes("→")) parts.push(rows);
  return parts.join(" · ");
}
