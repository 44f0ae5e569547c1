// The list of presets, the engines that they run on, and the switch in the header between these and the served one.
import { getPresets } from "api";
import { $, el, resize, setAttr, setText } from "dom";
import { addressOf, comparison, Engines, isStarting } from "engines";
import { remember, remembered } from "remember";
import { engineId } from "source";

/** Nothing of it is shown where nothing can be started: in a recording, and side by side. */
export class Presets {
  /** `config` is /api/config's. */
  constructor(config) {
    this.shown = config.preset; // the preset that this page's engine plays, or null
    this.engines = new Engines(() => this.#render());
    this.wanted = null; // the engine that this page has started, to be shown when it is ready
    this.open = remembered("presets") === "open";
    $("presets-open").addEventListener("click", () => this.toggle());
    $("engine-switch").addEventListener("change", (event) => this.#show(event.target.value));
    $("replace").addEventListener("close", () => this.#answered());
    $("presets-panel").hidden = false;
    this.#toggled();
    this.#about();
  }

  async start() {
    try {
      this.list = await getPresets();
      $("presets-list").append(...this.list.map((preset) => this.#item(preset)));
      await this.engines.load();
    } catch (error) {
      this.#error(error.message);
    }
  }

  /** The server says what engines there are now. */
  take(engines) {
    this.engines.take(engines);
  }

  toggle() {
    this.open = !this.open;
    remember("presets", this.open ? "open" : "closed");
    this.#toggled();
  }

  #toggled() {
    $("presets-body").hidden = !this.open;
    setAttr($("presets-open"), "aria-expanded", this.open);
    setText($("presets-open"), this.open ? "hide" : "show");
  }

  /** What one sees on the page of a preset. */
  #about() {
    $("preset-shown").hidden = !this.shown;
    if (!this.shown) return;
    setText($("preset-title"), this.shown.title);
    setText($("preset-paragraph"), this.shown.paragraph);
  }

  #item({ name, title, paragraph }) {
    const button = el("button", { type: "button", class: "preset" }, title);
    button.addEventListener("click", () => this.#play(name));
    return el("li", { "data-preset": name }, button, el("p", {}, paragraph));
  }

  async #play(name, replace = null) {
    const oldest = replace === null ? this.engines.inTheWay : null;
    if (oldest) return this.#ask(name, oldest);
    this.#error("");
    this.#busy(true);
    try {
      this.wanted = await this.engines.start(name, replace);
    } catch (error) {
      this.#error(error.message);
      this.engines.load().catch(() => {});
    }
    this.#busy(this.wanted !== null);
    this.#render();
  }

  /** Two run already: ask whether this one may take the place of the oldest. */
  #ask(name, oldest) {
    this.asked = { name, replace: oldest.id };
    const title = this.list.find((preset) => preset.name === name).title;
    setText($("replace-words"), `No more than two presets run at a time. End “${oldest.title}”, the older one, and start “${title}”?`);
    $("replace").returnValue = "";
    $("replace").showModal();
  }

  #answered() {
    if ($("replace").returnValue === "yes") this.#play(this.asked.name, this.asked.replace);
  }

  #render() {
    const { list, ready } = this.engines;
    const beside = list.filter(({ preset }) => preset !== null);
    setText($("presets-count"), beside.length ? `${beside.length} running, ${this.engines.most} at most` : "");
    const lines = resize($("presets-engines"), beside.length, () => el("li"));
    beside.forEach((engine, i) => this.#line(lines[i], engine));
    this.#switch(ready);
    this.#follow();
    if (list.length && !this.engines.shown) this.#error("This engine has ended. Choose another in the header, or a preset.");
  }

  #line(line, { id, title, status, words, error }) {
    const said = `${id} ${status} ${words} ${error}`;
    if (line.said === said) return;
    line.said = said;
    setAttr(line, "data-status", status);
    const state = { starting: words, playing: words, failed: `did not start: ${error}` }[status] ?? "";
    const nodes = [el("span", { class: "name" }, title)];
    const actions = el("span", { class: "actions" });
    if (state) nodes.push(el("span", { class: isStarting(status) ? "quiet" : "error" }, state));
    if (status === "ready" && id === engineId) nodes.push(el("span", { class: "quiet" }, "shown here"));
    if (status === "ready" && id !== engineId) {
      actions.append(
        this.#button("show", `show ${title}`, () => this.#show(id)),
        this.#button("beside", `show ${title} beside this engine`, () => location.assign(comparison(engineId, id))),
      );
    }
    actions.append(this.#button(status === "failed" ? "dismiss" : "end", `end ${title}`, () => this.#end(id)));
    line.replaceChildren(...nodes, actions);
  }

  #button(text, label, action) {
    const button = el("button", { type: "button", class: "small", "aria-label": label }, text);
    button.addEventListener("click", action);
    return button;
  }

  /** The header has a switch as soon as there is something to switch to. */
  #switch(ready) {
    const known = ready.some(({ id }) => id === engineId);
    const shown = known ? ready : [...ready, { id: engineId, title: "ended" }];
    $("engines").hidden = shown.length < 2;
    const options = resize($("engine-switch"), shown.length, () => el("option"));
    shown.forEach(({ id, title, preset }, i) => {
      setAttr(options[i], "value", id);
      setText(options[i], preset === null ? `main: ${title}` : title);
    });
    $("engine-switch").value = engineId;
    const other = ready.findLast(({ id }) => id !== engineId);
    $("engine-compare").hidden = !known || !other;
    if (other) setAttr($("engine-compare"), "href", comparison(engineId, other.id));
  }

  /** Go to the engine that was started here once it is at its moment; stay where it could not be brought there. */
  #follow() {
    const engine = this.wanted && this.engines.find(this.wanted);
    if (engine && isStarting(engine.status)) return setText($("presets-status"), `${engine.title}: ${engine.words}`);
    if (engine?.status === "ready") return location.assign(addressOf(engine));
    if (engine?.status === "failed") this.#error(`${engine.title} did not start: ${engine.error}`);
    if (this.wanted && (engine || this.engines.list.length)) {
      this.wanted = null;
      this.#busy(false);
    }
    setText($("presets-status"), "");
  }

  #show(id) {
    const engine = this.engines.find(id);
    if (engine) location.assign(addressOf(engine));
  }

  async #end(id) {
    try {
      await this.engines.end(id);
      this.#error("");
      if (id === engineId) location.assign("/");
    } catch (error) {
      this.#error(error.message);
    }
  }

  #busy(busy) {
    for (const button of $("presets-list").querySelectorAll("button")) button.disabled = busy;
    setAttr($("presets-panel"), "aria-busy", busy);
  }

  #error(words) {
    setText($("presets-error"), words);
    $("presets-error").hidden = !words;
  }
}
