// The part of the address after #: which moment of which run is shown, and what is chosen. It survives a reload.

const EVERY_MS = 300; // browsers take only so many changes of the address
const TRACE = "trace"; // names the run

class Address {
  constructor() {
    this.parts = new Map();
    this.given = new URLSearchParams(location.hash.slice(1));
    this.started = false;
  }

  /**
   * Keep something in the address under a name: `read()` gives its text, or null for nothing, and `write(text)` takes
   * what stood there when the page was opened.
   */
  register(name, part) {
    this.parts.set(name, part);
    if (this.started && this.given.has(name)) part.write(this.given.get(name));
  }

  /** Take what the address says, where it is about this run, and follow from now on. Returns whether it is. */
  start(run) {
    this.run = run;
    const other = this.given.has(TRACE) && this.given.get(TRACE) !== run;
    if (other) this.given = new URLSearchParams();
    this.started = true;
    for (const [name, part] of this.parts) if (this.given.has(name)) part.write(this.given.get(name));
    setInterval(() => this.#follow(), EVERY_MS);
    addEventListener("pagehide", () => this.#follow());
    addEventListener("hashchange", () => location.reload());
    return !other;
  }

  /** What stands after # for what is shown now, "" where that is nothing in particular. */
  text() {
    const words = new URLSearchParams();
    for (const [name, { read }] of this.parts) {
      const text = read();
      if (text !== null && text !== undefined) words.set(name, text);
    }
    return words.size ? `#${new URLSearchParams([[TRACE, this.run], ...words])}` : "";
  }

  #follow() {
    const text = this.text();
    if (text !== location.hash) globalThis.history.replaceState(null, "", text || location.pathname + location.search);
  }
}

export const address = new Address();

/** A name for a run that began at `created`, in seconds since the epoch. */
export const runName = (created) => Math.round(created * 1000).toString(36);
