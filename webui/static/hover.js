// What the pointer or the keyboard points at, for all views: a row and its request, a token of the pass, a KV block.

class Hover {
  constructor() {
    this.row = this.token = this.reqId = this.block = null;
    this.listeners = [];
  }

  /** Point at a row (with its request) and perhaps at one token of the flat axis. */
  set({ row = null, token = null, reqId = null, block = null } = {}) {
    if (this.row === row && this.token === token && this.reqId === reqId) return;
    Object.assign(this, { row, token, reqId, block });
    for (const listener of this.listeners) listener(this);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const hover = new Hover();
