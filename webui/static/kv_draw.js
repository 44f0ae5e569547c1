// Paints the KV map: who holds each block, how often, whether its contents can be found again, and what just happened.
import { fitCanvas } from "dom";
import { cornerOf } from "kv_grid";
import { MOMENTS } from "moments";
import { NUMBERED } from "tints";

const BADGED = 18; // px a cell, from which on a letter stands beside the row, not over it
const DOTTED = 10; // ... and below which a letter is made of dots
const DIMMED = 0.35;
const UNKNOWN = [0, 0];
// Letters of three by five dots for cells that are too small for the face.
const DOTS = {
  E: "111100110100111",
  H: "101101111101101",
  R: "110101110101101",
  P: "110101110100100",
  "-": "000000111000000",
  "+": "000010111010000",
};

const innerOf = (size) => size - (size > BADGED ? 2 : 1);

/**
 * Paint the lines that can be seen. `map` has pool, owners, grid, count and blockSize; `view` has top (the scroll in
 * px), theme, paints, lit (a Link, or null), moments (id -> { letters, alpha }) and rowOf(reqId).
 */
export function drawMap(canvas, box, map, view) {
  const fit = fitCanvas(canvas, box.width, box.height);
  if (!fit) return;
  const { size, columns, lines } = map.grid;
  const pen = { ...fit, ...map, ...view, inner: innerOf(size) };
  pen.context.textBaseline = "middle";
  pen.context.lineWidth = 1;
  const first = Math.floor(view.top / size);
  const last = Math.min(lines - 1, Math.floor((view.top + fit.height) / size));
  drawNumbers(pen, first, last);
  drawFloor(pen, first, last);
  const [from, end] = [first * columns, Math.min(map.count, (last + 1) * columns)];
  const draw = (blockId) => from <= blockId && blockId < end && drawBlock(pen, blockId);
  draw(0);
  for (const blockId of map.pool.blocks.keys()) draw(blockId); // all others are plain free ones
  if (view.lit?.block && !map.pool.blocks.has(view.lit.block)) draw(view.lit.block);
}

/** The id of a line's first block, on as many lines as there is room for. */
function drawNumbers({ context, grid, theme, top }, first, last) {
  const every = Math.ceil((theme.px * 1.05) / grid.size);
  context.font = `${theme.px * 0.8}px ${theme.font}`;
  context.textAlign = "right";
  context.fillStyle = theme.colours.quiet;
  for (let line = Math.ceil(first / every) * every; line <= last; line += every) {
    const middle = line * grid.size - top + Math.max(grid.size, theme.px * 0.9) / 2;
    context.fillText(line * grid.columns, grid.left - 5, middle);
  }
}

/** All cells as free ones, by one pattern: most are, and a canvas is slow at thousands of small boxes. */
function drawFloor({ context, grid, count, theme, top, lit }, first, last) {
  const { size, columns, left } = grid;
  context.save();
  context.translate(left, first * size - top);
  context.globalAlpha = dims(lit) ? DIMMED : 1;
  context.fillStyle = floorOf(context, theme, size);
  const whole = Math.min(last + 1, Math.floor(count / columns)) - first; // lines that are full
  context.fillRect(0, 0, columns * size, whole * size);
  if (first + whole <= last) context.fillRect(0, whole * size, (count % columns) * size, size);
  context.restore();
}

const dims = (lit) => Boolean(lit?.blocks.size);

function floorOf(context, theme, size) {
  const key = `${size} ${theme.colours.mark}`;
  if (floor.key !== key) {
    const tile = Object.assign(document.createElement("canvas"), { width: size, height: size });
    drawFree(tile.getContext("2d"), theme, innerOf(size));
    floor = { key, pattern: context.createPattern(tile, "repeat") };
  }
  return floor.pattern;
}

let floor = {};

function drawFree(context, { colours }, inner) {
  context.fillStyle = colours.mark;
  context.strokeStyle = colours.line;
  if (inner < 9) context.fillRect(0, 0, inner, inner);
  else context.strokeRect(0.5, 0.5, inner - 1, inner - 1);
}

function drawBlock(pen, blockId) {
  const { context, grid, top, lit, moments, theme } = pen;
  const [refCnt, cached] = pen.pool.blocks.get(blockId) ?? UNKNOWN;
  const moment = moments.get(blockId);
  const shines = lit?.blocks.has(blockId) ?? false;
  if (!refCnt && !cached && !moment && !shines && blockId !== 0) return;
  const corner = cornerOf(blockId, grid);
  const cell = { x: corner.x, y: corner.y - top, size: pen.inner, blockId };
  context.globalAlpha = !shines && dims(lit) ? DIMMED : 1;
  if (blockId === 0) drawNull(pen, cell);
  else if (refCnt) drawHeld(pen, cell, pen.owners.get(blockId) ?? [], refCnt);
  else if (cached) drawCached(pen, cell);
  if (cached && cell.size >= 5) drawFindable(pen, cell);
  if (moment) drawMoment(pen, cell, moment);
  context.globalAlpha = 1;
  if (!shines) return;
  frame(context, cell, theme.colours.ink, lit.block === blockId ? 2.5 : cell.size < 9 ? 1 : 1.5);
  if (lit.block === blockId && lit.slot !== null) drawSlot(pen, cell, lit.slot % pen.blockSize);
}

/** A wedge at the top of a cell, above the place of one slot among those of the block. */
function drawSlot({ context, theme, blockSize }, { x, y, size }, offset) {
  const half = Math.max(2, size / 6);
  const middle = x + Math.min(size - half, Math.max(half, ((offset + 0.5) / blockSize) * size));
  context.fillStyle = theme.colours.ink;
  context.beginPath();
  context.moveTo(middle - half, y);
  context.lineTo(middle + half, y);
  context.lineTo(middle, y + 2 * half);
  context.fill();
}

/** Block 0 is never handed out. */
function drawNull({ context, theme }, { x, y, size }) {
  context.strokeStyle = theme.colours["line-strong"];
  context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
  context.beginPath();
  context.moveTo(x + 1, y + 1);
  context.lineTo(x + size - 1, y + size - 1);
  context.moveTo(x + size - 1, y + 1);
  context.lineTo(x + 1, y + size - 1);
  context.stroke();
}

function drawCached({ context, theme }, { x, y, size }) {
  context.fillStyle = theme.colours.cached;
  context.fillRect(x, y, size, size);
}

function drawHeld(pen, cell, owners, refCnt) {
  const { context, theme } = pen;
  const { x, y, size } = cell;
  const fill = ([reqId]) => pen.paints.of(reqId, context, theme, size);
  context.fillStyle = owners.length ? fill(owners[0]) : theme.colours.computed;
  context.fillRect(x, y, size, size);
  if (owners.length > 1) {
    context.fillStyle = fill(owners[1]);
    context.beginPath();
    context.moveTo(x + size, y);
    context.lineTo(x + size, y + size);
    context.lineTo(x, y + size);
    context.fill();
  }
  if (refCnt > 1) frame(context, cell, theme.colours.quiet, size < NUMBERED ? 1 : 1.5);
  if (size < NUMBERED) return;
  const row = owners.length ? pen.rowOf(owners[0][0]) : null;
  label(pen, cell, refCnt > 1 ? `×${refCnt}` : (row ?? "-"));
}

/** A bar at the foot: the prefix cache can find what is in the block. */
function drawFindable({ context, theme }, { x, y, size }) {
  const tall = Math.max(1, Math.round(size / 9));
  context.fillStyle = theme.colours.quiet;
  context.fillRect(x + 1, y + size - tall - (size > 8 ? 1 : 0), size - 2, tall);
}

/** The text in a cell: in its middle, or at the right where a letter stands before it. */
function label({ context, theme, moments }, { x, y, size, blockId }, text) {
  const beside = size >= BADGED && moments.has(blockId);
  const pixels = Math.min(theme.px, size * (String(text).length > 2 ? 0.42 : 0.52));
  context.font = `${pixels}px ${theme.font}`;
  context.textAlign = beside ? "right" : "center";
  context.fillStyle = theme.colours.ink;
  if (beside) context.fillText(text, x + size - 2, y + size * 0.68, size - 3);
  else context.fillText(text, x + size / 2, y + size / 2 + 0.5, size - 2);
}

function drawMoment({ context, theme }, { x, y, size }, { letters, alpha }) {
  const [first] = letters;
  const ink = first === "P" || first === "-" ? "#15191e" : theme.colours["on-accent"];
  context.globalAlpha *= alpha;
  context.fillStyle = theme.colours[MOMENTS[first].colour];
  if (size >= BADGED) {
    const tall = size * 0.5;
    const wide = Math.min(size, tall * (0.5 + 0.5 * letters.length));
    context.fillRect(x, y, wide, tall);
    write(context, theme, letters, { x: x + wide / 2, y: y + tall / 2 + 0.5, pixels: tall * 0.85, ink, wide });
  } else if (size >= DOTTED) {
    context.fillRect(x, y, size, size);
    write(context, theme, first, { x: x + size / 2, y: y + size / 2 + 0.5, pixels: size * 0.9, ink });
  } else {
    context.fillStyle = theme.colours.ink; // so small, a colour would pass for a holder's
    context.fillRect(x, y, size, size);
    if (size >= 5) dots(context, first, x + Math.floor((size - 3) / 2), y + Math.floor((size - 5) / 2), theme);
  }
}

function write(context, theme, text, { x, y, pixels, ink, wide }) {
  context.font = `bold ${pixels}px ${theme.font}`;
  context.textAlign = "center";
  context.fillStyle = ink;
  context.fillText(text, x, y, wide);
}

function dots(context, letter, x, y, theme) {
  context.fillStyle = theme.colours.panel;
  Array.from(DOTS[letter], (dot, i) => dot === "1" && context.fillRect(x + (i % 3), y + Math.floor(i / 3), 1, 1));
}

function frame(context, { x, y, size }, colour, width) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
  context.lineWidth = 1;
}
