// The charts as Plotly wants them: stacked steps over passes, each series with a colour and a pattern of its own.
import { PARTS } from "chart_data";

// colour and pattern of each of PARTS
const TIMES = [
  ["decode", ""],
  ["strong-3", "/"],
  ["strong-4", "x"],
  ["strong-0", ""],
  ["sampled", "\\"],
  ["discarded", "+"],
  ["prefill", "."],
  ["computed", ""],
];

/** Each chart: what it is called, its unit, what is stacked and what is drawn as lines, as [name, colour, look]. */
export const CHARTS = {
  tokens: {
    title: "tokens a pass",
    unit: "tokens",
    stacked: [
      ["prefill", "prefill", "/"],
      ["decode", "decode", ""],
    ],
  },
  blocks: {
    title: "KV blocks",
    unit: "blocks",
    stacked: [
      ["used", "strong-0", ""],
      ["cached", "computed", "/"],
      ["free", "panel", "."],
    ],
  },
  times: {
    title: "time by phase",
    unit: "ms",
    stacked: [...Object.keys(PARTS).map((part, i) => [part, ...TIMES[i]]), ["between", "panel", "."]],
  },
  rows: {
    title: "rows kept and touched",
    unit: "rows",
    stacked: [
      ["kept", "computed", ""],
      ["moved", "decode", "x"],
      ["entered", "prefill", "/"],
    ],
    lines: [["left", "discarded", "dash"]],
  },
  moves: {
    title: "rows moved",
    unit: "moves",
    stacked: [
      ["condensed", "decode", ""],
      ["swapped", "strong-3", "/"],
    ],
  },
};

/** What a chart shows, from the top of the stack down, as [name, colour, look]. */
export const seriesOf = (name) => [...(CHARTS[name].lines ?? []), ...CHARTS[name].stacked.toReversed()];

/** Plotly's { data, layout } of charts one above the other over the same passes, the shown pass marked by a line. */
export function figureOf(names, summaries, { shown, theme }) {
  const passes = summaries.map(({ pass }) => pass);
  const data = names.flatMap((name, at) => tracesOf(CHARTS[name], at, summaries, passes, theme));
  return { data, layout: layoutOf(names, passes, { shown, theme }) };
}

function tracesOf({ stacked, lines = [] }, at, summaries, passes, { colours }) {
  const axes = { x: passes, xaxis: "x", yaxis: axisName("y", at) };
  const common = { ...axes, type: "scatter", hoverinfo: "none", mode: passes.length < 2 ? "markers" : "lines" };
  const values = (name) => summaries.map((summary) => summary[name]);
  const areas = stacked.map(([name, colour, shape]) => {
    const [bgcolor, fgcolor] = [colours[colour], colours[colour === "panel" ? "line-strong" : "panel"]];
    const fillpattern = shape ? { shape, size: 6, solidity: 0.25, bgcolor, fgcolor } : undefined;
    const line = { shape: "hvh", width: 0, color: bgcolor };
    return { ...common, name, y: values(name), stackgroup: String(at), fillcolor: bgcolor, fillpattern, line };
  });
  const others = lines.map(([name, colour, dash]) => {
    return { ...common, name, y: values(name), line: { shape: "hvh", width: 1.5, dash, color: colours[colour] } };
  });
  return [...areas, ...others];
}

const axisName = (letter, at) => (at ? `${letter}${at + 1}` : letter);

function layoutOf(names, passes, { shown, theme }) {
  const { colours, px, font } = theme;
  const gap = names.length > 1 ? 0.04 : 0;
  const tall = (1 - gap * (names.length - 1)) / names.length;
  const grid = { color: colours.quiet, gridcolor: colours.line, zerolinecolor: colours.line, fixedrange: false };
  const layout = {
    uirevision: names.join(" "), // zooming is kept while the same charts are drawn
    showlegend: false,
    font: { family: font, size: 0.8 * px, color: colours.ink },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    margin: { l: 3.6 * px, r: 0.3 * px, t: 0.4 * px, b: 1.5 * px },
    hovermode: "x",
    xaxis: { ...grid, range: rangeOf(passes), tickformat: "d", anchor: axisName("y", names.length - 1) },
    shapes: shown === null ? [] : [markAt(shown, colours)],
  };
  names.forEach((name, at) => {
    const bottom = 1 - (at + 1) * tall - at * gap;
    const title = { text: CHARTS[name].unit, standoff: 0.2 * px, font: { size: 0.75 * px } };
    const domain = [Math.max(0, bottom), bottom + tall];
    layout[axisName("yaxis", at)] = { ...grid, domain, title, rangemode: "tozero", nticks: 4, fixedrange: true };
  });
  return layout;
}

function rangeOf(passes) {
  return passes.length ? [passes[0] - 0.5, passes.at(-1) + 0.5] : [0, 1];
}

function markAt(pass, colours) {
  const line = { color: colours.ink, width: 1.5, dash: "dot" };
  return { type: "line", xref: "x", yref: "paper", x0: pass, x1: pass, y0: 0, y1: 1, line };
}
