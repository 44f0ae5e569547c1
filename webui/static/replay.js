// A recorded run in the place of the live connection: its end is the newest state, and nothing comes after it.

/** Feeds the store once. */
export class Replay {
  constructor(store, history, onStatus) {
    Object.assign(this, { store, history, onStatus });
  }

  /** Load the last passes. */
  async start() {
    this.store.frozen = true;
    let why = "";
    try {
      const segments = await this.history.newest();
      const last = segments.at(-1);
      if (last) this.store.reset(last.stateBefore(last.entries.length), segments);
    } catch (error) {
      why = `The last passes cannot be shown: ${error.message}`;
    }
    if (this.store.shown()) this.history.prepare(this.store.shown());
    this.onStatus({ state: "replay", why });
  }

  /** Nothing comes by itself. */
  drain() {
    return false;
  }
}
