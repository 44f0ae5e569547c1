// One line about what is pointed at on the token axis.

/** Describe the pointed token, else the pointed row, of an axis as token_axis makes it; "" for neither. */
export function readout(axis, { token, row }, blockSize, glyph) {
  if (token !== null && token < axis.ids.length) return tokenWords(axis, token, blockSize, glyph);
  return row !== null && row < axis.starts.length - 1 ? rowWords(axis, row) : "";
}

function tokenWords(axis, token, blockSize, glyph) {
  const [id, row, slot, logit] = [axis.ids[token], axis.rows[token], axis.slots[token], axis.logits.get(token)];
  const parts = [
    `token ${token} “${glyph(id)}” id ${id}`,
    `row ${row}`,
    `position ${axis.positions[token]}`,
    `slot ${slot} = block ${Math.floor(slot / blockSize)} × ${blockSize} + ${slot % blockSize}`,
  ];
  if (logit !== undefined) parts.push(`logits ${logit}${axis.discard[row] ? ", discarded" : ""}`);
  return parts.join(" · ");
}

function rowWords(axis, row) {
  const [from, to] = axis.starts.slice(row, row + 2);
  const parts = [
    `row ${row} ${axis.reqIds[row]}`,
    `tokens ${from} to ${to - 1}`,
    `positions ${axis.positions[from]} to ${axis.positions[to - 1]}`,
  ];
  if (axis.discard[row]) parts.push("still in prefill: its sample is discarded");
  return parts.join(" · ");
}
