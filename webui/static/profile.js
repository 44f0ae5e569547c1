// The dialog that says where a pass goes: by phase over the last passes, and by kernel over passes that it asks for.
import { postProfile } from "api";
import { $, el, resize, setText } from "dom";
import { passNs, phaseNs } from "pass_times";

const PASSES = 64; // that phases are summed over
const EVERY_MS = 500;
const LEAST = 0.0005; // a smaller share is left out

/** `near(passId, count)` gives the records up to a pass; `phases` are their names; without an engine, no kernels. */
export class Profile {
  constructor(store, { near, phases, hasEngine }) {
    Object.assign(this, { store, near, phases });
    $("profile-open").addEventListener("click", () => this.#open());
    $("profile-form").hidden = !hasEngine;
    $("profile-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#time();
    });
  }

  #open() {
    $("profile").showModal();
    this.#follow();
    const timer = setInterval(() => ($("profile").open ? this.#follow() : clearInterval(timer)), EVERY_MS);
  }

  async #follow() {
    const shown = this.store.shown()?.record;
    const last = shown?.partial ? shown.pass_id - 1 : (shown?.pass_id ?? -1);
    if (last < 0) return setText($("profile-about"), "No pass has run yet.");
    try {
      const records = await this.near(last, PASSES);
      if (records.length) this.#phases(records);
    } catch (error) {
      setText($("profile-about"), error.message);
    }
  }

  #phases(records) {
    const whole = records.reduce((sum, record) => sum + passNs(record), 0);
    setText($("profile-about"), about(records[0].pass_id, records.length, whole));
    fill($("profile-phases"), [...phaseNs(records, this.phases)], records.length, whole);
  }

  async #time() {
    const [field, button] = [$("profile-passes"), $("profile-time")];
    button.disabled = true;
    setText($("profile-words"), "timing …");
    try {
      const { first_pass: first, passes, pass_ns: whole, kernels } = await postProfile(field.valueAsNumber);
      const outside = kernels.reduce((left, { ns }) => left - ns, whole);
      setText($("profile-words"), about(first, passes, whole));
      const spent = [...kernels.map(({ name, ns }) => [name, ns]), ["outside kernels", outside]];
      fill($("profile-kernels"), spent, passes, whole);
      $("profile-kernels").hidden = false;
    } catch (error) {
      setText($("profile-words"), error.message);
    }
    button.disabled = false;
  }
}

function about(first, count, whole) {
  const which = count === 1 ? `pass ${first}` : `passes ${first} to ${first + count - 1}`;
  return `${which}: ${(whole / count / 1e6).toFixed(2)} ms a pass`;
}

/** Rows of name, ms a pass, share and a bar as long as the share. */
function fill(table, spent, count, whole) {
  const shown = spent.filter(([, ns]) => ns >= whole * LEAST);
  const lines = resize(table.tBodies[0], shown.length, line);
  shown.forEach(([name, ns], i) => {
    const [what, each, share, bar] = lines[i].children;
    setText(what, name);
    setText(each, (ns / count / 1e6).toFixed(3));
    setText(share, `${((100 * ns) / whole).toFixed(1)}%`);
    bar.firstElementChild.style.width = `${(100 * ns) / whole}%`;
  });
}

function line() {
  const bar = el("td", { class: "profile-bar", "aria-hidden": "true" }, el("span"));
  return el("tr", {}, el("td"), el("td", { class: "num" }), el("td", { class: "num" }), bar);
}
