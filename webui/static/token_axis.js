// The flat token axis of one pass: all rows end to end, as _prepare_inputs laid them out.
import { columnWidth, drawAxis, drawOverview, gutterWidth } from "axis_draw";
import { Box } from "box";
import { $, beforePaint, setAttr, setText } from "dom";
import { hover } from "hover";
import { links } from "links";
import { readout } from "readout";
import { historyWords, rowHistory } from "row_history";
import { selection } from "selection";
import { TableTwin } from "table_twin";

/** Draws the prepare_inputs facts of the shown pass. Everything in `axis` is as recorded. */
export class TokenAxis {
  constructor(store, theme, vocab, blockSize) {
    Object.assign(this, { store, theme, vocab, blockSize });
    this.redraw = beforePaint(() => this.#draw());
    this.box = new Box($("axis-scroll"), this.redraw);
    this.small = new Box($("axis-overview"), () => this.#drawOverview());
    this.twin = new TableTwin("axis", ["axis-scroll", "axis-overview"], theme, store);
    this.glyph = (id) => vocab.glyph(id);
    this.#listen();
  }

  #listen() {
    const [canvas, overview] = [$("axis"), $("axis-overview")];
    canvas.addEventListener("pointermove", (event) => hover.set({ token: this.#tokenAt(event.offsetX) }));
    canvas.addEventListener("pointerleave", () => hover.set());
    canvas.addEventListener("click", () => this.#choose());
    const jump = (event) => {
      if (event.buttons) this.#centre((event.offsetX / this.small.width) * this.count);
    };
    for (const name of ["pointerdown", "pointermove"]) overview.addEventListener(name, jump);
    $("axis-scroll").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.#choose()) event.preventDefault();
    });
    links.onChange(() => {
      this.redraw();
      this.#readout();
    });
    links.onBring((link) => this.#bring(link));
  }

  get axis() {
    return links.axis;
  }

  get count() {
    return this.axis?.ids.length ?? 0;
  }

  render() {
    const { axis, count } = this;
    setText($("axis-count"), axis ? `${count} tokens of ${axis.starts.length - 1} rows` : this.#whyEmpty());
    const width = `${gutterWidth(this.theme) + (count + 0.6) * columnWidth(this.theme)}px`;
    if (this.trackWidth !== width) $("axis-track").style.width = this.trackWidth = width;
    this.#draw();
    this.#readout();
    this.#table();
  }

  /** Point at the token `by` places from the one that is pointed at. */
  chooseToken(by) {
    if (!this.count) return;
    const { token = null, row = 0 } = links.lit ?? {};
    const at = token ?? this.axis.starts[row ?? 0] - Math.max(0, by);
    const next = Math.max(0, Math.min(this.count - 1, at + by));
    hover.bring({ token: next });
  }

  /** Bring a token into view, or the first one of a row. */
  #bring({ token, row }) {
    const first = token ?? this.axis?.starts[row];
    if (first === undefined || first >= this.count) return;
    const column = columnWidth(this.theme);
    const [left, width] = [first * column - this.box.left, this.box.width - gutterWidth(this.theme)];
    if (left < 0 || left + column > width)
      this.box.scrollTo({ left: token === null ? first * column : first * column - width / 2 });
    this.twin.bring(first);
  }

  #whyEmpty() {
    if (!this.store.shown()) return "no pass yet";
    return this.store.phase === null ? "no tokens in this pass" : `not made yet at ${this.store.phase}; Esc shows the whole pass`;
  }

  /** Choose the token that is pointed at, or let it go. Returns whether there is one. */
  #choose() {
    const { token = null, reqIds, position } = links.pointed ?? {};
    if (token !== null) selection.toggle(reqIds[0], position);
    return token !== null;
  }

  #centre(token) {
    const seen = this.box.width - gutterWidth(this.theme);
    this.box.scrollTo({ left: token * columnWidth(this.theme) - seen / 2 });
  }

  #tokenAt(x) {
    const token = Math.floor((x - gutterWidth(this.theme) + this.box.left) / columnWidth(this.theme));
    return x > gutterWidth(this.theme) && token >= 0 && token < this.count ? token : null;
  }

  #view() {
    const { theme, blockSize, glyph } = this;
    return { left: this.box.left, theme, blockSize, glyph, pointed: links.pointed, chosen: links.chosen };
  }

  #draw() {
    const { width, height } = this.box;
    if (this.canvasWidth !== width) $("axis").style.width = `${(this.canvasWidth = width)}px`;
    drawAxis($("axis"), { width, height }, this.axis, this.#view());
    this.#drawOverview();
  }

  #drawOverview() {
    const seen = this.box.width - gutterWidth(this.theme);
    drawOverview($("axis-overview"), this.small, this.axis, { ...this.#view(), seen });
  }

  #readout() {
    const { lit } = links;
    const rows = lit?.reqIds.length === 1 ? historyWords(rowHistory(this.store, lit.reqIds[0])) : "";
    const words = lit ? readout(this.axis, lit, { blockSize: this.blockSize, glyph: this.glyph, rows }) : "";
    setText($("readout"), words);
    setAttr($("readout"), "title", words || null);
  }

  /** The same tokens as a table. */
  #table() {
    const { axis, glyph } = this;
    this.twin.show(this.count, (i) => [
      i,
      axis.rows[i],
      axis.reqIds[axis.rows[i]] ?? "",
      glyph(axis.ids[i]),
      axis.positions[i],
      axis.slots[i],
      axis.logits.has(i) ? `${axis.logits.get(i)}${axis.discard[axis.rows[i]] ? " discarded" : ""}` : "",
    ]);
  }
}
