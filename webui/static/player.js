// Plays a run from the shown pass on: so many passes a second, or phase by phase where that is slow enough to be seen.

/** What one may choose: passes a second, and whether each is played phase by phase. */
export const SPEEDS = [
  { rate: 0.25, phases: true },
  { rate: 0.5, phases: true },
  { rate: 1, phases: true },
  ...[0.5, 1, 2, 5, 10, 20, 30, 60].map((rate) => ({ rate, phases: false })),
];

export class Player {
  constructor(walk, store) {
    Object.assign(this, { walk, store });
    this.speed = SPEEDS.at(-4);
    this.since = null; // when the shown moment came, null while nothing is played
  }

  get playing() {
    return this.since !== null;
  }

  /** Play on, or stop. At the newest pass there is nothing to play: a recorded run starts anew. */
  toggle() {
    if (!this.store.shown()) return;
    if (this.playing) this.since = null;
    else if (this.walk.at < this.walk.last || this.store.phase !== null) this.since = performance.now();
    else if (this.store.frozen) {
      this.since = performance.now();
      this.walk.goTo(this.walk.first);
    }
    this.store.wake();
  }

  setSpeed(speed) {
    this.speed = speed;
    if (this.playing) this.since = performance.now();
  }

  /** Go as far as the time has come; called once a frame. */
  tick(now = performance.now()) {
    if (!this.playing) return;
    if (this.walk.loading) this.since = now - this.#interval(); // the next pass is shown as soon as it is there
    else if (this.speed.phases) this.#playPhases(now);
    else this.#playPasses(now);
  }

  #playPasses(now) {
    const passes = Math.floor((now - this.since) / this.#interval());
    if (!passes) return;
    this.since += passes * this.#interval();
    if (this.walk.at + passes >= this.walk.last) this.since = null;
    this.walk.by(passes);
  }

  #playPhases(now) {
    if (now - this.since < this.#interval()) return;
    this.since = now;
    const { record } = this.store.shown();
    const ended = record.phases.at(-1)?.phase === this.store.phase;
    if (record.pass_id >= this.walk.last && (ended || this.store.phase === null)) this.since = null;
    else this.walk.phase(1);
  }

  /** Milliseconds that each moment is shown. */
  #interval() {
    const parts = this.speed.phases ? this.store.shown().record.phases.length || 1 : 1;
    return 1000 / this.speed.rate / parts;
  }
}
