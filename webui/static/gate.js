// The gate in the header: to the next stop, the pace, breakpoints, and a line that says where the engine is held.
import { postControl } from "api";
import { Breakpoints } from "breakpoints";
import { $, setAttr, setText } from "dom";
import { gateWords } from "gate_words";

const INSIDE =
  "The engine stops before schedule, at the hand-off and before update_from_output. " +
  "The phases inside execute_model have run by then: step through them on the record of the pass.";

/** `goTo(passId, phase)` and `live()` move the view, `tell(words)` shows what went wrong, "" where nothing has. */
export class Gate {
  constructor(store, { goTo, live, tell }) {
    Object.assign(this, { store, goTo, live, tell });
    this.breakpoints = new Breakpoints(store, (list) => postControl("breakpoints", { breakpoints: list }));
    this.hit = undefined; // the last one that was seen, as text; undefined before the first look
    this.showing = null; // the pass and phase of a hit that the view was moved to
    $("step-stop").addEventListener("click", () => this.stepStop());
    $("pace").addEventListener("change", () => this.#setPace());
    $("gate-show").addEventListener("click", () => this.#show(this.store.state.gate.hit));
    setAttr($("step-stop"), "title", `To the next stop. ${INSIDE}`);
    $("gate-controls").hidden = false;
  }

  /** Let the engine go on to the next of its three stops. */
  stepStop() {
    this.live();
    return this.#control("step_stop");
  }

  render() {
    const { gate, pass_id: lastPass } = this.store.state;
    const words = gateWords(gate, lastPass);
    setText($("gate-line"), words);
    setAttr($("gate-line"), "title", words && `${words}. ${INSIDE}`);
    setAttr($("gate-line"), "data-hit", gate.hit ? "" : null);
    if (document.activeElement !== $("pace")) $("pace").value = gate.rate ?? "";
    this.breakpoints.render(gate);
    this.#follow(gate.hit ?? null);
    $("gate-show").hidden = !gate.hit || this.#shows(gate.hit);
  }

  /** A new hit takes the view along unless it is parked elsewhere; when the engine goes on, so does the view. */
  #follow(hit) {
    const text = hit && JSON.stringify(hit);
    if (text === this.hit) return;
    const first = this.hit === undefined;
    this.hit = text;
    if (hit && !first && this.store.live) this.#show(hit);
    if (!hit && this.showing) {
      const { live, phase } = this.store;
      if (live ? phase === this.showing.phase : this.#shows(this.showing)) this.live();
      this.showing = null;
    }
  }

  #show(hit) {
    this.showing = hit;
    this.goTo(hit.pass_id, hit.phase);
  }

  #shows({ pass_id: passId, phase }) {
    return this.store.shown()?.record.pass_id === passId && this.store.phase === phase;
  }

  #setPace() {
    const field = $("pace");
    if (!field.checkValidity()) return this.tell(`pace: ${field.validationMessage}`);
    field.blur();
    return this.#control("rate", { rate: field.value === "" ? null : field.valueAsNumber });
  }

  async #control(action, fields) {
    try {
      await postControl(action, fields);
      this.tell("");
    } catch (error) {
      this.tell(`${action}: ${error.message}`);
    }
  }
}
