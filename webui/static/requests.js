// The list of requests: a card each.
import { $, setAttr, setText } from "dom";
import { hover } from "hover";
import { links } from "links";
import { RequestCard } from "request_card";
import { historyWords, rowHistory } from "row_history";
import { factsOf } from "row_states";
import { selection } from "selection";

const FIRST = 8; // of the newest one need not ask whether they can be seen
const NEAR = 2000; // px above and below what can be seen; cards further away are brought up to date when they come near
const LATER_MS = 30; // and those that are near, but cannot be seen, so long after the others

/** The list of requests, newest first, as they were at the shown moment. */
export class Requests {
  constructor(store, vocab, why) {
    Object.assign(this, { store, vocab, why });
    this.cards = new Map(); // by request id
    links.onChange(() => this.#light());
    links.onBring(({ reqIds }) => this.cards.get(reqIds[0])?.node.scrollIntoView({ block: "nearest" }));
    this.sights = [0, NEAR].map((margin) => this.#sight(margin));
    this.#listen();
  }

  #listen() {
    const list = $("requests");
    const point = (event) => hover.set({ reqId: this.#cardAt(event)?.reqId ?? null });
    for (const name of ["pointerover", "focusin"]) list.addEventListener(name, point);
    for (const name of ["pointerleave", "focusout"]) list.addEventListener(name, () => hover.set());
    list.addEventListener("click", (event) => this.#choose(event));
    list.addEventListener("keydown", (event) => this.#key(event));
  }

  render() {
    const requests = this.store.requests();
    const spare = this.#forget(requests);
    this.reasons = factsOf(this.store.record(), "schedule").why ?? {};
    const count = { running: 0, waiting: 0 };
    let [older, left] = [null, requests.size];
    for (const [reqId, request] of requests) {
      left -= 1;
      const card = this.cards.get(reqId) ?? this.#add(reqId, request, spare.shift());
      const placed = card.node.isConnected && card.node.nextElementSibling === older;
      if (!placed) $("requests").insertBefore(card.node, older);
      older = card.node;
      setAttr(card.node, "data-ended", request.finish_reason ? "" : null);
      if (card.visible || left < FIRST) this.#update(card, request);
      if (request.status === "RUNNING") count.running += 1;
      else if (!request.finish_reason) count.waiting += 1;
    }
    for (const { node } of spare) {
      for (const sight of this.sights) sight.unobserve(node);
      node.remove();
    }
    this.later ??= setTimeout(() => this.#updateNear(), LATER_MS);
    setText($("requests-count"), `${count.running} running, ${count.waiting} waiting`);
    this.#light();
  }

  /** Take out the cards of requests that are not there any more. Returns them, oldest first, to be used again. */
  #forget(requests) {
    const spare = [];
    for (const [reqId, card] of this.cards) {
      if (requests.get(reqId)?.arrival_pass === card.request.arrival_pass) continue;
      this.cards.delete(reqId);
      spare.push(card);
      if (selection.reqId === reqId && !this.store.state.requests.has(reqId)) selection.choose(null);
    }
    return spare;
  }

  #add(reqId, request, card) {
    if (!card) {
      card = new RequestCard(this.vocab);
      for (const sight of this.sights) sight.observe(card.node);
    }
    card.name(reqId, request);
    this.cards.set(reqId, card);
    return card;
  }

  /** Notices cards that come nearer to what can be seen than so many px, or go away. */
  #sight(margin) {
    const came = (seen) => {
      for (const { target, isIntersecting } of seen) {
        const card = this.cards.get(target.dataset.request);
        if (card) card[margin ? "near" : "visible"] = isIntersecting;
        if (isIntersecting) this.#updateNow(card);
      }
      this.#light();
    };
    return new IntersectionObserver(came, { root: $("requests"), rootMargin: `${margin}px` });
  }

  #updateNear() {
    this.later = null;
    for (const card of this.cards.values()) if (card.near && !card.visible) this.#updateNow(card);
    this.#light();
  }

  #updateNow(card) {
    const request = this.store.requests().get(card?.reqId);
    if (request) this.#update(card, request);
  }

  #update(card, request) {
    const [ended, why] = [request.finish_reason, this.reasons[card.reqId]];
    const sentence = ended || !why || why[0] === "scheduled" ? "" : this.why.sentence(...why);
    card.update(request, ended ? null : links.rowOf(card.reqId), sentence, this.store.frozen || !this.store.live);
  }

  #cardAt({ target }) {
    return this.cards.get(target.closest(".card")?.dataset.request);
  }

  /** A click chooses the request, one on its name also while it is chosen; else a second one lets it go. */
  #choose(event) {
    const [card, { target }] = [this.#cardAt(event), event];
    if (!card || target === card.cancel) return;
    if (target === card.id) selection.choose(card.reqId);
    else selection.toggle(card.reqId);
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

  /** Light the cards of what is pointed at; those and the chosen one tell which rows they have had. */
  #light() {
    const { pointed, chosen } = links;
    for (const [reqId, card] of this.cards) {
      const lit = pointed?.reqIds.includes(reqId) ?? false;
      const kept = chosen?.reqIds.includes(reqId) ?? false;
      card.light(lit, kept, lit || kept ? historyWords(rowHistory(this.store, reqId)) : "");
    }
  }
}
