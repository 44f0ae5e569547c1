// What was chosen and stays: a request, and perhaps one of its tokens, by its position in the request.
import { address } from "address";

class Selection {
  constructor() {
    this.reqId = this.position = null;
    this.listeners = [];
  }

  /** Choose a request, or one of its tokens; null for none. */
  choose(reqId, position = null) {
    if (this.reqId === reqId && this.position === position) return;
    Object.assign(this, { reqId, position });
    for (const listener of this.listeners) listener();
  }

  /** Choose it, or nothing where it was chosen already. */
  toggle(reqId, position = null) {
    if (this.reqId === reqId && this.position === position) this.choose(null);
    else this.choose(reqId, position);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const selection = new Selection();

address.register("request", { read: () => selection.reqId, write: (reqId) => selection.choose(reqId) });
address.register("token", {
  read: () => selection.position,
  write: (position) => /^\d+$/.test(position) && selection.choose(selection.reqId, Number(position)),
});
