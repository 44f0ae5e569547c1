// The look of a request's KV blocks: six tints in three patterns, the same on every page and wherever its row goes.

const TINTS = 6;
const PATTERNS = 3; // plain, lines, dots
const PATTERNED = 8; // px a cell, from which on it has a pattern
export const NUMBERED = 13; // ... and from which on it holds text

/** { tint, pattern } of a request: by its number where its id ends in one, so that neighbours differ. */
export function lookOf(reqId) {
  const number = Number(/(\d{1,9})$/.exec(reqId)?.[1] ?? hash(reqId));
  return { tint: number % TINTS, pattern: Math.floor(number / TINTS) % PATTERNS };
}

function hash(text) {
  let value = 7;
  for (const letter of text) value = (value * 31 + letter.codePointAt(0)) % 1_000_003;
  return value;
}

/** What fills a request's blocks on a canvas; made once a colour set. */
export class Paints {
  /** The fill of a request in cells of `size` px: patterns where they don't blur, pale ones where text goes over them. */
  of(reqId, context, theme, size) {
    if (this.panel !== theme.colours.panel) [this.panel, this.made] = [theme.colours.panel, new Map()];
    const { tint, pattern } = lookOf(reqId);
    const colour = theme.colours[`${size < NUMBERED ? "strong" : "tint"}-${tint}`];
    if (pattern === 0 || size < PATTERNED) return colour;
    const key = `${colour} ${pattern}`;
    if (!this.made.has(key)) this.made.set(key, context.createPattern(tile(colour, pattern, theme), "repeat"));
    return this.made.get(key);
  }
}

function tile(colour, pattern, { colours }) {
  const canvas = Object.assign(document.createElement("canvas"), { width: 6, height: 6 });
  const context = canvas.getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 6, 6);
  context.fillStyle = colours.panel;
  if (pattern === 1) for (let i = 0; i < 6; i += 1) context.fillRect(i, 5 - i, 1, 1);
  else context.fillRect(2, 2, 2, 2);
  return canvas;
}
