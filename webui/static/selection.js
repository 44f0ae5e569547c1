// The request that was clicked: its blocks stay lit and the page says why it is or isn't in the shown pass.

class Selection {
  constructor() {
    this.reqId = null;
    this.listeners = [];
  }

  /** Choose a request; null for none. */
  choose(reqId) {
    if (this.reqId === reqId) return;
    this.reqId = reqId;
    for (const listener of this.listeners) listener(reqId);
  }

  /** Choose a request, or none where it was chosen already. */
  toggle(reqId) {
    this.choose(this.reqId === reqId ? null : reqId);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const selection = new Selection();
