// Why the chosen request is or isn't in the shown pass, as the server explains it from the log.
import { getWhy } from "api";
import { $, setAttr, setText } from "dom";
import { selection } from "selection";
import { whyCode } from "why";

const EVERY_MS = 400; // while passes rush by

/** Follows the selection and the shown pass; one question at a time. */
export class WhyPanel {
  constructor(store) {
    this.store = store;
    this.asked = this.answered = null; // request and pass
    this.askedAt = -EVERY_MS;
    selection.onChange(() => this.render());
    $("why-close").addEventListener("click", () => selection.choose(null));
  }

  render() {
    const { reqId } = selection;
    setAttr($("why-panel"), "data-chosen", reqId === null ? null : "");
    if (reqId === null) return this.#rest();
    const passId = this.store.shown()?.record.pass_id ?? null;
    if (this.reqId !== reqId) this.#begin(reqId);
    // the gate decides what is said of a pass that has not run
    const question = JSON.stringify([reqId, passId, passId === null && this.store.state.seq]);
    if (question !== this.answered) this.#ask(question, reqId, passId);
  }

  #rest() {
    this.reqId = this.asked = this.answered = null;
    this.#show("click a request or row", "", "");
  }

  #begin(reqId) {
    this.reqId = reqId;
    this.#show(reqId, "", "");
  }

  #ask(question, reqId, passId) {
    if (this.asked !== null) return; // its answer renders anew
    const wait = EVERY_MS - (performance.now() - this.askedAt);
    const still = this.store.paused || !this.store.live;
    if (wait > 0 && !still) {
      this.timer ??= setTimeout(() => {
        this.timer = null;
        this.render();
      }, wait);
      return;
    }
    this.#fetch(question, reqId, passId);
  }

  async #fetch(question, reqId, passId) {
    [this.asked, this.askedAt] = [question, performance.now()];
    let reply;
    try {
      reply = await getWhy(reqId, passId);
    } catch (error) {
      reply = { pass: passId, error: error.message };
    }
    if (this.asked !== question) return; // another was chosen meanwhile
    [this.asked, this.answered] = [null, question];
    const { pass, error, code, numbers, text } = reply;
    setAttr($("why-text"), "class", error ? "error" : null);
    this.#show(`${reqId} in pass ${pass ?? "–"}`, error ?? text, error ? "" : whyCode(code, numbers));
    this.render();
  }

  #show(about, text, code) {
    setText($("why-about"), about);
    setText($("why-text"), text);
    setText($("why-code"), code);
  }
}
