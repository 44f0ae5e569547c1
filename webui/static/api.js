// HTTP calls to the server. Each failure is an Error whose message can be shown as it is.
import { request as fetchFrom } from "source";

async function call(method, path, body) {
  let reply;
  try {
    reply = await fetchFrom(path, {
      method,
      cache: "no-store",
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Error("The server does not answer. Is `batchscope serve` still running?");
  }
  if (!reply.ok) throw new Error(await wordsOf(reply));
  return reply;
}

async function wordsOf(reply) {
  const text = await reply.text();
  try {
    const { error, message } = JSON.parse(text);
    return error?.message ?? (typeof error === "string" ? error : message) ?? text;
  } catch {
    const plain = /<html|<!doctype/i.test(text) ? "" : text.trim();
    return plain || `The server answered ${reply.status} ${reply.statusText}.`;
  }
}

const json = async (method, path, body) => (await call(method, path, body)).json();

export const getConfig = () => json("GET", "/api/config");
export const getState = () => json("GET", "/api/state");
export const getWhy = (reqId, passId) =>
  json("GET", `/api/why?request=${encodeURIComponent(reqId)}${passId === null ? "" : `&pass=${passId}`}`);
export const getRecording = () => json("GET", "/api/trace/recording");
export const getTraceIndex = () => json("GET", "/api/trace/index");
export const getSamples = async () => (await json("GET", "/api/samples")).samples;
export const postRequest = (request) => json("POST", "/api/requests", request);
export const postControl = (action, fields = {}) => json("POST", "/api/control", { action, ...fields });
export const postProfile = (passes) => json("POST", "/api/profile", { passes });
export const cancelRequest = (reqId) => call("DELETE", `/api/requests/${encodeURIComponent(reqId)}`);
export const getEngines = () => json("GET", "/api/engines");
export const deleteEngine = (id) => json("DELETE", `/api/engines/${encodeURIComponent(id)}`);
export const getPresets = async () => (await json("GET", "/api/presets")).presets;
export const postPreset = (name, replace) => json("POST", `/api/presets/${encodeURIComponent(name)}`, { replace });
export const postControlOf = (engineId, action) =>
  json("POST", `/api/control?engine=${encodeURIComponent(engineId)}`, { action });

/** The vocabulary as { tokens: Uint8Array[], special: number[] }. It never changes: the browser may keep it. */
export async function getVocab() {
  const reply = await fetchFrom("/api/vocab");
  if (!reply.ok) throw new Error(await wordsOf(reply));
  return globalThis.MessagePack.decode(new Uint8Array(await reply.arrayBuffer()));
}

/** The bytes of one block of the trace, as trace_block reads them. It never changes: the browser may keep it. */
export async function getTraceBlock(number) {
  const reply = await fetchFrom(`/api/trace/blocks/${number}`);
  if (!reply.ok) throw new Error(await wordsOf(reply));
  return new Uint8Array(await reply.arrayBuffer());
}

/** null while the engine is well, else why it is not, in words. */
export async function whyUnhealthy() {
  try {
    const reply = await fetchFrom("/health", { cache: "no-store" });
    if (!reply.ok) return await wordsOf(reply);
    await reply.text(); // left unread it would count as aborted
    return null;
  } catch {
    return null; // the socket tells when the server is gone
  }
}
