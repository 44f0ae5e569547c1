// Draws the tokens of one row as cells: computed, scheduled in this pass, still to prefill, just sampled.
import { fitCanvas } from "dom";

const NARROWEST = 3; // px a cell
const WIDEST = 9;

/** The scale on which the longest row fits: { perCell, size }, perCell tokens a cell of size px. */
export function scaleFor(longest, width) {
  const tokens = Math.max(16, Math.ceil(longest / 16) * 16); // grows in steps, so that the rows rest
  let perCell = 1;
  while ((tokens / perCell) * NARROWEST > width) perCell *= 2;
  return { perCell, size: Math.min(WIDEST, Math.max(NARROWEST, Math.floor((width * perCell) / tokens))) };
}

/** The spans of a row's tokens as [from, to, look]. */
export function spansOf({ computed, scheduled, known, sampled, step }) {
  const given = known - sampled; // tokens that were known before this pass
  const now = Math.min(computed + scheduled, given);
  return [
    [0, computed, "computed"],
    [computed, now, step === "D" ? "decode" : "prefill"],
    [now, given, "todo"],
    [given, known, "sampled"],
  ].filter(([from, to]) => to > from);
}

/** Paint the spans, and a tick at each KV block's end. What happens now is 4 px wide at least, so that it is seen. */
export function drawCells(canvas, box, spans, { perCell, size }, { blockSize, theme }) {
  const fit = fitCanvas(canvas, box.width, box.height);
  if (!fit) return;
  const { context, height } = fit;
  let end = 0;
  for (const [from, to, look] of spans) {
    const start = Math.max(end, from / perCell);
    end = Math.max(to / perCell, look === "computed" ? 0 : start + 4 / size);
    paintSpan(context, { from: start, to: end, look, size, top: 1, tall: height - 6 }, theme);
  }
  if ((blockSize / perCell) * size < 6) return;
  context.fillStyle = theme.colours["line-strong"];
  for (let token = blockSize; token <= (spans.at(-1)?.[1] ?? 0); token += blockSize) {
    context.fillRect(Math.round((token / perCell) * size) - 1, height - 4, 1, 4);
  }
}

/** Paint the cells `from`..`to` in one look. */
export function paintSpan(context, { from, to, look, size, top, tall }, { colours }) {
  const gap = size > 4 ? 1 : 0;
  const left = from * size;
  const width = Math.max(2, (to - from) * size - gap);
  if (look === "todo") {
    context.strokeStyle = colours["line-strong"];
    context.strokeRect(left + 0.5, top + 0.5, width - 1, tall - 1);
  } else {
    context.fillStyle = colours[look];
    context.fillRect(left, top, width, tall);
  }
  if (look === "prefill") hatch(context, left, top, width, tall, colours.panel);
  context.fillStyle = colours.panel;
  if (look === "sampled") context.fillRect(left + width / 2 - 1, top + tall / 2 - 1, 2, 2);
  for (let cell = Math.ceil(from + 1); gap && cell < to; cell += 1)
    context.fillRect(cell * size - 1, top + 1, 1, tall - 2);
}

/** Diagonal lines over a box. */
export function hatch(context, x, y, width, height, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 5) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}
