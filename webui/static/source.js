// Where the page's data comes from: the server, or the trace that an exported page holds itself.
import { embedded } from "embedded";

/** The id of the engine that this page shows. */
export const engineId = new URLSearchParams(location.search).get("engine") ?? "main";

/** fetch(path, options) about the engine that this page shows, answered by the page itself where it holds a trace. */
export const request = embedded() ?? ((path, options) => fetch(ofEngine(path), options));

function ofEngine(path) {
  if (engineId === "main") return path;
  return `${path}${path.includes("?") ? "&" : "?"}engine=${encodeURIComponent(engineId)}`;
}
