// The table that stands for a drawing: always for screen readers, and for everyone who asks for it.
import { $, setAttr } from "dom";
import { LongTable } from "long_table";

const AROUND = 100; // lines; hidden from the eye it has them in the document, and no more
const REST_MS = 150; // hidden from the eye it is rewritten when nothing has changed for so long
const RUSH_MS = 1000; // ... and this often while passes rush by

/** Of the panel parts NAME-table and NAME-table-toggle; `drawn` are the ids of what is hidden in its favour. */
export class TableTwin {
  constructor(name, drawn, theme, store) {
    Object.assign(this, { drawn, store, seen: false, filledAt: 0, timer: null });
    this.scroll = $(`${name}-table`);
    this.toggle = $(`${name}-table-toggle`);
    this.node = this.scroll.querySelector("table");
    this.lines = new LongTable(this.scroll, this.node, { theme, around: AROUND });
    this.toggle.addEventListener("click", () => this.#toggle());
  }

  /** Show `count` lines, soon; `textsOf(line)` gives their cells. */
  show(count, textsOf) {
    this.wanted = [count, textsOf];
    setAttr(this.node, "aria-busy", true);
    const { still } = this.store;
    const wait = still ? (this.seen ? 0 : REST_MS) : this.filledAt + RUSH_MS - performance.now();
    if (wait <= 0) return this.#fill();
    if (still) clearTimeout(this.timer);
    else if (this.timer) return;
    this.timer = setTimeout(() => this.#fill(), wait);
  }

  /** Bring a line into view. */
  bring(line) {
    this.lines.window.show(line);
  }

  #fill() {
    clearTimeout(this.timer);
    [this.timer, this.filledAt] = [null, performance.now()];
    this.lines.show(...this.wanted);
    setAttr(this.node, "aria-busy", null);
  }

  #toggle() {
    this.seen = !this.scroll.classList.toggle("hidden-visually");
    setAttr(this.toggle, "aria-pressed", this.seen);
    setAttr(this.scroll, "tabindex", this.seen ? 0 : -1);
    for (const id of this.drawn) $(id).hidden = this.seen;
    if (this.wanted) this.#fill();
  }
}
