// Pause, resume and step the engine; walk among the last passes; the counter, the link and the notice.
import { postControl } from "api";
import { $, setAttr, setText } from "dom";

const NOTICES = {
  lost:
    "The connection to the server is lost. The page tries again by itself. " +
    "If `batchscope serve` has ended, start it again.",
  dead:
    "The engine process has ended, so open requests got an error. " +
    "Stop `batchscope serve` and start it again; its terminal says what happened.",
};

/** The header. `changed` is called when the view has walked to another pass. */
export class Transport {
  constructor(store, changed) {
    this.store = store;
    this.changed = changed;
    this.arrivals = []; // [time, pass id] of the last second
    this.link = { state: "connecting", why: "" };
    $("pause").addEventListener("click", () => this.pauseOrResume());
    $("step").addEventListener("click", () => this.step());
    $("back").addEventListener("click", () => this.walk(-1));
    $("forward").addEventListener("click", () => this.walk(1));
    $("live").addEventListener("click", () => this.goLive());
  }

  pauseOrResume() {
    return this.#control(this.store.paused ? "resume" : "pause");
  }

  step() {
    this.store.goLive();
    return this.#control("step");
  }

  forwardOrStep() {
    if (this.store.live) this.step();
    else this.walk(1);
  }

  walk(by) {
    if (this.store.walk(by)) this.changed();
  }

  goLive() {
    this.store.goLive();
    this.changed();
  }

  setLink(link) {
    this.link = link;
    setText(
      $("link"),
      { live: "live", connecting: "connecting", lost: "reconnecting", dead: "engine stopped" }[link.state],
    );
    setAttr($("link"), "data-state", link.state);
    this.#notice(NOTICES[link.state] ? [link.why, NOTICES[link.state]].filter(Boolean).join(" ") : "");
  }

  render(shown) {
    const { store } = this;
    setText($("pass"), shown?.record.pass_id ?? "–");
    setText($("pause"), store.paused ? "resume" : "pause");
    setAttr($("pause"), "aria-pressed", store.paused);
    const passes = store.passes();
    $("back").disabled = passes.length < 2 || shown === passes[0];
    $("forward").disabled = store.live;
    $("live").disabled = store.live;
    setText($("viewing"), this.#viewing(shown));
    setAttr($("viewing"), "data-parked", store.live ? null : "");
  }

  #viewing(shown) {
    if (!this.store.live) return `an earlier pass; the engine is at ${this.store.state.pass_id}`;
    if (this.store.paused) return shown ? "engine paused after this pass" : "engine paused";
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
      if (NOTICES[this.link.state] === undefined) this.#notice("");
    } catch (error) {
      this.#notice(`${action}: ${error.message}`);
    }
  }

  #notice(words) {
    setText($("notice"), words);
    $("notice").hidden = !words;
  }
}
