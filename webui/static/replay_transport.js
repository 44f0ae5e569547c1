// The header of a recorded run: there is no engine to pause or step.
import { $, setAttr, setText } from "dom";
import { Transport } from "transport";

export class ReplayTransport extends Transport {
  constructor(store, walk, { replay: about }) {
    super(store, walk);
    this.about = about;
    for (const id of ["pause", "step"]) $(id).hidden = true;
  }

  pauseOrResume() {}

  step() {
    this.walk.by(1);
  }

  forwardOrStep() {
    this.walk.by(1);
  }

  setLink({ state, why }) {
    setText($("link"), "recording");
    setAttr($("link"), "data-state", state);
    const { complete, damage } = this.about;
    const cause = damage ? `: ${damage}` : "";
    const end = complete ? "" : `Only the beginning can be shown, up to the last whole block${cause}.`;
    this.standing = why || end;
    this.tell(this.told);
  }

  render(shown) {
    super.render(shown);
    const day = new Date(this.about.created * 1000).toLocaleString();
    setText($("viewing"), this.walk.last < 0 ? "no pass was recorded" : `recorded ${day}`);
  }
}
