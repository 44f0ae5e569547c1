// Every key of the page, in one list that is also what `?` shows.
import { $, el } from "dom";

/**
 * Bind `actions`, a map from names below to functions; a key whose action is missing is neither bound nor listed. Keys
 * do nothing while one types in a field.
 */
export function bindKeys(actions) {
  const { row, token, phase, walkPhase } = actions;
  // Each with the keys that do it, or with the part of the page that has its own keys.
  const keys = [
    ["space", "pause or resume the engine", { " ": actions.pauseOrResume }],
    ["n", "step one pass", { n: actions.step }],
    ["→", "show the pass after; past the latest one, step", { ArrowRight: actions.forwardOrStep }],
    ["←", "show the pass before", { ArrowLeft: actions.back }],
    ["s", "go on to the next stop: before schedule, the hand-off, before update_from_output", { s: actions.stepStop }],
    ["b", "breakpoints", { b: actions.breakpoints }],
    ["home and end", "show the first pass, or the newest one", { Home: actions.first, End: actions.last }],
    ["g", "go to a pass by its number", { g: actions.jump }],
    ["l", "follow the latest pass again", { l: actions.live }],
    ["y", "play the passes from here on, or stop", { y: actions.play }],
    [
      ", and .",
      "the phase before or after, also in the pass before or after",
      { ",": [walkPhase, -1], ".": [walkPhase, 1] },
    ],
    ["[ and ]", "choose the phase before or after", { "[": [phase, -1], "]": [phase, 1] }],
    ["↑ and ↓", "point at a row of the batch", { ArrowUp: [row, -1], ArrowDown: [row, 1] }],
    [
      "shift ← and →",
      "point at a token of the pass",
      { "shift ArrowLeft": [token, -1], "shift ArrowRight": [token, 1] },
    ],
    ["w", "choose the token or request that is pointed at, and see why; or let it go", { w: actions.choose }],
    ["enter", "the same on the batch, the token axis or the KV map", "batch-scroll"],
    ["esc", "let go of what is chosen; then the whole pass again, no phase chosen", { Escape: actions.letGo }],
    ["arrows", "on the KV map: point at a block; on the requests: go from one to the next", "kv-scroll"],
    ["delete", "on the requests: cancel the one that has the focus", "requests"],
    ["c", "the code of the phase", { c: actions.code }],
    ["x", "give that panel more of the page, or less again", { x: actions.wide }],
    ["k", "show or hide the KV map", { k: actions.kvMap }],
    ["p", "type a prompt", { p: actions.prompt }],
    ["ctrl enter", "send the prompt", "prompt-form"],
    ["t", "theme", { t: actions.theme }],
    ["a", "large type", { a: actions.type }],
    ["?", "this list", { "?": actions.help }],
  ];
  const byKey = new Map();
  for (const [shown, does, how] of keys) {
    const bound = typeof how === "string" ? [] : Object.entries(how).map(([key, action]) => [key, actionOf(action)]);
    if (typeof how === "string" ? !$(how) : bound.some(([, action]) => !action)) continue;
    for (const [key, action] of bound) byKey.set(key, action);
    $("keys").querySelector("tbody").append(line(shown, does));
  }
  addEventListener("keydown", (event) => onKey(event, byKey));
  addEventListener("click", (event) => {
    // the pointer leaves the keys to the page
    if (event.detail > 0) event.target.closest?.("button")?.blur();
  });
}

/** A function, or a function and what it is called with. */
function actionOf(action) {
  if (!Array.isArray(action)) return action;
  const [act, by] = action;
  return act && (() => act(by));
}

function line(shown, does) {
  return el("tr", {}, el("td", {}, el("kbd", {}, shown)), el("td", {}, does));
}

function onKey(event, byKey) {
  const busy = document.querySelector("dialog[open]") || event.target.closest("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || busy) {
    if (event.key === "Escape") event.target.blur?.();
    return;
  }
  if (event.key === " " && event.target.closest("button")) return;
  const action = byKey.get(event.shiftKey && event.key.startsWith("Arrow") ? `shift ${event.key}` : event.key);
  if (!action) return;
  event.preventDefault();
  action();
}
