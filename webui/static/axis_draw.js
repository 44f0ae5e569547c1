// Paints the token axis: a line each for query_start_loc, row, token, position, slot and logits.
import { hatch } from "cells";
import { fitCanvas } from "dom";

const PLAIN = /^[ -~]*$/; // letters of one width
const LABELS = ["query_start_loc", "row", "token", "position", "slot", "logits"];

export const columnWidth = (theme) => Math.round(theme.px * 4);
export const gutterWidth = (theme) => Math.round(theme.px * 9.3);

/**
 * Paint the tokens that can be seen. `view` has left (the scroll in px), theme, blockSize, glyph(id), and the Links of
 * what is pointed at and of what was chosen.
 */
export function drawAxis(canvas, box, axis, view) {
  const fit = fitCanvas(canvas, box.width, box.height);
  if (!fit) return;
  const pen = {
    ...fit,
    ...view,
    column: columnWidth(view.theme),
    gutter: gutterWidth(view.theme),
    line: fit.height / LABELS.length,
  };
  pen.context.textBaseline = "middle";
  if (axis) {
    const first = Math.max(0, Math.floor(pen.left / pen.column));
    const last = Math.min(axis.ids.length - 1, Math.ceil((pen.left + pen.width - pen.gutter) / pen.column));
    for (let token = first; token <= last; token += 1) drawToken(pen, axis, token);
    axis.starts.slice(0, -1).forEach((start, row) => {
      if (start <= last && axis.starts[row + 1] > first) drawSpan(pen, axis, row);
    });
    drawNumber(pen, axis.starts.at(-1), axis.starts.at(-1));
  }
  drawGutter(pen);
}

function xOf(pen, token) {
  return pen.gutter + token * pen.column - pen.left;
}

function write(pen, text, x, line, { colour = "ink", align = "left", bold = false, width = pen.column - 4 } = {}) {
  const { context, theme } = pen;
  if (pen.bold !== bold) {
    pen.bold = bold;
    context.font = `${bold ? "bold " : ""}${theme.px * 0.92}px ${theme.font}`; // takes as long as a word to draw
    pen.letter ??= context.measureText("0").width;
  }
  context.fillStyle = theme.colours[colour];
  context.textAlign = align;
  context.fillText(clip(pen, String(text), width), x, (line + 0.5) * pen.line + 1);
}

/** The text, cut with an ellipsis to fit. The face is monospaced, but a token may hold any script. */
function clip({ context, letter }, text, width) {
  if (text.length * letter <= width && PLAIN.test(text)) return text;
  if (context.measureText(text).width <= width) return text;
  const letters = Array.from(text);
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

function drawToken(pen, axis, token) {
  const { context, theme, pointed, chosen } = pen;
  const [x, row, middle] = [xOf(pen, token), axis.rows[token], xOf(pen, token) + pen.column / 2];
  if (pointed?.token === token || (pointed?.token == null && pointed?.rows.has(row))) {
    context.fillStyle = theme.colours.lit;
    context.fillRect(x, pen.line, pen.column, pen.height - pen.line);
  }
  context.fillStyle = theme.colours[axis.steps[row] === "D" ? "decode-soft" : "prefill-soft"];
  context.fillRect(x + 1, 2 * pen.line + 1, pen.column - 2, pen.line - 2);
  if (pointed?.token === token || chosen?.token === token) frameToken(pen, x);
  write(pen, pen.glyph(axis.ids[token]), middle, 2, { align: "center" });
  write(pen, axis.positions[token], middle, 3, { align: "center", colour: "quiet" });
  drawSlot(pen, x, axis.slots[token]);
  if (axis.logits.has(token)) drawLogit(pen, x, axis.logits.get(token), axis.discard[row]);
}

function frameToken({ context, theme, line, column }, x) {
  context.strokeStyle = theme.colours.ink;
  context.lineWidth = 2;
  context.strokeRect(x + 1.5, 2 * line + 1.5, column - 3, line - 3);
}

/** The slot, inverted where it lies in the block that is lit. */
function drawSlot(pen, x, slot) {
  const { context, theme, line, column } = pen;
  const block = (pen.pointed ?? pen.chosen)?.block ?? null;
  const inside = block !== null && Math.floor(slot / pen.blockSize) === block;
  if (inside) {
    context.fillStyle = theme.colours.ink;
    context.fillRect(x + 1, 4 * line + 1, column - 2, line - 2);
  }
  const look = { align: "center", colour: inside ? "panel" : "quiet", bold: inside };
  write(pen, slot, x + column / 2, 4, look);
}

function drawLogit(pen, x, logit, discarded) {
  const { context, theme } = pen;
  const lit = pen.pointed?.rows.has(logit) || pen.chosen?.rows.has(logit); // logits[i] are those of row i
  const [top, width, height] = [5 * pen.line + 1, pen.column - 4, pen.line - 2];
  context.strokeStyle = theme.colours[discarded ? "discarded" : "sampled"];
  context.lineWidth = lit ? 3 : 1.5;
  if (discarded) hatch(context, x + 2, top, width, height, theme.colours.discarded);
  context.strokeRect(x + 2.5, top + 0.5, width - 1, height - 1);
  if (discarded) {
    context.fillStyle = theme.colours.panel;
    context.fillRect(x + 8, top + 3, pen.column - 16, height - 6);
  }
  write(pen, `${discarded ? "✕" : "▲"} ${logit}`, x + pen.column / 2, 5, { align: "center", bold: true });
}

function drawNumber(pen, start, token) {
  write(pen, start, xOf(pen, token) + 3, 0, { bold: true });
}

/** The boundary in front of a row, its number, and its name over the span, kept in sight while the span is. */
function drawSpan(pen, axis, row) {
  const { context, theme, pointed, chosen } = pen;
  const [x, right] = [xOf(pen, axis.starts[row]), xOf(pen, axis.starts[row + 1])];
  if (pointed?.rows.has(row) || chosen?.rows.has(row)) drawBracket(pen, x, right, pointed?.rows.has(row) ? 3 : 2);
  drawNumber(pen, axis.starts[row], axis.starts[row]);
  context.fillStyle = theme.colours[axis.steps[row] === "D" ? "decode" : "prefill"];
  context.fillRect(x + 1, 2 * pen.line - 3, right - x - 2, 3);
  context.fillStyle = theme.colours["line-strong"];
  context.fillRect(x, 3, 1, pen.height - 6);
  const name = `${row} ${axis.steps[row]}`;
  const room = right - x;
  write(
    pen,
    room > 3 * pen.column ? `row ${name} ${axis.reqIds[row] ?? ""}` : name,
    Math.max(x + 4, Math.min(pen.gutter + 4, right - pen.column)),
    1,
    { width: room - 6 },
  );
}

/** A bar over all of a row's span, from its query_start_loc to the next. */
function drawBracket({ context, theme, line }, x, right, thick) {
  context.fillStyle = theme.colours.ink;
  context.fillRect(x + 1, line - thick, right - x - 2, thick);
}

function drawGutter(pen) {
  const { context, theme } = pen;
  context.fillStyle = theme.colours.panel;
  context.fillRect(0, 0, pen.gutter - 1, pen.height);
  LABELS.forEach((label, line) => write(pen, label, 0, line, { colour: "quiet", width: pen.gutter - 6 }));
}

/** Paint the whole axis in the width of the panel: rows, logits marks, and a frame around what is seen below. */
export function drawOverview(canvas, box, axis, { theme, pointed, chosen, left, seen }) {
  const fit = fitCanvas(canvas, box.width, box.height);
  if (!fit || !axis) return;
  const { context, width, height } = fit;
  const scale = width / axis.ids.length;
  context.font = `${theme.px * 0.85}px ${theme.font}`;
  context.textBaseline = "middle";
  axis.steps.forEach((step, row) => {
    const [x, right] = [axis.starts[row] * scale, axis.starts[row + 1] * scale];
    context.fillStyle = theme.colours[step === "D" ? "decode-soft" : "prefill-soft"];
    context.fillRect(x, 3, right - x, height - 6);
    if (axis.discard[row]) hatch(context, x, height - 8, right - x, 5, theme.colours.discarded);
    if (pointed?.rows.has(row) || chosen?.rows.has(row)) {
      context.fillStyle = theme.colours.ink;
      context.fillRect(x, height - 5, right - x, 2);
    }
    context.fillStyle = theme.colours[step === "D" ? "decode" : "prefill"];
    context.fillRect(x, 3, Math.max(1, Math.min(2, right - x - 1)), height - 6);
    const name = `${row}${step}`;
    context.fillStyle = theme.colours.ink;
    if (right - x > context.measureText(name).width + 6) context.fillText(name, x + 4, height / 2);
  });
  const span = axis.ids.length * columnWidth(theme);
  if (span <= seen) return;
  context.strokeStyle = theme.colours.ink;
  context.lineWidth = 1.5;
  context.strokeRect((left / span) * width + 1, 1, (seen / span) * width - 2, height - 2);
}
