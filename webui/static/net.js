// The live connection: frames of log entries come in, acknowledgements go out, gaps are healed over HTTP.
import { getPass, getState, whyUnhealthy } from "api";
import { stateFromJson } from "fold";

const HEALTH_EVERY_MS = 4000;

/** Feeds the store. `onStatus({ state, why })` with state "live", "connecting", "lost" or "dead" follows the link. */
export class Net {
  constructor(store, onStatus) {
    this.store = store;
    this.onStatus = onStatus;
    this.frames = [];
    this.resyncing = null;
    this.status = "connecting";
  }

  /** Load the state once, then follow the log. */
  async start() {
    await this.resync();
    this.socket = globalThis.io({ transports: ["websocket"], auth: (reply) => reply({ seq: this.store.state.seq }) });
    this.socket.on("connect", () => this.#connected());
    this.socket.on("disconnect", () => this.#set("lost"));
    this.socket.on("connect_error", () => this.#set("lost"));
    this.socket.on("frame", (range, bytes) => this.frames.push({ range, bytes }));
    this.socket.on("resync", () => this.resync());
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
      const record = state.pass_id < 0 ? null : await getPass(state.pass_id).catch(() => null);
      this.store.reset(state, record);
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
