// A table of texts with any number of lines, such as stands for a canvas.
import { el, resize, setAttr, setText } from "dom";
import { RowWindow } from "row_window";

/**
 * `around` lines before and after those that can be seen are in the document as well. `dress(tr, line)` is called for
 * each that is, also by light().
 */
export class LongTable {
  constructor(scroll, table, { theme, around, dress = () => {} }) {
    Object.assign(this, { table, dress });
    this.columns = table.tHead.rows[0].cells.length;
    this.window = new RowWindow(scroll, table, { theme, around, changed: () => this.#fill() });
  }

  /** Dress the lines anew. */
  light() {
    const { first } = this.window;
    Array.from(this.table.tBodies[0].rows, (tr, i) => this.dress(tr, first + i));
  }

  /** Show `count` lines; `textsOf(line)` gives their cells. */
  show(count, textsOf) {
    this.textsOf = textsOf;
    this.window.fit(count);
    setAttr(this.table, "aria-rowcount", count + 1);
    this.#fill();
  }

  #fill() {
    const { first, end } = this.window;
    const lines = resize(this.table.tBodies[0], end - first, () => el("tr", {}, ...this.#cells()));
    for (let line = first; line < end; line += 1) {
      const { cells } = lines[line - first];
      this.textsOf(line).forEach((text, k) => setText(cells[k], text));
      setAttr(lines[line - first], "aria-rowindex", line + 2);
      this.dress(lines[line - first], line);
    }
  }

  #cells() {
    return Array.from({ length: this.columns }, () => el("td"));
  }
}
