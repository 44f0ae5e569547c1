// Vendored bundles that are loaded when they are first needed: from the server, or from the page itself where it is an
// exported one, which holds them deflated.
import { el } from "dom";

const FILES = { Plotly: "plotly-basic.min.js", modernScreenshot: "modern-screenshot.js" };
const loading = new Map();

/** The global that a bundle defines, by its name. Rejects where the bundle cannot be loaded. */
export function late(name) {
  if (!loading.has(name)) {
    const loaded = load(FILES[name]).then(() => globalThis[name]);
    loading.set(name, loaded);
    loaded.catch(() => loading.delete(name));
  }
  return loading.get(name);
}

async function load(file) {
  const held = document.getElementById(`late-${file}`);
  const script = el("script");
  if (held) {
    script.textContent = await inflated(held.textContent);
    document.head.append(script);
  } else {
    script.src = new URL(`vendor/${file}`, import.meta.url);
    await new Promise((resolve, reject) => {
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${script.src} could not be loaded. Is the server still running?`));
      document.head.append(script);
    });
  }
}

async function inflated(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}
