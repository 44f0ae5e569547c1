// Where the page's data comes from: the server, or the trace that an exported page holds itself.
import { embedded } from "embedded";

/** fetch(path, options), answered by the page itself where it holds a trace. */
export const request = embedded() ?? ((path, options) => fetch(path, options));
