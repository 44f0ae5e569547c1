// The dialog of breakpoints: which there are, one more, one less.
import { $, el, resize, setAttr, setText } from "dom";
import { CONDITIONS, breakpointWords } from "gate_words";

/** `change(list)` asks the engine for these breakpoints and throws an Error with its words where it refuses. */
export class Breakpoints {
  constructor(store, change) {
    Object.assign(this, { store, change, list: [] });
    const options = Object.entries(CONDITIONS).map(([on, { words }]) => el("option", { value: on }, words));
    $("breakpoint-on").append(...options);
    $("breakpoint-on").addEventListener("change", () => this.#fields());
    $("breakpoints-open").addEventListener("click", () => this.toggle());
    $("breakpoint-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#add();
    });
    $("breakpoints").addEventListener("close", () => this.#error(""));
    this.#fields();
  }

  toggle() {
    if ($("breakpoints").open) return $("breakpoints").close();
    const live = Array.from(this.store.state.requests).filter(([, request]) => !request.finish_reason);
    $("live-requests").replaceChildren(...live.map(([reqId]) => el("option", { value: reqId })));
    $("breakpoints").showModal();
  }

  render({ breakpoints = [] }) {
    this.list = breakpoints;
    setText($("breakpoints-open"), breakpoints.length ? `breakpoints ${breakpoints.length}` : "breakpoints");
    setAttr($("breakpoints-open"), "data-set", breakpoints.length ? "" : null);
    const lines = resize($("breakpoint-list"), breakpoints.length, (i) => this.#line(i));
    breakpoints.forEach((breakpoint, i) => {
      const words = breakpointWords(breakpoint);
      setText(lines[i].firstElementChild, words);
      setAttr(lines[i].lastElementChild, "aria-label", `remove: ${words}`);
    });
    $("breakpoint-none").hidden = breakpoints.length > 0;
  }

  #line(index) {
    const remove = el("button", { type: "button", class: "small" }, "✕");
    remove.addEventListener("click", () => this.#ask(this.list.filter((_, i) => i !== index)));
    return el("li", {}, el("span"), remove);
  }

  #fields() {
    const { request, value } = CONDITIONS[$("breakpoint-on").value];
    $("breakpoint-request").parentElement.hidden = !request;
    $("breakpoint-request").required = request === "must";
    $("breakpoint-request").placeholder = request === "must" ? "its id" : "any";
    $("breakpoint-value").parentElement.hidden = !value;
    $("breakpoint-value").required = Boolean(value);
  }

  async #add() {
    const on = $("breakpoint-on").value;
    const [request, value] = [$("breakpoint-request"), $("breakpoint-value")];
    for (const field of [request, value]) {
      if (!field.parentElement.hidden && !field.checkValidity()) return this.#error(field.validationMessage);
    }
    const wanted = { on };
    if (CONDITIONS[on].request && request.value) wanted.request = request.value;
    if (CONDITIONS[on].value) wanted.value = value.valueAsNumber;
    await this.#ask([...this.list, wanted]);
  }

  async #ask(list) {
    try {
      await this.change(list);
      this.#error("");
    } catch (error) {
      this.#error(error.message);
    }
  }

  #error(words) {
    setText($("breakpoint-error"), words);
    $("breakpoint-error").hidden = !words;
  }
}
