// What the looks of the cells in the batch mean, and how many tokens a cell stands for.
import { Box } from "box";
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
const [SWATCH, GAP] = [22, 16]; // px

/** The legend on one line. */
export class Legend {
  constructor(canvas, theme) {
    Object.assign(this, { canvas, theme });
    this.box = new Box(canvas, () => this.#draw());
  }

  /** Draw it for cells that stand for `perCell` tokens each. */
  show(perCell) {
    const look = `${perCell} ${this.theme.px} ${this.theme.colours.panel}`;
    if (this.look === look) return;
    Object.assign(this, { look, perCell });
    this.#draw();
  }

  #draw() {
    const fit = this.perCell ? fitCanvas(this.canvas, this.box.width, this.box.height) : null;
    if (!fit) return;
    const { context, width, height } = fit;
    const { theme } = this;
    const first = `1 cell: ${this.perCell === 1 ? "a token" : `${this.perCell} tokens`}`;
    const letters = LOOKS.reduce((sum, [, words]) => sum + words.length, first.length);
    // a letter is 0.6 as wide as high
    const room = (width - LOOKS.length * (SWATCH + GAP) - 4) / letters;
    context.font = `${Math.max(0.7 * theme.px, Math.min(0.85 * theme.px, room / 0.61))}px ${theme.font}`;
    context.textBaseline = "middle";
    let x = write(context, first, 4, height, theme);
    for (const [look, words, cells, size] of LOOKS) {
      context.save();
      context.translate(x, 0);
      paintSpan(context, { from: 0, to: cells, look, size, top: 2, tall: height - 4 }, theme);
      context.restore();
      x = write(context, words, x + SWATCH, height, theme);
    }
  }
}

/** Write the words at x; returns where the next ones may begin. */
function write(context, words, x, height, theme) {
  context.fillStyle = theme.colours.quiet;
  context.fillText(words, x, height / 2 + 1);
  return x + context.measureText(words).width + GAP;
}
