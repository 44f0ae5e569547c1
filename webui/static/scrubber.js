// The scrubber: every pass of the run on one line, and the ways to go among them, live or recorded.
import { $, el, setAttr, setText } from "dom";
import { SPEEDS } from "player";
import { remember, remembered } from "remember";

const SPEED = "batchscope-play-speed";

export class Scrubber {
  constructor(walk, player, store) {
    Object.assign(this, { walk, player, store });
    const actions = {
      "first": () => walk.goTo(walk.first),
      "back": () => walk.by(-1),
      "forward": () => walk.by(1),
      "live": () => walk.live(),
      "phase-back": () => walk.phase(-1),
      "phase-forward": () => walk.phase(1),
      "play": () => player.toggle(),
    };
    for (const [id, action] of Object.entries(actions)) $(id).addEventListener("click", action);
    $("passes").addEventListener("input", () => walk.goTo(Number($("passes").value)));
    $("passes").addEventListener("pointermove", (event) => walk.expect(this.#under(event)));
    $("jump").addEventListener("input", () => walk.expect(Number($("jump").value), true));
    $("jump").addEventListener("keydown", (event) => this.#jump(event));
    $("jump").addEventListener("blur", () => this.render());
    this.#speeds();
  }

  /** Have the number of a pass typed. */
  ask() {
    $("jump").focus();
    $("jump").select();
  }

  render() {
    const { walk, store } = this;
    const { at, first, last } = walk;
    const none = last < 0;
    for (const id of ["first", "back", "phase-back"]) $(id).disabled = none || (at <= first && id !== "phase-back");
    $("forward").disabled = $("live").disabled = store.live;
    $("phase-forward").disabled = none;
    setText($("live"), store.frozen ? "last" : "live");
    setAttr($("live"), "aria-pressed", store.live);
    setText($("play"), this.player.playing ? "❚❚" : "▶");
    setAttr($("play"), "aria-label", this.player.playing ? "stop playing" : "play");
    this.#line(at, first, last);
    if (document.activeElement !== $("jump")) $("jump").value = none ? "" : at;
    setText($("jump-of"), none ? "no pass yet" : `of ${first} to ${last}`);
  }

  #line(at, first, last) {
    const line = $("passes");
    line.disabled = last <= first;
    setAttr(line, "min", first);
    setAttr(line, "max", Math.max(last, first));
    line.value = at;
    setAttr(line, "aria-valuetext", `pass ${at}${this.store.live ? ", the newest" : `, the newest is ${last}`}`);
    setAttr($("pass-line"), "data-parked", this.store.live ? null : "");
    $("pass-line").style.setProperty("--part", last > first ? (at - first) / (last - first) : 1);
  }

  /** The pass that a click there would show. */
  #under({ offsetX, target }) {
    const { first, last } = this.walk;
    return first + (offsetX / target.clientWidth) * (last - first);
  }

  #jump(event) {
    if (event.key !== "Enter") return;
    const wanted = $("jump").value;
    $("jump").blur();
    if (wanted !== "") this.walk.goTo(Number(wanted));
  }

  #speeds() {
    const words = ({ rate, phases }) => `${rate}/s${phases ? " by phase" : ""}`;
    $("speed").append(...SPEEDS.map((speed, i) => el("option", { value: i }, words(speed))));
    const choose = (i) => {
      this.player.setSpeed(SPEEDS[i] ?? this.player.speed);
      $("speed").value = SPEEDS.indexOf(this.player.speed);
    };
    choose(Number(remembered(SPEED) ?? -1));
    $("speed").addEventListener("change", () => {
      remember(SPEED, $("speed").value);
      choose(Number($("speed").value));
    });
  }
}
