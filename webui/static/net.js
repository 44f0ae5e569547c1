// The live connection: frames of log entries come in, acknowledgements go out, gaps are healed over HTTP.
import { getState, whyUnhealthy } from "api";
import { stateFromJson } from "fold";
import { engineId } from "source";

const HEALTH_EVERY_MS = 4000;

/** Feeds the store. `onStatus({ state, why })` with state "live", "connecting", "lost" or "dead" follows the link. */
export class Net {
  constructor(store, history, onStatus) {
    Object.assign(this, { store, history, onStatus });
    this.frames = [];
    this.resyncing = null;
    this.status = "connecting";
  }

  /** Load the state once, then follow the log. */
  async start() {
    await this.resync();
    const auth = (reply) => reply({ seq: this.store.state.seq, engine: engineId });
    this.socket = globalThis.io({ transports: ["websocket"], auth });
    this.socket.on("connect", () => this.#connected());
    this.socket.on("disconnect", () => this.#set("lost"));
    this.socket.on("connect_error", () => this.#set("lost"));
    this.socket.on("frame", (range, bytes) => {
      this.frames.push({ range, bytes });
      this.store.wake();
    });
    this.socket.on("resync", () => this.resync());
    this.socket.on("engines", (engines) => this.onEngines?.(engines));
    setInterval(() => this.#checkHealth(), HEALTH_EVERY_MS);
    this.#checkHealth();
  }

  /** Apply the frames that have come since the last call, and acknowledge them. Returns whether there were any. */
  drain() {
    if (this.resyncing || !this.frames.length) return false;
    const frames = this.frames.splice(0);
    for (const { range, bytes } of frames) {
      if (range.from > this.store.state.seq + 1 || !this.#applied(bytes)) {
        this.resync();
        return true;
      }
    }
    this.socket.emit("ack", { to: frames.at(-1).range.to });
    return true;
  }

  /** Take the whole state over HTTP and go on from there. */
  resync() {
    this.resyncing ??= this.#load().finally(() => {
      this.resyncing = null;
    });
    return this.resyncing;
  }

  async #load() {
    try {
      const state = stateFromJson(await getState());
      this.store.reset(state, await this.#tail(state));
      const waiting = this.frames.at(-1);
      if (waiting && waiting.range.to <= state.seq) {
        this.frames = [];
        this.socket.emit("ack", { to: waiting.range.to });
      }
    } catch (error) {
      console.warn("the state could not be taken:", error);
      this.#set("lost", error.message);
    }
  }

  /** The passes that led to a state, none where they cannot be had. */
  async #tail(state) {
    try {
      const segments = await this.history.newest(state);
      return segments.at(-1)?.entries.at(-1)?.seq === state.seq ? segments : [];
    } catch (error) {
      console.info("the last passes could not be taken:", error.message);
      return [];
    }
  }

  #applied(bytes) {
    try {
      for (const entry of globalThis.MessagePack.decodeMulti(new Uint8Array(bytes))) {
        if (entry.seq > this.store.state.seq) this.store.apply(entry);
      }
      return true;
    } catch (error) {
      console.warn("a frame could not be applied; taking the whole state instead:", error.message);
      return false;
    }
  }

  #connected() {
    if (this.status === "lost") this.resync();
    this.#set("live");
  }

  async #checkHealth() {
    const why = await whyUnhealthy();
    if (why !== null) this.#set("dead", why);
    else if (this.status === "dead") this.#set(this.socket.connected ? "live" : "lost");
  }

  #set(status, why = "") {
    if (this.status === "dead" && status === "lost") return;
    if (this.status === status && this.why === why) return;
    this.status = status;
    this.why = why;
    this.onStatus({ state: status, why });
  }
}
