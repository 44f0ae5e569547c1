// What the pointer or the keyboard is at, for all views: a token of the shown pass, a KV block, or a request.

class Hover {
  constructor() {
    this.token = this.block = this.reqId = null;
    this.brings = false;
    this.listeners = [];
  }

  /** Point at a token (its index on the flat axis), at a KV block, or at a request; without a name at nothing. */
  set({ token = null, block = null, reqId = null } = {}) {
    if (this.token === token && this.block === block && this.reqId === reqId) return;
    Object.assign(this, { token, block, reqId });
    for (const listener of this.listeners) listener(this.brings);
  }

  /** The same by keyboard: every view brings it into sight. */
  bring(target) {
    this.brings = true;
    this.set(target);
    this.brings = false;
  }

  /** `listener(bring)` is called when something else is pointed at. */
  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const hover = new Hover();
