// The timeline of the shown pass: lanes, the two calls that cross them, and what is parked, at the times recorded.
import { Box } from "box";
import { $, el, fillTable, resize, setAttr, setText } from "dom";
import { LANES, axisOf, lanesOf, wordsOf } from "lanes";
import { duration } from "phases";
import { remember, remembered } from "remember";

const EVERY_MS = 200; // while passes rush by
const OPEN_FROM = 50; // rem of the window's height; in a lower one it is closed until it is asked for
const LABEL_REM = 3; // a narrower bar has no words
const TICK_REM = 5;
const CLOSEST = 1e-4; // of the axis, the smallest part that one can zoom to
const WHOLE = [0, 1];

/** `choose(name)` is called with the phase whose bar is clicked, or null where it was chosen already. */
export class Timeline {
  constructor(store, theme, choose) {
    Object.assign(this, { store, theme, choose });
    this.track = $("timeline-track");
    this.stretched = remembered("timeline-scale") !== "linear";
    this.choice = remembered("timeline");
    this.view = WHOLE; // the part of the axis that is seen
    $("timeline-names").append(...LANES.map((name) => el("li", {}, name)), el("li", { class: "quiet" }));
    this.#listen();
    this.box = new Box(this.track, () => this.#draw());
  }

  #listen() {
    $("timeline-open").addEventListener("click", () => this.toggle());
    $("timeline-table-toggle").addEventListener("click", () => this.#toggleTable());
    $("timeline-scale").addEventListener("click", () => this.#toggleScale());
    $("timeline-in").addEventListener("click", () => this.#zoom(0.5, this.#centre()));
    $("timeline-out").addEventListener("click", () => this.#zoom(2, this.#centre()));
    this.track.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.track.addEventListener("pointermove", (event) => this.#drag(event));
    this.track.addEventListener("click", (event) => this.#click(event.target.closest("button")));
  }

  get open() {
    return this.choice ? this.choice === "open" : innerHeight >= OPEN_FROM * this.theme.px;
  }

  /** Open or close the panel, and keep it so. */
  toggle() {
    this.choice = this.open ? "closed" : "open";
    remember("timeline", this.choice);
    this.drawnAt = 0;
    this.render();
  }

  render() {
    const now = performance.now();
    if (!this.store.still && now - (this.drawnAt ?? 0) < EVERY_MS) return;
    this.drawnAt = now;
    const record = this.store.shown()?.record ?? null;
    this.lanes = record && lanesOf(record);
    this.#showOpen();
    setText($("timeline-words"), record ? wordsOf(record, this.lanes, this.#waited(record)) : "");
    setAttr($("timeline-words"), "title", $("timeline-words").textContent);
    if (this.seen !== this.store.phase) this.#bringIntoView((this.seen = this.store.phase));
    this.#draw();
    this.#table();
  }

  /** For how many ns the logits of a held pass have been parked by now. */
  #waited({ time }) {
    return Math.max(0, Date.now() * 1e6 - (time * 1e9 + (this.lanes.parked?.start ?? 0)));
  }

  #showOpen() {
    const controls = ["timeline-body", "timeline-scale", "timeline-in", "timeline-out", "timeline-table-toggle"];
    for (const id of controls) $(id).hidden = !this.open;
    setAttr($("timeline-open"), "aria-expanded", this.open);
    setText($("timeline-open"), this.open ? "hide" : "show");
    setAttr($("timeline-scale"), "aria-pressed", !this.stretched);
    setText($("timeline-names").lastElementChild, this.stretched ? "log2(1+µs)" : "to scale");
    $("timeline-in").disabled = this.view[1] - this.view[0] <= CLOSEST;
    $("timeline-out").disabled = this.view === WHOLE;
  }

  #draw() {
    const { width } = this.box;
    if (!this.open || !this.lanes || !width) return;
    const { bars, calls } = this.lanes;
    this.axis = axisOf(this.lanes, this.stretched);
    const [from, to] = this.view;
    const place = (ns) => (this.axis.at(ns) - from) / (to - from);
    const nodes = resize($("timeline-bars"), bars.length, () => el("button", { type: "button", tabindex: -1 }));
    bars.forEach((bar, i) => this.#bar(nodes[i], bar, place, width));
    const ends = calls.flatMap(({ start, end }) => [
      ["down", start],
      ["up", end],
    ]);
    const links = resize($("timeline-links"), ends.length, () => el("i"));
    ends.forEach(([way, ns], i) => {
      setAttr(links[i], "class", way);
      links[i].style.left = `${100 * place(ns)}%`;
    });
    this.#ticks(place, width);
  }

  #bar(node, { name, phase, lane, look, start, end }, place, width) {
    const [left, right] = [place(start), end === null ? 1 : place(end)];
    const took = end === null ? "" : duration(end - start);
    const room = ((Math.min(1, right) - Math.max(0, left)) * width) / this.theme.px;
    const words = `${name} ${took}`;
    const label = look === "call" && lane === "runner" ? `in ${words}` : words;
    setText(node, room < LABEL_REM ? "" : room > 0.62 * label.length ? label : name);
    setAttr(node, "title", `${lane}, ${words}, from ${duration(start)}`);
    setAttr(node, "aria-label", node.title);
    setAttr(node, "data-name", name);
    setAttr(node, "data-phase", phase);
    setAttr(node, "data-lane", LANES.indexOf(lane));
    setAttr(node, "data-look", look);
    setAttr(node, "data-open", end === null ? "" : null);
    setAttr(node, "aria-pressed", phase === this.store.phase && look !== "park");
    setAttr(node, "data-later", this.#isLater(start) ? "" : null);
    // A bar that begins before the view is cut there, so that its words are seen.
    node.style.left = `${100 * Math.max(left, -0.001)}%`;
    node.style.width = `${100 * Math.max(0, Math.min(right, 1.001) - Math.max(left, -0.001))}%`;
    node.hidden = right < 0 || left > 1;
  }

  /** Whether something begins only after the shown phase has ended. */
  #isLater(start) {
    const shown = this.#chosen();
    return shown !== null && start >= shown.end;
  }

  #chosen() {
    const { store } = this;
    return store.shown()?.record.phases.find(({ phase }) => phase === store.phase) ?? null;
  }

  #ticks(place, width) {
    const gap = TICK_REM * this.theme.px;
    const ticks = [];
    for (const ns of this.stretched ? this.axis.edges : this.#round(width / gap)) {
      const x = place(ns) * width;
      if (x >= 0 && x < width - 0.8 * gap && !(x - ticks.at(-1)?.x < gap)) ticks.push({ ns, x });
    }
    const nodes = resize($("timeline-ticks"), ticks.length, () => el("span"));
    ticks.forEach(({ ns, x }, i) => {
      setText(nodes[i], ns ? duration(ns) : 0);
      nodes[i].style.left = `${x}px`;
    });
  }

  /** Round times in the view of the axis that is to scale, at most `most` of them. */
  #round(most) {
    const whole = 1 / this.axis.at(1);
    const [from, to] = this.view.map((share) => share * whole);
    const least = (to - from) / most;
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((times) => times * power).find((candidate) => candidate >= least);
    const first = Math.ceil(from / step);
    return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, i) => (first + i) * step);
  }

  #click(bar) {
    if (!bar) return;
    const name = bar.dataset.phase;
    this.choose(this.store.phase === name ? null : name);
  }

  #toggleScale() {
    this.stretched = !this.stretched;
    remember("timeline-scale", this.stretched ? "stretched" : "linear");
    this.view = WHOLE;
    this.drawnAt = 0;
    this.render();
  }

  #wheel(event) {
    event.preventDefault();
    const [from, to] = this.view;
    const { left, width } = this.track.getBoundingClientRect();
    this.#zoom(Math.exp(event.deltaY / 400), from + ((event.clientX - left) / width) * (to - from));
  }

  #drag(event) {
    if (!event.buttons) return;
    const [from, to] = this.view;
    const by = (-event.movementX / this.track.clientWidth) * (to - from);
    this.#show(from + by, to + by);
  }

  /** Let the view be `factor` times as wide, with the same point of the axis under `centre`. */
  #zoom(factor, centre) {
    const [from, to] = this.view;
    const span = Math.max(CLOSEST, Math.min(1, (to - from) * factor));
    const start = centre - ((centre - from) / (to - from)) * span;
    this.#show(start, start + span);
  }

  #show(from, to) {
    const span = to - from;
    const start = Math.max(0, Math.min(1 - span, from));
    this.view = span >= 1 ? WHOLE : [start, start + span];
    this.#showOpen();
    this.#draw();
  }

  /** The middle of the chosen phase, else of the view. */
  #centre() {
    const phase = this.#chosen();
    const [start, end] = phase ? [this.axis.at(phase.start), this.axis.at(phase.end)] : this.view;
    return (start + end) / 2;
  }

  #bringIntoView() {
    const phase = this.#chosen();
    if (!phase || !this.lanes || this.view === WHOLE) return;
    const axis = axisOf(this.lanes, this.stretched);
    const [from, to] = this.view;
    if (axis.at(phase.start) >= from && axis.at(phase.end) <= to) return;
    const start = (axis.at(phase.start) + axis.at(phase.end) - (to - from)) / 2;
    this.#show(start, start + to - from);
  }

  #toggleTable() {
    const shown = $("timeline-table").classList.toggle("hidden-visually") === false;
    setAttr($("timeline-table-toggle"), "aria-pressed", shown);
    setAttr($("timeline-table"), "tabindex", shown ? 0 : -1);
    $("timeline-lanes").hidden = shown;
  }

  /** The same as a table, in µs with all the digits that were recorded. */
  #table() {
    if (!this.lanes) return;
    const micro = (ns) => (ns / 1e3).toFixed(3);
    const rows = this.lanes.bars.map(({ name, lane, look, start, end }) => [
      lane,
      look === "call" ? `${name}, the call` : name,
      micro(start),
      end === null ? "" : micro(end),
      end === null ? "still" : micro(end - start),
    ]);
    fillTable($("timeline-table").querySelector("tbody"), rows);
  }
}
