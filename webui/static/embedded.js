// The routes of `batchscope replay`, answered from the trace inside an exported page. Nothing leaves the page.
import { explain } from "explain";
import { openTrace } from "trace_file";

/** A stand-in for fetch, or null where the page holds no trace. */
export function embedded() {
  const holder = document.getElementById("trace");
  if (!holder) return null;
  const config = JSON.parse(document.getElementById("trace-config").textContent);
  let opening = null;
  return async (path, { method = "GET" } = {}) => {
    opening ??= openTrace(bytesOf(holder));
    try {
      return await answer(await opening, config, method, new URL(path, "trace:///"));
    } catch (error) {
      return refuse(410, error.message);
    }
  };
}

async function answer(trace, config, method, { pathname, searchParams }) {
  if (method !== "GET") return refuse(409, `this page is a recording of ${config.model}: no engine runs behind it`);
  const block = /^\/api\/trace\/blocks\/(\d+)$/.exec(pathname);
  if (block) return new Response(trace.section(Number(block[1])));
  switch (pathname) {
    case "/api/config":
      return Response.json(config);
    case "/api/vocab":
      return new Response(await trace.vocabulary());
    case "/api/trace/index":
      return Response.json({
        blocks: trace.spans,
        passes: trace.passes,
        oldest_block: 0,
        created: config.replay.created,
      });
    case "/api/why":
      return Response.json(await explain(trace, config, searchParams.get("request"), searchParams.get("pass")));
    default:
      return refuse(404, `there is nothing at ${pathname} in a recording`);
  }
}

function refuse(status, message) {
  return Response.json({ error: { message, code: status } }, { status });
}

function bytesOf(holder) {
  const binary = atob(holder.textContent);
  holder.textContent = ""; // the text is as long as the trace again
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}
