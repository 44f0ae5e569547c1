// Rows that leave are seen leaving: a line that slides out of the batch. A fixed few nodes are used again and again.
import { $, el, setText } from "dom";

const GHOSTS = 12;
const LEAVE_MS = 650;

/** Shows departures over the rows of the grid. */
export class Ghosts {
  constructor() {
    this.nodes = Array.from({ length: GHOSTS }, () => $("ghosts").appendChild(el("div", { class: "ghost" })));
    this.next = 0;
  }

  /** Let the request that was in a row leave; `top` and `height` are those of the row, in px. */
  leave({ reqId, why }, top, height) {
    const node = this.nodes[(this.next = (this.next + 1) % GHOSTS)];
    setText(node, `${reqId ?? "a request"} left: ${why}`);
    Object.assign(node.style, { top: `${top}px`, height: `${height}px`, lineHeight: `${height}px` });
    node.animate(
      [
        { opacity: 0.95, transform: "none" },
        { opacity: 0.9, transform: "none", offset: 0.45 },
        { opacity: 0, transform: "translateX(40%)" },
      ],
      { duration: LEAVE_MS, easing: "ease-in" },
    );
  }
}
