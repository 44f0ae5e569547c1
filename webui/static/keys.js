// Every key of the page, in one list that is also what `?` shows.
import { $, el } from "dom";

/** Bind `actions`, a map from names below to functions. Keys do nothing while one types in a field. */
export function bindKeys(actions) {
  const keys = [
    ["space", "pause or resume the engine", " ", actions.pauseOrResume],
    ["n or →", "step one pass; → goes forward while an older pass is shown", "n", actions.step],
    ["←", "show the pass before", "ArrowLeft", actions.back],
    ["l", "show the latest pass again", "l", actions.live],
    ["[ and ]", "choose the phase before or after", "[", () => actions.phase(-1)],
    ["esc", "the whole pass again, no phase chosen", "Escape", actions.wholePass],
    ["↑ and ↓", "choose a row of the batch", "ArrowUp", () => actions.row(-1)],
    ["shift ← and →", "choose a token of the pass", "shift ArrowLeft", () => actions.token(-1)],
    ["w", "why: choose the request that is pointed at, or let it go", "w", actions.why],
    ["k", "show or hide the KV map", "k", actions.kvMap],
    ["p", "type a prompt", "p", () => $("prompt")?.focus()],
    ["ctrl enter", "send the prompt", null, null],
    ["delete", "cancel the request that ↑ and ↓ chose in the list of requests", null, null],
    ["t", "theme", "t", actions.theme],
    ["a", "large type", "a", actions.type],
    ["?", "this list", "?", actions.help],
  ];
  const byKey = new Map(keys.map(([, , key, action]) => [key, action]));
  byKey
    .set("ArrowRight", actions.forwardOrStep)
    .set("]", () => actions.phase(1))
    .set("ArrowDown", () => actions.row(1));
  byKey.set("shift ArrowRight", () => actions.token(1));
  $("keys")
    .querySelector("tbody")
    .append(...keys.map(([shown, does]) => el("tr", {}, el("td", {}, el("kbd", {}, shown)), el("td", {}, does))));
  addEventListener("keydown", (event) => onKey(event, byKey));
  addEventListener("click", (event) => {
    // the pointer leaves the keys to the page
    if (event.detail > 0) event.target.closest?.("button")?.blur();
  });
}

function onKey(event, byKey) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("keys").open || event.target.closest("input, textarea")) {
    if (event.key === "Escape") event.target.blur?.();
    return;
  }
  if (event.key === " " && event.target.closest("button")) return;
  const action = byKey.get(event.shiftKey && event.key.startsWith("Arrow") ? `shift ${event.key}` : event.key);
  if (!action) return;
  event.preventDefault();
  action();
}
