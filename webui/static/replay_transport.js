// The header of a recorded run: back, forward and to the end; there is no engine to pause or step.
import { $, setAttr, setText } from "dom";
import { Transport } from "transport";

/** `replay()` gives the Replay that the page follows. */
export class ReplayTransport extends Transport {
  constructor(store, changed, { replay: about }, replay) {
    super(store, changed);
    this.about = about;
    this.replay = replay;
    for (const id of ["pause", "step"]) $(id).hidden = true;
    setText($("live"), "last");
  }

  pauseOrResume() {}

  step() {
    this.walk(1);
  }

  forwardOrStep() {
    this.walk(1);
  }

  walk(by) {
    this.replay().show(this.replay().wanted + by);
  }

  goLive() {
    this.replay().show(Infinity);
  }

  setLink({ state, why }) {
    setText($("link"), "recording");
    setAttr($("link"), "data-state", state);
    const { complete, damage } = this.about;
    const end = complete ? "" : `Only the beginning can be shown, up to the last whole block${damage ? `: ${damage}` : ""}.`;
    setText($("notice"), why || end);
    $("notice").hidden = !(why || end);
  }

  render(shown) {
    super.render(shown);
    const { first, passes, wanted } = this.replay();
    $("back").disabled = wanted <= first;
    $("forward").disabled = $("live").disabled = wanted >= passes - 1;
    const day = new Date(this.about.created * 1000).toLocaleString();
    setText($("viewing"), passes ? `of passes ${first} to ${passes - 1}, ${day}` : "no pass was recorded");
  }
}
