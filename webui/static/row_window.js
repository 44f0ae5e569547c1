// Of a long table only those lines are in the document that can be seen, and some before and after them.
import { Box } from "box";

/** `first` and `end` are the lines to be there; `changed()` is called when scrolling or a new size asks for others. */
export class RowWindow {
  constructor(scroll, table, { theme, around, changed }) {
    Object.assign(this, { table, theme, around, changed, count: 0, first: 0, end: 0 });
    this.box = new Box(scroll, () => {
      this.#look();
      this.changed();
    });
  }

  /** The height of a line in px. The header of the table is as high. */
  get height() {
    return this.theme.row;
  }

  /** Set how many lines there are. */
  fit(count) {
    this.count = count;
    this.#look();
  }

  /** The lines that can be seen, as [first, end]. */
  get seen() {
    const first = Math.max(0, Math.floor(this.box.top / this.height) - 1);
    return [first, Math.min(this.count, first + Math.ceil(this.box.height / this.height) + 2)];
  }

  /** Bring a line into view. */
  show(line) {
    const { box, height } = this;
    const [above, below] = [line * height, (line + 2) * height - box.height];
    if (box.top > above) box.scrollTo({ top: above });
    else if (box.top < below) box.scrollTo({ top: below });
  }

  /** Keep the lines until half of those around are used up, so that not each pixel asks for others. */
  #look() {
    const [from, to] = this.seen;
    const half = this.around / 2;
    const fits = this.first <= Math.max(0, from - half) && this.end >= Math.min(this.count, to + half);
    if (!fits || this.end > this.count) {
      this.end = Math.min(this.count, to + this.around);
      // A table that has become shorter ends above what was scrolled to.
      this.first = Math.max(0, Math.min(from - this.around, this.end));
    }
    const margins = `${this.first * this.height} ${(this.count - this.end) * this.height}`;
    if (this.margins === margins) return;
    this.margins = margins;
    this.table.style.marginTop = `${this.first * this.height}px`;
    this.table.style.marginBottom = `${(this.count - this.end) * this.height}px`;
  }
}
