// The source lines of the chosen phase, with this pass's values of the names in them. Nothing here is computed anew.
import { $, el, setAttr, setText } from "dom";
import { tokenize } from "python_tokens";
import { Scope, words } from "template";

/** `sources` is that of /api/config, by phase; undefined in recordings that were made without. */
export class CodePanel {
  constructor(sources) {
    this.sources = sources;
    this.lines = []; // those on the page, each with the names in it
    $("code-copy").addEventListener("click", () => this.#copy());
  }

  /** Show the code of a phase; its values are those of `record`. */
  render(record, phase) {
    const source = this.sources?.[phase] ?? null;
    setText($("code-note"), source ? "" : this.#note(phase));
    $("code-body").hidden = source === null;
    if (source === null) return;
    const fresh = this.shown !== source;
    if (fresh) this.#show(source);
    this.#values(record, phase, source);
    if (fresh) this.#bring(source);
  }

  #note(phase) {
    if (!this.sources) return "The source lines were not recorded: this run was recorded by an older version.";
    if (phase === null) return "Choose a phase above: the lines that made it are shown here.";
    return `The engine found no source lines for ${phase}: its code is not a Python file on that machine.`;
  }

  #show(source) {
    this.shown = source;
    this.lines = [];
    setText($("code-function"), source.function);
    setText($("code-file"), `${source.file}:${source.first_line}`);
    setText($("code-vllm"), source.vllm);
    for (const id of ["code-function", "code-file", "code-vllm"]) setAttr($(id), "title", $(id).textContent);
    $("code-lines").replaceChildren(...this.#lines(source));
    $("code-calls").replaceChildren(...source.calls.map((piece) => this.#call(piece)));
  }

  /** Scroll to the phase's part of the function, with one line above it. */
  #bring({ part }) {
    const first = $("code-lines").querySelector("[data-part]");
    const above = first.previousElementSibling ?? first;
    $("code-scroll").scrollTo(0, part ? above.offsetTop - $("code-lines").offsetTop : 0);
  }

  #call(piece) {
    const lines = el("ol", { class: "code" }, ...this.#lines(piece));
    const place = el("span", { class: "quiet" }, ` ${piece.file}:${piece.first_line}`);
    return el("details", {}, el("summary", {}, piece.function, place), lines);
  }

  #lines({ lines, first_line: first, part }) {
    const tokens = tokenize(lines);
    const indent = Math.min(...lines.filter((line) => line.trim()).map((line) => line.search(/\S/)));
    return tokens.map((line, i) => {
      const number = first + i;
      const inside = !part || (part[0] <= number && number <= part[1]);
      const code = el("code", {}, ...line.map(([kind, text], k) => coloured(kind, k ? text : text.slice(indent))));
      const values = el("span", { class: "values" });
      const names = line.filter(([kind]) => kind === "name").map(([, text]) => text);
      this.lines.push({ values, names: new Set(names) });
      return el("li", { value: number, ...(inside ? { "data-part": "" } : {}) }, number_(number), code, values);
    });
  }

  #values(record, phase, { names }) {
    const scope = record && new Scope(record, phase);
    const shown = new Map();
    for (const [label, path] of Object.entries(names)) {
      const value = scope?.value(path) ?? null;
      if (value !== null) shown.set(label.split(/\W/)[0], `${label} = ${words(value)}`);
    }
    for (const { values, names: inLine } of this.lines) {
      setText(values, [...inLine].flatMap((name) => shown.get(name) ?? []).join("   "));
    }
  }

  async #copy() {
    const text = this.shown.lines.join("\n");
    try {
      await navigator.clipboard.writeText(text);
      setText($("code-copy"), "copied");
    } catch {
      getSelection().selectAllChildren($("code-lines"));
      setText($("code-copy"), "selected");
    }
    setTimeout(() => setText($("code-copy"), "copy"), 1500);
  }
}

function number_(number) {
  return el("span", { class: "number", "aria-hidden": "true" }, String(number));
}

function coloured(kind, text) {
  return kind === "other" || kind === "name" ? text : el("span", { class: `py-${kind}` }, text);
}
