// What the looks of the cells in the batch mean, and how many tokens a cell stands for.
import { paintSpan } from "cells";
import { fitCanvas } from "dom";

// look, words, cells, px a cell
const LOOKS = [
  ["computed", "computed", 2, 8],
  ["prefill", "P: prefill now", 2, 8],
  ["decode", "D: decode now", 1, 10],
  ["todo", "to prefill", 1, 10],
  ["sampled", "sampled", 1, 10],
];

/** Draw the legend on one line. */
export function drawLegend(canvas, perCell, theme) {
  const fit = fitCanvas(canvas);
  if (!fit) return;
  const { context, height } = fit;
  context.font = `${theme.px * 0.85}px ${theme.font}`;
  context.textBaseline = "middle";
  let x = write(context, `1 cell: ${perCell === 1 ? "a token" : `${perCell} tokens`}`, 4, height, theme);
  for (const [look, words, cells, size] of LOOKS) {
    context.save();
    context.translate(x, 0);
    paintSpan(context, { from: 0, to: cells, look, size, top: 2, tall: height - 4 }, theme);
    context.restore();
    x = write(context, words, x + 22, height, theme);
  }
}

/** Write the words at x; returns where the next ones may begin. */
function write(context, words, x, height, theme) {
  context.fillStyle = theme.colours.quiet;
  context.fillText(words, x, height / 2 + 1);
  return x + context.measureText(words).width + 16;
}
