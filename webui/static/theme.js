// Light, dark or the system's choice; large type; and the colours that the canvases draw with.
import { $, setAttr, setText } from "dom";
import { remember, remembered } from "remember";

const THEMES = ["auto", "light", "dark"];
const NAMES = [
  "panel",
  "ink",
  "quiet",
  "line",
  "line-strong",
  "computed",
  "prefill",
  "decode",
  "sampled",
  "discarded",
  "prefill-soft",
  "decode-soft",
  "mark",
  "lit",
  "accent",
  "on-accent",
  "cached",
  ...[0, 1, 2, 3, 4, 5].flatMap((i) => [`tint-${i}`, `strong-${i}`]),
];

/**
 * Owns the look. `colours` maps the names of base.css and kv.css to values; `px` is the size of 1rem and `row` the
 * height of a table's line; all of them change on toggles.
 */
export class Theme {
  constructor(onChange) {
    this.onChange = onChange;
    this.choice = THEMES.includes(remembered("theme")) ? remembered("theme") : "auto";
    this.large = remembered("type") === "large";
    this.system = matchMedia("(prefers-color-scheme: dark)");
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.system.addEventListener("change", () => this.#show());
    addEventListener("resize", () => this.#show());
    $("theme").addEventListener("click", () => this.nextTheme());
    $("type").addEventListener("click", () => this.toggleType());
    this.#show();
  }

  nextTheme() {
    this.choice = THEMES[(THEMES.indexOf(this.choice) + 1) % THEMES.length];
    remember("theme", this.choice);
    this.#show();
  }

  toggleType() {
    this.large = !this.large;
    remember("type", this.large ? "large" : "normal");
    this.#show();
  }

  /** Whether rows may slide. */
  get moves() {
    return !this.still.matches;
  }

  #show() {
    const dark = this.choice === "dark" || (this.choice === "auto" && this.system.matches);
    const root = document.documentElement;
    setAttr(root, "data-theme", dark ? "dark" : "light");
    setAttr(root, "data-type", this.large ? "large" : "normal");
    setText($("theme"), `theme: ${this.choice}`);
    setAttr($("type"), "aria-pressed", this.large);
    const style = getComputedStyle(root);
    this.colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.px = parseFloat(style.fontSize);
    this.row = Math.round(1.55 * this.px);
    root.style.setProperty("--row", `${this.row}px`);
    this.font = getComputedStyle(document.body).fontFamily;
    this.onChange();
  }
}
