// One card a request: its prompt, its text as it streams, why it waits, and a way to cancel it.
import { cancelRequest } from "api";
import { $, el, setAttr, setText } from "dom";
import { hover } from "hover";
import { links } from "links";
import { historyWords, rowHistory } from "row_history";
import { factsOf } from "row_states";
import { selection } from "selection";
import { lookOf } from "tints";

const STATUS = {
  WAITING: "waiting",
  WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR: "grammar",
  RUNNING: "running",
  PREEMPTED: "preempted",
};

const FIRST = 8; // of the newest one need not ask whether they can be seen
const NEAR = 2000; // px above and below what can be seen; cards further away are brought up to date when they come near

/** The list of requests, newest first, as they were at the shown moment. */
export class Requests {
  constructor(store, vocab, why) {
    Object.assign(this, { store, vocab, why });
    this.cards = new Map();
    links.onChange(() => this.#light());
    links.onBring(({ reqIds }) => this.cards.get(reqIds[0])?.node.scrollIntoView({ block: "nearest" }));
    $("requests").addEventListener("keydown", (event) => this.#key(event));
    this.sight = new IntersectionObserver((seen) => this.#sight(seen), {
      root: $("requests"),
      rootMargin: `${NEAR}px`,
    });
  }

  render() {
    const requests = this.store.requests();
    for (const [reqId, card] of this.cards) {
      if (requests.get(reqId)?.arrival_pass !== card.request.arrival_pass) this.#drop(reqId);
    }
    const why = (this.reasons = factsOf(this.store.record(), "schedule").why ?? {});
    const count = { running: 0, waiting: 0 };
    let [older, left] = [null, requests.size];
    for (const [reqId, request] of requests) {
      left -= 1;
      const card = this.cards.get(reqId) ?? this.#add(reqId, request, left < FIRST);
      const placed = card.node.isConnected && card.node.nextElementSibling === older;
      if (!placed) $("requests").insertBefore(card.node, older);
      older = card.node;
      setAttr(card.node, "data-ended", request.finish_reason ? "" : null);
      if (card.near) this.#update(card, request, why[reqId]);
      if (request.status === "RUNNING") count.running += 1;
      else if (!request.finish_reason) count.waiting += 1;
    }
    setText($("requests-count"), `${count.running} running, ${count.waiting} waiting`);
    this.#light();
  }

  #sight(seen) {
    for (const { target, isIntersecting } of seen) {
      const reqId = target.dataset.request;
      const [card, request] = [this.cards.get(reqId), this.store.requests().get(reqId)];
      if (!card || !request) continue;
      card.near = isIntersecting;
      if (card.near) this.#update(card, request, this.reasons[reqId]);
    }
    this.#light();
  }

  /** A card is empty until one comes near it: of most requests in a long list nobody looks at more than the newest. */
  #add(reqId, request, near) {
    const card = { node: el("li", { class: "card", "data-request": reqId }), request, seen: 0, near };
    card.node.addEventListener("click", (event) => this.#choose(event, card, reqId));
    for (const name of ["pointerenter", "focusin"]) card.node.addEventListener(name, () => hover.set({ reqId }));
    for (const name of ["pointerleave", "focusout"]) card.node.addEventListener(name, () => hover.set());
    this.cards.set(reqId, card);
    this.sight.observe(card.node);
    return card;
  }

  #fill(card) {
    const { request, node } = card;
    const reqId = node.dataset.request;
    const part = (name, tag = "div") => el(tag, { class: name });
    const button = (name, title, text) => el("button", { type: "button", tabindex: -1, class: name, title }, text);
    const id = button("id", `${reqId}: show all of its text`, reqId);
    const cancel = button("cancel", `cancel ${reqId}`, "✕");
    setAttr(id, "aria-expanded", false);
    setAttr(cancel, "aria-label", `cancel ${reqId}`);
    Object.assign(card, { id, cancel, filled: true });
    for (const name of ["prompt", "rows", "output", "why", "error"]) card[name] = part(name);
    for (const name of ["status", "counts"]) card[name] = part(name, "span");
    card.text = document.createTextNode("");
    card.output.append(el("div", { class: "text" }, card.text)); // its last lines show, without a look at its height
    card.error.hidden = card.rows.hidden = true;
    const { tint, pattern } = lookOf(reqId);
    const look = el("span", { class: "look", "data-tint": tint, "data-pattern": pattern });
    const head = el("div", { class: "head" }, look, id, card.counts, card.status, cancel);
    node.append(head, card.rows, card.prompt, card.output, card.why, card.error);
    setText(card.prompt, this.vocab.text(request.prompt_token_ids ?? []));
    id.addEventListener("click", () => setAttr(id, "aria-expanded", node.classList.toggle("open")));
    cancel.addEventListener("click", () => this.#cancel(reqId, card));
  }

  #update(card, request, why) {
    if (!card.filled) this.#fill(card);
    this.#stream(card, request.output_token_ids);
    const ended = request.finish_reason;
    const row = ended ? null : links.rowOf(card.node.dataset.request);
    setText(card.status, row === null ? (ended ?? STATUS[request.status] ?? request.status ?? "") : `row ${row}`);
    setText(
      card.counts,
      `${request.num_prompt_tokens ?? "?"}+${request.output_token_ids.length}/${request.max_tokens ?? "∞"}`,
    );
    card.cancel.hidden = Boolean(ended);
    const sentence = ended || !why || why[0] === "scheduled" ? "" : this.why.sentence(...why);
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

  /** A click chooses the request, one on its name also while it is chosen; else a second one lets it go. */
  #choose({ target }, card, reqId) {
    if (target === card.cancel) return;
    if (target === card.id) selection.choose(reqId);
    else selection.toggle(reqId);
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
    const { node } = this.cards.get(reqId);
    this.sight.unobserve(node);
    node.remove();
    this.cards.delete(reqId);
    if (selection.reqId === reqId && !this.store.state.requests.has(reqId)) selection.choose(null);
  }

  /** Light the cards of what is pointed at; those and the chosen one tell which rows they have had. */
  #light() {
    const { pointed, chosen } = links;
    for (const [reqId, card] of this.cards) {
      const lit = pointed?.reqIds.includes(reqId) ?? false;
      const kept = chosen?.reqIds.includes(reqId) ?? false;
      card.node.classList.toggle("lit", lit);
      setAttr(card.node, "data-chosen", kept ? "" : null);
      if (!card.filled) continue;
      const rows = lit || kept ? historyWords(rowHistory(this.store, reqId)) : "";
      setAttr(card.node, "title", rows || null);
      card.rows.hidden = !kept || !rows;
      setText(card.rows, kept ? rows : "");
    }
  }
}
