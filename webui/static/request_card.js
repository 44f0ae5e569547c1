// The card of one request after the other: its prompt, its text as it streams, why it waits, and a way to cancel it.
import { cancelRequest } from "api";
import { el, setAttr, setText } from "dom";
import { lookOf } from "tints";

const STATUS = {
  WAITING: "waiting",
  WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR: "grammar",
  RUNNING: "running",
  PREEMPTED: "preempted",
};

/** Empty until it is near what can be seen: of most requests in a long list nobody looks at more than the newest. */
export class RequestCard {
  constructor(vocab) {
    this.vocab = vocab;
    this.node = el("li", { class: "card" });
    this.visible = this.near = this.filled = false;
    this.seen = 0; // output tokens in its text
  }

  /** Be the card of another request. */
  name(reqId, request) {
    Object.assign(this, { reqId, request });
    setAttr(this.node, "data-request", reqId);
    this.node.classList.remove("open");
    if (this.filled && !this.visible) this.#empty();
    else if (this.filled) this.#rename();
  }

  /**
   * Show the request as it is; `row` is its row, null for none, `sentence` says why it waits, "" for nothing, and
   * `fixed` that it is of the past: it cannot be cancelled.
   */
  update(request, row, sentence, fixed = false) {
    if (!this.filled) this.#fill();
    this.#stream(request.output_token_ids);
    const ended = request.finish_reason;
    setText(this.status, row === null ? (ended ?? STATUS[request.status] ?? request.status ?? "") : `row ${row}`);
    setText(
      this.counts,
      `${request.num_prompt_tokens ?? "?"}+${request.output_token_ids.length}/${request.max_tokens ?? "∞"}`,
    );
    this.cancel.hidden = fixed || Boolean(ended);
    setText(this.why, sentence);
    this.why.hidden = !sentence;
  }

  /** Light it where it is pointed at, frame it where it was chosen; `rows` are the rows that it has had, in words. */
  light(lit, chosen, rows) {
    this.node.classList.toggle("lit", lit);
    setAttr(this.node, "data-chosen", chosen ? "" : null);
    if (!this.filled) return;
    setAttr(this.node, "title", rows || null);
    this.rows.hidden = !chosen || !rows;
    setText(this.rows, chosen ? rows : "");
  }

  #fill() {
    const part = (name, tag = "div") => el(tag, { class: name });
    const button = (name, text) => el("button", { type: "button", tabindex: -1, class: name }, text);
    Object.assign(this, { id: button("id", ""), cancel: button("cancel", "✕"), look: part("look", "span") });
    for (const name of ["prompt", "rows", "output", "why", "error"]) this[name] = part(name);
    for (const name of ["status", "counts"]) this[name] = part(name, "span");
    this.text = document.createTextNode("");
    this.output.append(el("div", { class: "text" }, this.text)); // its last lines show, without a look at its height
    this.rows.hidden = true;
    const head = el("div", { class: "head" }, this.look, this.id, this.counts, this.status, this.cancel);
    this.node.append(head, this.rows, this.prompt, this.output, this.why, this.error);
    this.id.addEventListener("click", () => setAttr(this.id, "aria-expanded", this.node.classList.toggle("open")));
    this.cancel.addEventListener("click", () => this.#cancel(this.reqId));
    this.filled = true;
    this.#rename();
  }

  #empty() {
    this.node.replaceChildren();
    this.node.removeAttribute("title");
    this.filled = false;
  }

  /** Say whose card it is, and begin its text anew. */
  #rename() {
    const { reqId, request } = this;
    setText(this.id, reqId);
    setAttr(this.id, "title", `${reqId}: show all of its text`);
    setAttr(this.id, "aria-expanded", false);
    setAttr(this.cancel, "title", `cancel ${reqId}`);
    setAttr(this.cancel, "aria-label", `cancel ${reqId}`);
    const { tint, pattern } = lookOf(reqId);
    setAttr(this.look, "data-tint", tint);
    setAttr(this.look, "data-pattern", pattern);
    setText(this.prompt, this.vocab.text(request.prompt_token_ids ?? []));
    this.error.hidden = true;
    this.stream = null;
  }

  /** Append the text of the ids that came since the last call. */
  #stream(ids) {
    if (this.stream && this.seen === ids.length) return;
    if (!this.stream || ids.length < this.seen) {
      this.stream = this.vocab.stream();
      this.text.data = "";
      this.seen = 0;
    }
    const text = this.stream.push(ids.slice(this.seen));
    this.seen = ids.length;
    this.text.appendData(text);
  }

  async #cancel(reqId) {
    try {
      await cancelRequest(reqId);
    } catch (error) {
      if (this.reqId !== reqId) return;
      setText(this.error, error.message);
      this.error.hidden = false;
    }
  }
}
