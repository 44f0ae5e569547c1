// The engines of this server and its presets: what there is, started, ended and shown.
import { deleteEngine, getEngines, postPreset } from "api";
import { engineId } from "source";

const READY = "ready";
const POLL_MS = 700; // while an engine starts and nothing else tells how it goes

/** The list of engines as /api/engines gives it; `onChange` is called when it may have changed. */
export class Engines {
  constructor(onChange) {
    this.onChange = onChange;
    this.list = [];
    this.most = 2;
  }

  async load() {
    const { engines, most } = await getEngines();
    this.most = most;
    this.take(engines);
  }

  /** What the server tells by itself. */
  take(engines) {
    this.list = engines;
    this.onChange();
    if (engines.some(({ status }) => isStarting(status))) this.#lookAgain();
  }

  get shown() {
    return this.find(engineId);
  }

  find(id) {
    return this.list.find((engine) => engine.id === id);
  }

  /** Those that can be shown, the served one first. */
  get ready() {
    return this.list.filter(({ status }) => status === READY);
  }

  /** The oldest preset that has to end before another can start, or null. */
  get inTheWay() {
    const live = this.list.filter(({ preset, status }) => preset !== null && (status === READY || isStarting(status)));
    return live.length >= this.most ? live[0] : null;
  }

  /** Start a preset, in the place of an engine where one is named. Returns the new engine's id. */
  async start(name, replace = null) {
    const { engine } = await postPreset(name, replace);
    await this.load();
    return engine;
  }

  async end(id) {
    await deleteEngine(id);
    await this.load();
  }

  /** A socket tells of changes at once; where it is down, this does. */
  #lookAgain() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.load().catch(() => this.#lookAgain()), POLL_MS);
  }
}

export function isStarting(status) {
  return status === "starting" || status === "playing";
}

/** The page's address for an engine, at the phase that its preset is about. */
export function addressOf({ id, phase = null }) {
  const asked = id === "main" ? "/" : `/?${new URLSearchParams({ engine: id })}`;
  return phase === null ? asked : `${asked}#${new URLSearchParams({ phase })}`;
}

/** The address for an engine in a frame beside another's, at the end of its newest pass. */
export function compactAddressOf(id) {
  return `/?${new URLSearchParams({ engine: id, compact: "1" })}`;
}

/** The address of two engines side by side. */
export function comparison(left, right) {
  return `/compare?${new URLSearchParams({ left, right })}`;
}
