// The facts of the chosen phase and its changes to the batch, as recorded; without a choice, the pass in short.
import { $, el, resize, setAttr, setText } from "dom";
import { PHASES, duration } from "phases";
import { factsOf } from "row_states";

const SHORT = 40; // values of a list before "…", until it is clicked
const MOST_CHANGES = 200;

/** Shows one phase of the shown pass. */
export class Detail {
  constructor(store) {
    this.store = store;
    this.open = new Set(); // names of the facts that are shown whole
  }

  render() {
    const { store } = this;
    const record = store.shown()?.record;
    const phase = record?.phases.find((candidate) => candidate.phase === store.phase);
    setText($("detail-title"), store.phase ?? (record ? `Pass ${record.pass_id}` : "This pass"));
    setText($("detail-time"), timeOf(record, phase));
    setText($("detail-does"), this.#does(record, phase));
    this.#facts(store.phase === null ? summaryOf(record) : (phase?.facts ?? {}));
    this.#changes(store.phase === null ? (record?.phases ?? []) : phase ? [phase] : []);
  }

  #does(record, phase) {
    const { store } = this;
    if (!record) return "Type a prompt and send it, or send a burst: each pass of the engine will be shown here.";
    if (store.phase === null) return "Click a phase above for its facts; the batch is then shown as it was at its end.";
    const [who, does] = PHASES[store.phase] ?? ["", ""];
    const parts = [`${does} (${who})`];
    if (!phase) parts.push("It didn't run in this pass.");
    if (!store.knowsInside) parts.push("This page came after the pass, so the batch is shown as at its end.");
    return parts.join(" ");
  }

  #facts(facts) {
    const names = Object.keys(facts);
    const lines = resize($("facts").tBodies[0], names.length, () => this.#line());
    names.forEach((name, i) => {
      const [label, value] = [lines[i].label, lines[i].value];
      setText(label, name);
      setText(value, format(facts[name], this.open.has(name) ? Infinity : SHORT));
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
      this.render();
    });
    return Object.assign(el("tr", {}, el("td", {}, label, value)), { label, value });
  }

  #changes(phases) {
    const words = phases.flatMap((phase) => (phase.changes ?? []).map(changeWords)).slice(0, MOST_CHANGES);
    $("changes-title").hidden = !words.length;
    const lines = resize($("changes"), words.length, () => el("li"));
    words.forEach((text, i) => setText(lines[i], text));
  }
}

function timeOf(record, phase) {
  if (phase) return `${duration(phase.end - phase.start)}, from ${duration(phase.start)}`;
  return record ? duration(Math.max(...record.phases.map(({ end }) => end))) : "";
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

/** A value in few characters: lists in brackets, T and F for masks, `most` entries of each list. */
export function format(value, most) {
  if (Array.isArray(value)) {
    const shown = value
      .slice(0, most)
      .map((item) => format(item, most))
      .join(", ");
    return value.length > most ? `[${shown}, … ${value.length} in all]` : `[${shown}]`;
  }
  if (value === true || value === false) return value ? "T" : "F";
  if (value === null || value === undefined) return "none";
  if (typeof value !== "object") return String(value);
  const entries = Object.entries(value);
  const shown = entries
    .slice(0, most)
    .map(([name, item]) => `${name}: ${format(item, most)}`)
    .join(", ");
  return entries.length > most ? `{${shown}, … ${entries.length} in all}` : `{${shown}}`;
}

function changeWords([head, a, b, c, d]) {
  if (head === "clear") return `row ${a} is cleared`;
  if (head === "move") return `row ${a} moves to row ${b}`;
  if (head === "swap") return `rows ${a} and ${b} swap`;
  if (head === "put")
    return b.length === 1
      ? `${a} of row ${b[0]} from ${c[0]} = ${format(d[0], 12)}`
      : `${a} of rows ${format(b, 12)} from ${format(c, 12)} = ${format(d, 12)}`;
  return b.length === 1
    ? `${a} of row ${b[0]} = ${format(c[0], 12)}`
    : `${a} of rows ${format(b, 12)} = ${format(c, 12)}`;
}
