// One card a request: its prompt, its text as it streams, why it waits, and a way to cancel it.
import { cancelRequest } from "api";
import { $, el, setAttr, setText } from "dom";
import { hover } from "hover";
import { factsOf } from "row_states";
import { whySentence } from "why";

const STATUS = { WAITING: "waiting", RUNNING: "running", PREEMPTED: "preempted" };

/** The list of requests, newest first. It always shows the present, also while an older pass is looked at. */
export class Requests {
  constructor(store, vocab) {
    this.store = store;
    this.vocab = vocab;
    this.cards = new Map();
    hover.onChange(() => this.#light());
    $("requests").addEventListener("keydown", (event) => this.#key(event));
  }

  render() {
    const { requests } = this.store.state;
    for (const [reqId, card] of this.cards) {
      if (requests.get(reqId) !== card.request) this.#drop(reqId);
    }
    const why = factsOf(this.store.segments.at(-1)?.passes.at(-1)?.record, "schedule").why ?? {};
    const count = { running: 0, waiting: 0 };
    for (const [reqId, request] of requests) {
      const card = this.cards.get(reqId) ?? this.#add(reqId, request);
      this.#update(card, request, why[reqId]);
      if (request.status === "RUNNING") count.running += 1;
      else if (!request.finish_reason) count.waiting += 1;
    }
    setText($("requests-count"), `${count.running} running, ${count.waiting} waiting`);
  }

  #add(reqId, request) {
    const part = (name, tag = "div") => el(tag, { class: name });
    const button = (name, title, text) => el("button", { type: "button", tabindex: -1, class: name, title }, text);
    const id = button("id", `${reqId}: show all of its text`, reqId);
    const cancel = button("cancel", `cancel ${reqId}`, "✕");
    setAttr(id, "aria-expanded", false);
    setAttr(cancel, "aria-label", `cancel ${reqId}`);
    const card = { node: el("li", { class: "card", "data-request": reqId }), request, id, cancel, seen: 0 };
    for (const name of ["prompt", "output", "why", "error"]) card[name] = part(name);
    for (const name of ["status", "counts"]) card[name] = part(name, "span");
    card.text = document.createTextNode("");
    card.output.append(el("div", { class: "text" }, card.text)); // its last lines show, without a look at its height
    card.error.hidden = true;
    const head = el("div", { class: "head" }, id, card.counts, card.status, cancel);
    card.node.append(head, card.prompt, card.output, card.why, card.error);
    setText(card.prompt, this.vocab.text(request.prompt_token_ids ?? []));
    id.addEventListener("click", () => setAttr(id, "aria-expanded", card.node.classList.toggle("open")));
    cancel.addEventListener("click", () => this.#cancel(reqId, card));
    card.node.addEventListener("pointerenter", () => hover.set({ reqId, row: this.#rowOf(reqId) }));
    card.node.addEventListener("pointerleave", () => hover.set());
    this.cards.set(reqId, card);
    $("requests").prepend(card.node);
    return card;
  }

  #update(card, request, why) {
    this.#stream(card, request.output_token_ids);
    const ended = request.finish_reason;
    setText(card.status, ended ?? STATUS[request.status] ?? request.status?.toLowerCase() ?? "");
    setText(
      card.counts,
      `${request.num_prompt_tokens ?? "?"}+${request.output_token_ids.length}/${request.max_tokens ?? "∞"}`,
    );
    setAttr(card.node, "data-ended", ended ? "" : null);
    card.cancel.hidden = Boolean(ended);
    const sentence = ended ? "" : whySentence(why);
    setText(card.why, sentence);
    card.why.hidden = !sentence;
  }

  /** Append the text of the ids that came since the last call. */
  #stream(card, ids) {
    if (card.seen === ids.length) return;
    if (!card.stream || ids.length < card.seen) {
      card.stream = this.vocab.stream();
      card.text.data = "";
      card.seen = 0;
    }
    const text = card.stream.push(ids.slice(card.seen));
    card.seen = ids.length;
    card.text.appendData(text);
  }

  async #cancel(reqId, card) {
    try {
      await cancelRequest(reqId);
    } catch (error) {
      setText(card.error, error.message);
      card.error.hidden = false;
    }
  }

  /** Up and down go from card to card, delete cancels: one stop for the tab key, however many requests. */
  #key(event) {
    const card = event.target.closest(".card");
    const to = {
      ArrowDown: card ? card.nextElementSibling : $("requests").firstElementChild,
      ArrowUp: card?.previousElementSibling,
    };
    if (event.key === "Delete" && card) card.querySelector(".cancel").click();
    else if (event.key in to) to[event.key]?.querySelector(".id").focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #drop(reqId) {
    this.cards.get(reqId).node.remove();
    this.cards.delete(reqId);
  }

  #rowOf(reqId) {
    const row = this.store.rows().findIndex((held) => held?.req_id === reqId);
    return row < 0 ? null : row;
  }

  #light() {
    this.lit?.node.classList.remove("lit");
    this.lit = this.cards.get(hover.reqId);
    this.lit?.node.classList.add("lit");
  }
}
