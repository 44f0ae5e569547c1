// Pause, resume and step the engine; walk among the last passes; the counter, the link and the notice.
import { postControl } from "api";
import { $, setAttr, setText } from "dom";
import { engineId } from "source";

const NOTICES = {
  lost:
    "The connection to the server is lost. The page tries again by itself. " +
    "If `batchscope serve` has ended, start it again.",
  dead:
    engineId === "main"
      ? "The engine process has ended, so open requests got an error. " +
        "Stop `batchscope serve` and start it again; its terminal says what happened."
      : "The served engine and the presets are in the list on the left.",
};

/** The header. `walk` goes from pass to pass. */
export class Transport {
  constructor(store, walk) {
    Object.assign(this, { store, walk });
    this.arrivals = []; // [time, pass id] of the last second
    this.told = this.standing = ""; // what the notice says, and what when there is nothing else to tell
    $("pause").addEventListener("click", () => this.pauseOrResume());
    $("step").addEventListener("click", () => this.step());
  }

  pauseOrResume() {
    return this.#control(this.store.paused ? "resume" : "pause");
  }

  step() {
    this.walk.live();
    return this.#control("step");
  }

  forwardOrStep() {
    if (this.store.live) this.step();
    else this.walk.by(1);
  }

  /** Show a pass and stay there; `phase` is the one to show, null for the pass's end. Returns a Promise. */
  goTo(passId, phase) {
    return this.walk.goTo(passId, phase);
  }

  setLink(link) {
    setText(
      $("link"),
      { live: "live", connecting: "connecting", lost: "reconnecting", dead: "engine stopped" }[link.state],
    );
    setAttr($("link"), "data-state", link.state);
    this.standing = NOTICES[link.state] ? [link.why, NOTICES[link.state]].filter(Boolean).join(" ") : "";
    this.tell(this.told);
  }

  render(shown) {
    const { store } = this;
    setText($("pass"), shown?.record.pass_id ?? "–");
    setText($("pause"), store.paused ? "resume" : "pause");
    setAttr($("pause"), "aria-pressed", store.paused);
    setText($("viewing"), this.#viewing());
    setAttr($("viewing"), "data-parked", store.live ? null : "");
  }

  #viewing() {
    if (!this.store.live) return `an earlier pass; the engine is at ${this.store.state.pass_id}`;
    if (this.store.paused) return ""; // the gate says where
    const rate = this.#rate();
    return rate ? `${rate} ${rate === 1 ? "pass" : "passes"}/s` : "idle";
  }

  #rate() {
    const [now, pass] = [performance.now(), this.store.state.pass_id];
    if (this.arrivals.at(-1)?.[1] !== pass) this.arrivals.push([now, pass]);
    while (this.arrivals.length > 1 && now - this.arrivals[0][0] > 1500) this.arrivals.shift();
    const [first, last] = [this.arrivals[0], this.arrivals.at(-1)];
    if (now - last[0] > 1500 || last[0] === first[0]) return 0;
    return Math.round((last[1] - first[1]) / ((last[0] - first[0]) / 1000));
  }

  async #control(action) {
    try {
      await postControl(action);
      this.tell("");
    } catch (error) {
      this.tell(`${action}: ${error.message}`);
    }
  }

  /** Say what has gone wrong, "" where nothing has. */
  tell(words) {
    this.told = words;
    setText($("notice"), words || this.standing);
    $("notice").hidden = !(words || this.standing);
  }
}
