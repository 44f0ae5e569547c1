// The shown phase in four tabs: its explanation, its code, the facts it recorded, and what it changed in the batch.
import { address } from "address";
import { changedCells, changeLines } from "changes";
import { CodePanel } from "code_panel";
import { $, el, resize, setAttr, setText } from "dom";
import { duration } from "phases";
import { factsOf } from "row_states";
import { Tabs } from "tabs";
import { words } from "template";

const SHORT = 40; // values of a list before "…", until it is clicked
const MOST_CHANGES = 300;
const EVERY_MS = 400; // while passes rush by, so that it can be read

/** `choose(phase)` is called with a phase that is clicked here. */
export class Detail {
  constructor(store, explanations, config, choose) {
    Object.assign(this, { store, explanations, choose, phases: config.phases });
    this.code = new CodePanel(config.sources);
    this.open = new Set(); // names of the facts that are shown whole
    this.renderedAt = -EVERY_MS;
    this.tabs = new Tabs($("detail-tabs"), () => this.#render());
    const tab = () => (this.tabs.chosen === this.tabs.first ? null : this.tabs.chosen);
    address.register("tab", { read: tab, write: (name) => this.tabs.choose(name) });
    $("detail-wide").addEventListener("click", () => this.toggleWide());
    $("chips").addEventListener("dblclick", (event) => this.#openCode(event.target.closest("[data-phase]")));
  }

  /** Give the panel more of the page's width, or less again. */
  toggleWide() {
    const wide = $("detail-wide").getAttribute("aria-pressed") !== "true";
    setAttr($("detail-wide"), "aria-pressed", wide);
    document.querySelector("main").toggleAttribute("data-wide", wide);
  }

  render() {
    if (!this.store.still && performance.now() - this.renderedAt < EVERY_MS) return;
    this.renderedAt = performance.now();
    this.#render();
  }

  #render() {
    const { store } = this;
    const record = store.shown()?.record;
    const phase = record?.phases.find((candidate) => candidate.phase === store.phase);
    setText($("detail-title"), store.phase ?? (record ? `Pass ${record.pass_id}` : "This pass"));
    setText($("detail-time"), timeOf(record, phase));
    const show = {
      explanation: () => this.#explanation(record),
      code: () => this.code.render(record, store.phase),
      facts: () => this.#facts(store.phase === null ? summaryOf(record) : (phase?.facts ?? {})),
      changes: () => this.#changes(record, phase),
    };
    show[this.tabs.chosen]();
  }

  #openCode(chip) {
    if (!chip) return;
    this.choose(chip.dataset.phase);
    this.tabs.choose("code");
  }

  #explanation(record) {
    const { phase } = this.store;
    const told = this.explanations.of(phase);
    const here = record && told ? this.explanations.here(record, phase) : "";
    setText($("detail-does"), told ? told.does : this.#introduction(record));
    setText($("detail-here"), here);
    setText($("detail-why"), told?.why ?? "");
    for (const id of ["detail-here", "detail-why"]) $(id).hidden = !told;
    this.#story(phase === null && record ? record : null);
  }

  #introduction(record) {
    if (!record) return "Type a prompt and send it, or send a burst: each pass of the engine will be shown here.";
    if (!this.explanations.of(this.phases[0])) {
      return "Explanations were not recorded: this run was recorded by an older version.";
    }
    return "What each phase did in this pass, in short. Choose one for the whole, and the batch as it was at its end.";
  }

  /** The first sentence of each phase that ran, where no phase is chosen. */
  #story(record) {
    const told = record?.phases.filter(({ phase }) => this.explanations.of(phase)) ?? [];
    const lines = resize($("detail-story"), told.length, () => this.#storyLine());
    told.forEach(({ phase }, i) => {
      setText(lines[i].name, phase);
      setText(lines[i].text, this.explanations.short(record, phase));
    });
  }

  #storyLine() {
    const [name, text] = [el("button", { type: "button" }), el("span")];
    name.addEventListener("click", () => this.choose(name.textContent));
    return Object.assign(el("li", {}, name, " ", text), { name, text });
  }

  #facts(facts) {
    const names = Object.keys(facts);
    const lines = resize($("facts").tBodies[0], names.length, () => this.#line());
    names.forEach((name, i) => {
      const [label, value] = [lines[i].label, lines[i].value];
      setText(label, name);
      setText(value, words(facts[name], this.open.has(name) ? Infinity : SHORT));
      setAttr(lines[i], "data-short", label.textContent.length + value.textContent.length < 34 ? "" : null);
      setAttr(value, "aria-expanded", this.open.has(name));
    });
  }

  #line() {
    const label = el("span", { class: "name" });
    const value = el("button", { type: "button", class: "value", title: "show all or less" });
    value.addEventListener("click", () => {
      const name = label.textContent;
      if (!this.open.delete(name)) this.open.add(name);
      this.#render();
    });
    return Object.assign(el("tr", {}, el("td", {}, label, value)), { label, value });
  }

  #changes(record, phase) {
    const { store } = this;
    const lines = changeLines(store);
    setText($("changes-count"), countWords(changedCells(store), lines, record, store.phase, phase));
    const shown = lines.slice(0, MOST_CHANGES);
    const items = resize($("changes"), shown.length, () => {
      const [name, text] = [el("span", { class: "quiet" }), el("span")];
      return Object.assign(el("li", {}, name, text), { name, text });
    });
    shown.forEach((line, i) => {
      setText(items[i].name, store.phase === null && line.phase !== shown[i - 1]?.phase ? line.phase : "");
      setText(items[i].text, line.text);
    });
  }
}

function countWords(cells, lines, record, name, phase) {
  if (!record) return "No pass yet.";
  if (name !== null && !phase) return `${name} did not run in this pass, so it changed nothing.`;
  const where = name === null ? "this pass" : name;
  if (!lines.length) return `Nothing in the batch changed in ${where}.`;
  const rows = new Set(Array.from(cells.keys(), (key) => key.split(" ")[0])).size;
  const more = lines.length > MOST_CHANGES ? ` The first ${MOST_CHANGES} of ${lines.length} assignments:` : "";
  return `${cells.size} cells in ${rows} rows differ from before ${where}; old → new.${more}`;
}

function timeOf(record, phase) {
  if (phase) return `${duration(phase.end - phase.start)}, from ${duration(phase.start)}`;
  return record?.phases.length ? duration(Math.max(...record.phases.map(({ end }) => end))) : "";
}

function summaryOf(record) {
  if (!record) return {};
  const schedule = factsOf(record, "schedule");
  return {
    total_num_scheduled_tokens: schedule.total_num_scheduled_tokens,
    num_scheduled_tokens: schedule.num_scheduled_tokens,
    scheduled_new_reqs: schedule.scheduled_new_reqs?.map((request) => request.req_id),
    finished_req_ids: schedule.finished_req_ids,
    preempted_req_ids: schedule.preempted_req_ids,
    "free of num_gpu_blocks": `${schedule.num_free_blocks} of ${schedule.num_gpu_blocks}`,
    moved: [...(factsOf(record, "condense").moved ?? []), ...(factsOf(record, "reorder").moved ?? [])],
    new_token_ids: factsOf(record, "update_from_output").new_token_ids,
    finished: factsOf(record, "update_from_output").finished,
  };
}
