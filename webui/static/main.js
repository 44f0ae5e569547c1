// Puts the page together: loads what never changes, then draws once a frame when something has.
import { getConfig, getVocab } from "api";
import { BatchGrid } from "batch_grid";
import { Chips } from "chips";
import { Detail } from "detail";
import { $, setText } from "dom";
import { Handoff } from "handoff";
import { hover } from "hover";
import { bindKeys } from "keys";
import { KvMap } from "kv_map";
import { Net } from "net";
import { Prompts } from "prompts";
import { watchRecording } from "recording";
import { Replay } from "replay";
import { ReplayTransport } from "replay_transport";
import { Requests } from "requests";
import { selection } from "selection";
import { Store } from "store";
import { Theme } from "theme";
import { TokenAxis } from "token_axis";
import { Transport } from "transport";
import { Vocab } from "vocab";
import { Why } from "why";
import { WhyPanel } from "why_panel";

const RETRY_MS = 2000;
const TICK_MS = 500; // the pass rate is looked at this often at least
const FADE_MS = 80; // what fades is drawn anew this often

async function load() {
  for (;;) {
    try {
      const [config, vocab] = await Promise.all([getConfig(), getVocab()]);
      return { config, vocab: new Vocab(vocab) };
    } catch (error) {
      setText($("notice"), error.message);
      $("notice").hidden = false;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

class Page {
  constructor({ config, vocab }) {
    this.store = new Store(config.max_num_seqs);
    this.theme = new Theme(() => this.changed());
    this.transport = config.replay
      ? new ReplayTransport(this.store, () => this.changed(), config, () => this.net)
      : new Transport(this.store, () => this.changed());
    this.chips = new Chips(config.phases, (name) => this.showPhase(name));
    this.axis = new TokenAxis(this.store, this.theme, vocab, config.block_size);
    this.grid = new BatchGrid(this.store, this.theme, config.block_size, (row) => this.axis.showRow(row));
    this.kvMap = new KvMap(this.store, this.theme, vocab, config);
    this.views = [
      new Requests(this.store, vocab, new Why(config.why)),
      this.axis,
      new Handoff(this.store, vocab),
      new WhyPanel(this.store),
      new Detail(this.store),
    ];
    this.net = new (config.replay ? Replay : Net)(this.store, (link) => this.transport.setLink(link));
    if (config.replay) {
      $("prompt-form").parentElement.remove();
    } else {
      new Prompts();
      watchRecording();
    }
    this.#keys();
    setText($("model"), config.model);
  }

  async start() {
    await this.net.start();
    globalThis.__model = model(this.store);
    setInterval(() => this.changed(), TICK_MS);
    const frame = () => {
      requestAnimationFrame(frame);
      this.net.drain();
      if (this.dirty || this.store.version !== this.drawn) this.#render();
      else if (this.fading.length && performance.now() - this.fadedAt > FADE_MS) this.#fade(this.fading);
    };
    frame();
  }

  changed() {
    this.dirty = true;
  }

  showPhase(name) {
    this.store.showPhase(name);
  }

  #render() {
    const shown = this.store.shown();
    [this.drawn, this.dirty] = [this.store.version, false];
    this.transport.render(shown);
    this.chips.render(shown?.record, this.store.phase);
    this.#fade([this.grid, this.kvMap]);
    for (const view of this.views) view.render();
    this.#summary(shown);
  }

  /** Draw views that say whether something in them still has to fade; those are drawn again when nothing new comes. */
  #fade(views) {
    this.fadedAt = performance.now();
    this.fading = views.filter((view) => view.render());
  }

  /** Tell screen readers about the pass when it stands still. */
  #summary(shown) {
    if (!shown || !(this.store.frozen || this.store.paused || !this.store.live)) return;
    const texts = ["batch-count", "axis-count", "kv-count", "handoff-line"].map((id) => $(id).textContent);
    setText($("summary"), [`Pass ${shown.record.pass_id}`, ...texts].join(". "));
  }

  #keys() {
    const { transport, theme, grid, axis, store, chips, kvMap } = this;
    const help = () => ($("keys").open ? $("keys").close() : $("keys").showModal());
    $("help").addEventListener("click", help);
    bindKeys({
      help,
      pauseOrResume: () => transport.pauseOrResume(),
      step: () => transport.step(),
      forwardOrStep: () => transport.forwardOrStep(),
      back: () => transport.walk(-1),
      live: () => transport.goLive(),
      phase: (by) => this.showPhase(chips.neighbour(store.phase, by)),
      wholePass: () => this.showPhase(null),
      row: (by) => grid.chooseRow(by),
      why: () => selection.toggle(hover.reqId ?? hover.owners[0] ?? null),
      kvMap: () => kvMap.toggle(),
      token: (by) => axis.chooseToken(by),
      theme: () => theme.nextTheme(),
      type: () => theme.toggleType(),
    });
  }
}

/** What tests and the console may read: plain copies, never the state itself. */
function model(store) {
  const copy = (value) => structuredClone(value);
  return Object.freeze({
    get seq() {
      return store.state.seq;
    },
    get passId() {
      return store.state.pass_id;
    },
    get rows() {
      return copy(store.state.rows);
    },
    get requests() {
      return Object.fromEntries(copy(store.state.requests));
    },
    get blocks() {
      return Object.fromEntries(copy(store.state.blocks));
    },
    get finished() {
      return copy(store.state.finished);
    },
    get gate() {
      return copy(store.state.gate);
    },
    get shown() {
      const shown = store.shown();
      const states = store.states();
      return {
        passId: shown?.record.pass_id ?? null,
        phase: store.phase,
        live: store.live,
        rows: copy(store.rows()),
        states: Array.from(states.rows, ([row, state]) => ({ row, ...state })),
        left: copy(states.left),
        blocks: Object.fromEntries(copy(store.pool().blocks)),
        held: Object.fromEntries(copy(store.pool().held)),
        moments: Object.fromEntries(store.moments()),
        passes: store.passes().length,
      };
    },
  });
}

new Page(await load()).start();
