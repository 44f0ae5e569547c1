// Two engines side by side: two frames of the page, and one bar that steps both.
import { postControlOf } from "api";
import { $, setAttr, setText } from "dom";
import { compactAddressOf, Engines } from "engines";
import { remembered } from "remember";

const SIDES = ["left", "right"];

/** Each side is an engine's page in a compact layout; its own buttons still work. */
class Compare {
  constructor() {
    const asked = new URLSearchParams(location.search);
    this.ids = SIDES.map((side) => asked.get(side) ?? "main");
    this.frames = SIDES.map((side) => $(side));
    this.engines = new Engines(() => this.#render());
    this.#on("both-pause", () => this.#control("pause"));
    this.#on("both-resume", () => this.#control("resume"));
    this.#on("both-step", () => this.#press("step"));
    this.#on("both-back", () => this.#press("back"));
    this.#on("both-forward", () => this.#press("forward"));
    addEventListener("keydown", (event) => this.#key(event));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    document.documentElement.dataset.theme = { light: "light", dark: "dark" }[remembered("theme")] ?? dark;
  }

  async start() {
    await this.#try(() => this.engines.load());
    this.ids.forEach((id, i) => {
      setAttr(this.frames[i], "src", compactAddressOf(id));
      setAttr(this.frames[i], "title", this.engines.find(id)?.title ?? id);
    });
  }

  #render() {
    this.ids.forEach((id, i) => {
      const engine = this.engines.find(id);
      setText($(`${SIDES[i]}-title`), engine ? (engine.preset === null ? `main: ${engine.title}` : engine.title) : `${id} has ended`);
    });
  }

  /** Pause and resume are said to the engines, so that both are in the same state whatever each was in. */
  #control(action) {
    this.#try(() => Promise.all(this.ids.map((id) => postControlOf(id, action))));
  }

  /** The others are what the pages' own buttons do. */
  #press(id) {
    for (const frame of this.frames) frame.contentDocument.getElementById(id)?.click();
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const press = { n: "both-step", ArrowRight: "both-forward", ArrowLeft: "both-back", p: "both-pause", r: "both-resume" };
    if (event.key in press) $(press[event.key]).click();
  }

  #on(id, action) {
    $(id).addEventListener("click", action);
  }

  async #try(action) {
    try {
      await action();
      setText($("compare-error"), "");
    } catch (error) {
      setText($("compare-error"), error.message);
    }
    $("compare-error").hidden = !$("compare-error").textContent;
  }
}

new Compare().start();
