// On which side of the executor a phase runs.
export { duration } from "template";

const CORE = new Set(["schedule", "execute_model", "grammar_bitmask", "process_aborts", "update_from_output"]);

/** "core" or "runner". */
export function sideOf(name) {
  return CORE.has(name) ? "core" : "runner";
}
