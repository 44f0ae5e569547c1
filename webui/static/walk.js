// Which pass is shown, and the ways from there to another one: the same for a live run, a replay and an exported page.

/** `changed()` is called when another moment is shown, `tell(words)` with what went wrong, "" for nothing. */
export class Walk {
  constructor(store, history, { changed, tell }) {
    Object.assign(this, { store, history, changed, tell });
    this.wanted = null; // where one is going while it is loaded
  }

  /** The number of the pass that is shown, or is about to be; -1 where there is none. */
  get at() {
    return this.wanted?.passId ?? this.store.shown()?.record.pass_id ?? -1;
  }

  get first() {
    return this.history.first;
  }

  /** The number of the newest pass: of the one in which the engine is held, where it is. */
  get last() {
    return Math.max(this.history.last, this.store.newest()?.record.pass_id ?? -1);
  }

  /**
   * Show a pass, or the nearest that there is, at a phase: null for its end, by default the one that is shown, or a
   * function that takes the pass's record. Of several calls while one is loading, the last one counts.
   */
  goTo(passId, phase = undefined) {
    if (this.last < 0 || Number.isNaN(passId)) return Promise.resolve();
    const nearest = this.#nearest(passId);
    const newest = nearest > this.history.last || (this.store.frozen && nearest === this.last);
    const wanted = { passId: nearest, phase };
    const pass = newest ? this.store.newest() : this.history.at(nearest);
    this.wanted = pass ? null : wanted;
    if (pass) return Promise.resolve(this.#show(pass, wanted));
    this.loading ??= this.#load().finally(() => {
      this.loading = null;
    });
    return this.loading;
  }

  /** Show the pass `count` places away; at the newest one follows it. */
  by(count) {
    const to = this.at + count;
    if (to < this.last) return this.goTo(to);
    this.wanted = null;
    this.store.follow();
    this.changed();
    return Promise.resolve();
  }

  /** Show the phase before or after the shown one (`by` is -1 or 1), in the next pass where this one has no more. */
  phase(by) {
    const { record } = this.store.shown() ?? {};
    if (!record) return Promise.resolve();
    const names = record.phases.map((phase) => phase.phase);
    const at = this.store.phase === null ? names.length - (by < 0 ? 0 : 1) : names.indexOf(this.store.phase);
    const name = names[at + by];
    if (name) return this.goTo(record.pass_id, name);
    if (by > 0 ? record.pass_id >= this.last : record.pass_id <= this.first) return Promise.resolve();
    return this.goTo(record.pass_id + by, ({ phases }) => phases.at(by > 0 ? 0 : -1).phase);
  }

  /** A pass may be asked for, perhaps very `soon`. */
  expect(passId, soon = false) {
    if (!Number.isNaN(passId)) this.history.expect(this.#nearest(passId), soon);
  }

  live() {
    this.wanted = null;
    this.store.goLive();
    this.changed();
  }

  #nearest(passId) {
    return Math.min(Math.max(Math.round(passId), this.first), this.last);
  }

  async #load() {
    while (this.wanted) {
      const { wanted } = this;
      try {
        const pass = await this.history.find(wanted.passId);
        if (this.wanted === wanted) this.#show(pass, wanted);
      } catch (error) {
        if (this.wanted !== wanted) continue;
        this.wanted = null;
        this.tell(`Pass ${wanted.passId} cannot be shown: ${error.message}`);
      }
    }
  }

  #show(pass, { phase }) {
    this.wanted = null;
    this.store.show(pass, typeof phase === "function" ? phase(pass.record) : phase);
    this.tell("");
    if (pass.record.partial !== true) this.history.prepare(pass);
    this.changed();
  }
}
