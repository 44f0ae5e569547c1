// The flat token axis of one pass: all rows end to end, as _prepare_inputs laid them out.
import { columnWidth, drawAxis, drawOverview, gutterWidth } from "axis_draw";
import { $, fillTable, setAttr, setText } from "dom";
import { hover } from "hover";
import { readout } from "readout";
import { factsOf, stepOf } from "row_states";

const TABLE_ROWS = 512; // the table twin shows the first tokens; a pass may have 8192
const TABLE_EVERY_MS = 1000;

/** Draws the prepare_inputs facts of the shown pass. Everything in `axis` is as recorded. */
export class TokenAxis {
  constructor(store, theme, vocab, blockSize) {
    Object.assign(this, { store, theme, vocab, blockSize });
    this.scroll = $("axis-scroll");
    this.scroll.addEventListener("scroll", () => this.#draw());
    $("axis").addEventListener("pointermove", (event) => this.point(this.#tokenAt(event.offsetX)));
    $("axis").addEventListener("pointerleave", () => hover.set());
    const jump = (event) => {
      if (event.buttons) this.#centre((event.offsetX / $("axis-overview").clientWidth) * this.count);
    };
    for (const name of ["pointerdown", "pointermove"]) $("axis-overview").addEventListener(name, jump);
    $("axis-table-toggle").addEventListener("click", () => this.#toggleTable());
    hover.onChange(() => {
      this.#draw();
      this.#readout();
    });
  }

  get count() {
    return this.axis?.ids.length ?? 0;
  }

  render() {
    const record = this.store.record();
    this.axis = axisOf(record, this.store.rows());
    setText(
      $("axis-count"),
      this.axis ? `${this.count} tokens of ${this.axis.starts.length - 1} rows` : this.#whyEmpty(record),
    );
    $("axis-track").style.width = `${gutterWidth(this.theme) + (this.count + 0.6) * columnWidth(this.theme)}px`;
    if (hover.token !== null) this.point(hover.token < this.count ? hover.token : null);
    this.#draw();
    this.#readout();
    this.#table();
  }

  /** Point at token `index` of the pass; null for none. */
  point(index) {
    if (index === null || !this.axis) return hover.set();
    const row = this.axis.rows[index];
    hover.set({
      token: index,
      row,
      reqId: this.axis.reqIds[row],
      block: Math.floor(this.axis.slots[index] / this.blockSize),
    });
  }

  /** Point at the token `by` places from the one that is pointed at. */
  chooseToken(by) {
    if (!this.count) return;
    const at = hover.token ?? this.axis.starts[hover.row ?? 0] - Math.max(0, by);
    const token = Math.max(0, Math.min(this.count - 1, at + by));
    this.point(token);
    const [left, width] = [
      token * columnWidth(this.theme) - this.scroll.scrollLeft,
      this.scroll.clientWidth - gutterWidth(this.theme),
    ];
    if (left < 0 || left + columnWidth(this.theme) > width) this.#centre(token);
  }

  /** Bring the span of a row into view. */
  showRow(row) {
    if (this.axis && row < this.axis.starts.length - 1)
      this.scroll.scrollLeft = this.axis.starts[row] * columnWidth(this.theme);
  }

  #whyEmpty(record) {
    if (!record) return "no pass yet";
    return this.store.phase === null ? "no tokens in this pass" : `not made yet at ${this.store.phase}`;
  }

  #centre(token) {
    const seen = this.scroll.clientWidth - gutterWidth(this.theme);
    this.scroll.scrollLeft = token * columnWidth(this.theme) - seen / 2;
  }

  #tokenAt(x) {
    const token = Math.floor((x - gutterWidth(this.theme) + this.scroll.scrollLeft) / columnWidth(this.theme));
    return x > gutterWidth(this.theme) && token >= 0 && token < this.count ? token : null;
  }

  #draw() {
    const width = this.scroll.clientWidth;
    $("axis").style.width = `${width}px`;
    const { theme, blockSize } = this;
    const view = { left: this.scroll.scrollLeft, theme, blockSize, hover, glyph: (id) => this.vocab.glyph(id) };
    drawAxis($("axis"), this.axis, view);
    drawOverview($("axis-overview"), this.axis, { ...view, seen: width - gutterWidth(this.theme) });
  }

  #readout() {
    const glyph = (id) => this.vocab.glyph(id);
    setText($("readout"), this.axis ? readout(this.axis, hover, this.blockSize, glyph) : "");
  }

  #toggleTable() {
    const shown = $("axis-table").classList.toggle("hidden-visually") === false;
    setAttr($("axis-table-toggle"), "aria-pressed", shown);
    for (const id of ["axis-scroll", "axis-overview"]) $(id).hidden = shown;
    setAttr($("axis-table"), "tabindex", shown ? 0 : -1);
    this.tableAt = 0;
    this.render();
  }

  /** The same tokens as a table, rewritten at rest or once a second. */
  #table() {
    const now = performance.now();
    if (!this.store.paused && this.store.live && now - (this.tableAt ?? 0) < TABLE_EVERY_MS) return;
    this.tableAt = now;
    const { axis } = this;
    const rows = Array.from({ length: Math.min(this.count, TABLE_ROWS) }, (_, i) => [
      i,
      axis.rows[i],
      axis.reqIds[axis.rows[i]] ?? "",
      this.vocab.glyph(axis.ids[i]),
      axis.positions[i],
      axis.slots[i],
      axis.logits.has(i) ? `${axis.logits.get(i)}${axis.discard[axis.rows[i]] ? " discarded" : ""}` : "",
    ]);
    fillTable($("axis-table").querySelector("tbody"), rows);
  }
}

/** The recorded arrays of a pass under short names; null where they are not made (yet). */
function axisOf(record, rows) {
  const facts = factsOf(record, "prepare_inputs");
  if (!facts.input_ids?.length) return null;
  const starts = facts.query_start_loc;
  return {
    ids: facts.input_ids,
    positions: facts.positions,
    slots: facts.slot_mapping,
    rows: facts.req_indices,
    starts,
    discard: facts.discard_request_mask,
    logits: new Map(facts.logits_indices.map((token, i) => [token, i])),
    reqIds: factsOf(record, "refresh_metadata").req_ids ?? rows.map((row) => row?.req_id),
    steps: facts.num_scheduled_tokens.map((count, row) => stepOf(rows[row], count)),
  };
}
