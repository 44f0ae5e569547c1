// Which passes the charts show: the last ones of a run that goes on, else those around the shown pass.
import { summaryOf } from "chart_data";

const MOST = 600; // passes

/** `near(passId, count)` promises the records of `count` passes that end at or near passId. */
export class PassWindow {
  constructor(store, near, changed) {
    Object.assign(this, { store, near, changed });
    this.last = []; // summaries of the newest passes, without a gap
    this.around = []; // of passes that were looked for
    this.loading = null;
    store.onPass((record) => this.#take(record));
  }

  /** The summaries to be drawn while `passId` is shown, in their order; others come when they are loaded. */
  passes(passId) {
    if (passId === null) return [];
    const { store } = this;
    if (store.live && !store.frozen) {
      if (!this.filled) this.#load(passId, (found) => this.#fill(found));
      return this.last;
    }
    for (const known of [this.last, this.around]) if (known.some(({ pass }) => pass === passId)) return known;
    this.#load(passId + MOST / 2, (found) => (this.around = found));
    return this.around;
  }

  #take(record) {
    if (this.store.frozen) return;
    const newest = this.last.at(-1)?.pass;
    if (newest !== undefined && newest !== record.pass_id - 1) [this.last, this.filled] = [[], false];
    this.last.push(summaryOf(record));
    if (this.last.length > MOST) this.last.shift();
  }

  /** Put older passes before those that have come since. */
  #fill(found) {
    const first = this.last[0]?.pass ?? Infinity;
    const older = found.filter(({ pass }) => pass < first);
    if (older.length && first !== Infinity && older.at(-1).pass !== first - 1) return;
    this.last = [...older, ...this.last].slice(-MOST);
  }

  #load(passId, take) {
    if (this.loading === passId) return;
    this.loading = passId;
    this.filled = true;
    this.near(passId, MOST).then(
      (records) => {
        take(records.map(summaryOf).sort((a, b) => a.pass - b.pass));
        this.changed();
      },
      () => {}, // passes that are forgotten, or not recorded, are not drawn
    );
  }
}
