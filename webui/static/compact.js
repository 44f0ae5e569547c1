// The page in a frame beside another engine's: only the batch and its cost.
import { summaryOf } from "chart_data";
import { $, setText } from "dom";

const PASSES = 16; // that means are taken over
const UPDATE = "update the batch";

/** Whether this page is to be compact: it is one of two, side by side. */
export const compact = new URLSearchParams(location.search).has("compact");
if (compact) document.documentElement.dataset.compact = "";

/** What the shown pass costs, and the passes before it on average: rows kept and written anew, and milliseconds. */
export class Cost {
  constructor(store, near) {
    Object.assign(this, { store, near });
    this.records = new Map();
    $("cost-panel").hidden = false;
  }

  render() {
    const record = this.store.shown()?.record;
    if (!record || record.partial || record === this.drawn) return;
    this.drawn = record;
    this.#fill($("cost-pass"), costOf(record));
    this.#mean(record.pass_id);
  }

  async #mean(passId) {
    if (this.asking) return;
    this.asking = true;
    const records = await this.near(passId, PASSES).catch(() => []);
    this.asking = false;
    const costs = records.filter((record) => !record.partial).map(costOf);
    if (!costs.length) return;
    const mean = Object.fromEntries(
      Object.keys(costs[0]).map((name) => [name, costs.reduce((sum, cost) => sum + cost[name], 0) / costs.length]),
    );
    this.#fill($("cost-mean"), mean);
    setText($("cost-over"), `mean of ${costs.length}`);
  }

  #fill(line, cost) {
    const shown = [
      ...["kept", "anew", "left"].map((name) => cost[name].toFixed(Number.isInteger(cost[name]) ? 0 : 1)),
      ...["update", "whole"].map((name) => cost[name].toFixed(name === "update" ? 3 : 2)),
    ];
    shown.forEach((text, i) => setText(line.cells[i + 1], text));
  }
}

/** kept: rows that stayed where they were; anew: rows written whole, or moved; left: rows taken out; times in ms. */
function costOf(record) {
  const { kept, moved, entered, left, ...rest } = summaryOf(record);
  const whole = Math.max(0, ...record.phases.map(({ end }) => end)) / 1e6;
  return { kept, anew: entered + moved, left, update: rest[UPDATE], whole };
}
