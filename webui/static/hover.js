// What the pointer or the keyboard points at, for all views: a row and its request, a token of the pass, a KV block.

class Hover {
  constructor() {
    this.row = this.token = this.reqId = this.block = null;
    this.owners = [];
    this.listeners = [];
  }

  /**
   * Point at a row (with its request), perhaps at one token of the flat axis with the block that its slot is in; or at
   * a KV block and the requests that hold it.
   */
  set({ row = null, token = null, reqId = null, block = null, owners = [] } = {}) {
    const same = this.row === row && this.token === token && this.reqId === reqId && this.block === block;
    if (same && String(this.owners) === String(owners)) return;
    Object.assign(this, { row, token, reqId, block, owners });
    for (const listener of this.listeners) listener(this);
  }

  /** Whether a row is pointed at, by itself or by a block that its request holds. */
  lights(row, reqId) {
    return (row !== null && this.row === row) || this.owners.includes(reqId);
  }

  onChange(listener) {
    this.listeners.push(listener);
  }
}

export const hover = new Hover();
