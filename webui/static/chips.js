// The phase chips: all phases in order, each with the time it took in the shown pass.
import { $, el, setAttr, setText } from "dom";
import { duration, sideOf } from "phases";

const SECOND_LINE = "prepare_inputs"; // above it the decision and the diff, below it the computing

/**
 * `choose(name)` is called with the phase that is clicked, or null when it was chosen already. `explanations` say what
 * each phase does.
 */
export class Chips {
  constructor(names, choose, explanations) {
    this.names = names;
    this.choose = choose;
    this.explanations = explanations;
    this.chips = new Map(names.map((name) => [name, this.#make(name)]));
    $("chips").append(...this.chips.values());
    this.chips.get(SECOND_LINE)?.before(el("span", { class: "break" }));
  }

  /** The phase `by` places after `name`, staying on the list. */
  neighbour(name, by) {
    const at = name === null ? (by > 0 ? 0 : this.names.length - 1) : this.names.indexOf(name) + by;
    return this.names[Math.max(0, Math.min(this.names.length - 1, at))];
  }

  render(record, chosen) {
    const ran = new Map(record?.phases.map((phase) => [phase.phase, phase]));
    const whole = Math.max(1, ...Array.from(ran.values(), (phase) => phase.end)) - (record?.phases[0]?.start ?? 0);
    for (const [name, chip] of this.chips) {
      const phase = ran.get(name);
      setAttr(chip, "data-ran", Boolean(phase));
      setAttr(chip, "aria-pressed", name === chosen);
      setText(chip.time, phase ? duration(phase.end - phase.start) : "–");
      const share = phase ? ((phase.end - phase.start) / whole).toFixed(3) : "0";
      if (chip.shown !== share) chip.share.style.transform = `scaleX(${(chip.shown = share)})`;
    }
  }

  #make(name) {
    const { who, does } = this.explanations.of(name) ?? {};
    const chip = el("button", { type: "button", class: "chip", "data-phase": name, "data-side": sideOf(name) }, name);
    if (does) chip.title = `${who}: ${does} (Double click: its code.)`;
    chip.time = chip.appendChild(el("span", { class: "time" }));
    chip.share = chip.appendChild(el("span", { class: "share" }));
    chip.addEventListener("click", () => this.choose(chip.getAttribute("aria-pressed") === "true" ? null : name));
    return chip;
  }
}
