// Charts over passes. Plotly is loaded when the panel is first opened, and draws at most five times a second.
import { CHARTS, figureOf, seriesOf } from "chart_figure";
import { PassWindow } from "chart_window";
import { $, el, fillTable, resize, setAttr, setText } from "dom";
import { late } from "late";
import { remember, remembered } from "remember";

const EVERY_MS = 200;
const SHARE = 8; // drawing takes no more than one part in so many of the page's time
const TABLE_ROWS = 100; // passes up to the shown one
const CONFIG = { displayModeBar: false, doubleClick: "reset" };

/** `goTo(passId)` is called with the pass that is clicked; `near` is as PassWindow has it. */
export class Charts {
  constructor(store, theme, { near, goTo }) {
    Object.assign(this, { store, theme, near, goTo });
    this.open = remembered("charts") === "open";
    this.large = false;
    this.pointed = null; // the pass under the pointer
    const chosen = remembered("chart");
    const options = Object.entries(CHARTS).map(([value, { title }]) => el("option", { value }, title));
    $("charts-which").append(...options);
    if (Object.hasOwn(CHARTS, chosen)) $("charts-which").value = chosen;
    this.#listen();
  }

  #listen() {
    $("charts-open").addEventListener("click", () => this.toggle());
    $("charts-large").addEventListener("click", () => this.#toggleLarge());
    $("charts-table-toggle").addEventListener("click", () => this.#toggleTable());
    $("charts-which").addEventListener("change", (event) => {
      remember("chart", event.target.value);
      this.#drawNow();
    });
    new ResizeObserver(() => this.#drawNow()).observe($("charts-plot"));
  }

  /** Open or close the panel, and keep it so. */
  toggle() {
    this.open = !this.open;
    if (this.large) this.#toggleLarge();
    remember("charts", this.open ? "open" : "closed");
    this.#drawNow();
  }

  render() {
    this.#showOpen();
    if (!this.open) return;
    const wait = Math.max(EVERY_MS, SHARE * (this.cost ?? 0)) - (performance.now() - (this.drawnAt ?? -Infinity));
    if (wait > 0) this.waiting ??= setTimeout(() => this.#draw(), wait);
    else this.#draw();
  }

  /** Draw at once what someone has asked for. */
  #drawNow() {
    this.drawnAt = -Infinity;
    this.render();
  }

  #showOpen() {
    const { open, large } = this;
    setAttr($("charts-panel"), "data-open", open ? "" : null);
    setAttr($("charts-panel"), "data-large", large ? "" : null);
    for (const id of ["charts-body", "charts-table-toggle", "charts-large"]) $(id).hidden = !open;
    $("charts-which").hidden = !open || large;
    setText($("charts-open"), open ? "hide" : "show");
    setAttr($("charts-open"), "aria-expanded", open);
    setText($("charts-large"), large ? "smaller" : "all");
    setAttr($("charts-large"), "aria-pressed", large);
  }

  #toggleLarge() {
    this.large = !this.large;
    $("charts-panel").style.top = this.large ? `${document.querySelector("main").getBoundingClientRect().top}px` : "";
    this.#drawNow();
  }

  /** The names of the charts that are drawn. */
  get names() {
    return this.large ? Object.keys(CHARTS) : [$("charts-which").value];
  }

  #draw() {
    clearTimeout(this.waiting);
    this.waiting = null;
    if (!this.open) return;
    const shown = this.store.shown()?.record;
    this.shown = shown && !shown.partial ? shown.pass_id : (shown?.pass_id ?? 0) - 1;
    this.window ??= new PassWindow(this.store, this.near, () => this.render());
    this.passes = this.window.passes(this.shown < 0 ? null : this.shown);
    this.drawnAt = performance.now();
    this.#words(); // its width is not the plot's
    this.#table();
    this.#plot();
  }

  async #plot() {
    const plot = $("charts-plot");
    const [width, height] = [plot.clientWidth, plot.clientHeight];
    const { colours, px } = this.theme;
    const { names, passes, shown } = this;
    const key = [names, passes[0]?.pass, passes.at(-1)?.pass, shown, width, height, colours.panel, px].join(" ");
    if (!width || !height || this.drawn === key) return;
    this.drawn = key;
    try {
      const Plotly = await this.#plotly();
      const begun = performance.now();
      const { data, layout } = figureOf(names, passes, { shown, theme: this.theme });
      await Plotly.react(plot, data, { ...layout, width, height }, CONFIG);
      this.cost = performance.now() - begun;
      if (!this.listens) this.#hear(plot);
    } catch (error) {
      this.drawn = null;
      setText($("charts-words"), error.message);
    }
  }

  async #plotly() {
    // The policy of the page allows no styles made by scripts: timeline.css has those that are needed.
    if (!$("plotly.js-style-global")) {
      document.head.append(el("template", { id: "plotly.js-style-global", class: "no-inline-styles" }));
    }
    return late("Plotly");
  }

  #hear(plot) {
    this.listens = true;
    plot.on("plotly_click", ({ points }) => this.goTo(points[0].x));
    plot.on("plotly_hover", ({ points }) => this.#point(points[0].x));
    plot.on("plotly_unhover", () => this.#point(null));
  }

  #point(pass) {
    this.pointed = pass;
    this.#words();
  }

  /** The legend, with the numbers of the pass that is pointed at, else of the shown one. */
  #words() {
    const [first, last] = [this.passes[0]?.pass, this.passes.at(-1)?.pass];
    const pass = this.pointed ?? this.shown;
    const summary = this.passes.find((candidate) => candidate.pass === pass);
    setText($("charts-words"), this.passes.length ? `pass ${pass} of ${first} to ${last}` : "no pass yet");
    const lists = resize($("charts-legend"), this.names.length, () => el("ul"));
    this.names.forEach((name, i) => {
      const series = seriesOf(name);
      setAttr(lists[i], "data-many", series.length > 5 ? "" : null);
      const lines = resize(lists[i], series.length, () => el("li", {}, el("i"), el("span"), el("b")));
      series.forEach((one, k) => fillLine(lines[k], one, summary));
    });
  }

  #toggleTable() {
    const shown = $("charts-table").classList.toggle("hidden-visually") === false;
    setAttr($("charts-table-toggle"), "aria-pressed", shown);
    setAttr($("charts-table"), "tabindex", shown ? 0 : -1);
    $("charts-drawing").hidden = shown;
    this.#drawNow();
  }

  #table() {
    const names = this.names.flatMap((name) => seriesOf(name).map(([series]) => series));
    const end = this.passes.findIndex(({ pass }) => pass === this.shown) + 1 || this.passes.length;
    const rows = this.passes.slice(Math.max(0, end - TABLE_ROWS), end).reverse();
    const head = $("charts-table").querySelector("thead");
    fillTable(head, [["pass", ...names]]);
    const lines = rows.map((summary) => [summary.pass, ...names.map((name) => numberOf(summary[name]))]);
    fillTable($("charts-table").querySelector("tbody"), lines);
  }
}

function fillLine(line, [name, colour, look], summary) {
  const [swatch, label, value] = line.children;
  setAttr(swatch, "data-look", look);
  swatch.style.setProperty("--swatch", `var(--${colour})`);
  setText(label, name);
  setText(value, summary ? numberOf(summary[name]) : "");
}

/** Whole numbers as they are, times in ms with three digits; null is what was not recorded. */
function numberOf(value) {
  if (value === null) return "not recorded";
  return Number.isInteger(value) ? value : value.toFixed(3);
}
