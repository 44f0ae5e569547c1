// Tells in the header how the recording goes, and says so where it has stopped.
import { getRecording } from "api";
import { $, el, setAttr, setText } from "dom";

const EVERY_MS = 3000;

/** Shows nothing where the server records nothing. */
export async function watchRecording() {
  if ((await look()) === null) return;
  setInterval(look, EVERY_MS);
}

async function look() {
  const status = await getRecording().catch(() => undefined);
  if (status) show(status);
  return status;
}

function show({ file, passes, bytes, stopped, missed }) {
  const label = $("recording") ?? el("p", { id: "recording", role: "status" });
  if (!label.isConnected) $("link").after(label);
  setAttr(label, "class", stopped ? "error" : "quiet");
  setAttr(label, "title", stopped ?? file);
  setText(label, stopped ? `not recorded: ${missed} entries` : `● rec ${(bytes / 1e6).toFixed(1)} MB`);
  setAttr(label, "aria-label", stopped ? `Recording has stopped: ${stopped}` : `${passes} passes recorded in ${file}`);
}
