// Where each KV block stands on the map: line after line from the top left, in cells as large as the room allows.

const NARROWEST = 4; // px a cell; a larger pool scrolls
const ROUND = 10; // cells a line are a multiple of it, so that the numbers at the left are easy to count from

/** { size, columns, lines, left } for `count` blocks in a box; `left` is the room for the numbers at the left. */
export function gridFor(count, { width, height, widest, left }) {
  let size = Math.floor(widest);
  let columns = columnsFor(count, width - left, size);
  while (size > NARROWEST && Math.ceil(count / columns) * size > height) {
    size -= 1;
    columns = columnsFor(count, width - left, size);
  }
  return { size, columns, lines: Math.ceil(count / columns), left };
}

function columnsFor(count, width, size) {
  const fit = Math.max(1, Math.floor(width / size));
  return Math.min(count, fit > 2 * ROUND ? fit - (fit % ROUND) : fit);
}

/** The top left corner of a block on the whole map. */
export function cornerOf(blockId, { size, columns, left }) {
  return { x: left + (blockId % columns) * size, y: Math.floor(blockId / columns) * size };
}

/** The block at a point of the whole map, null beside it. */
export function blockAt(x, y, { size, columns, left }, count) {
  const column = Math.floor((x - left) / size);
  const blockId = Math.floor(y / size) * columns + column;
  return column >= 0 && column < columns && blockId >= 0 && blockId < count ? blockId : null;
}
