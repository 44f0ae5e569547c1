// Puts the page together: loads what never changes, then draws once a frame when something has.
import { address, runName } from "address";
import { getConfig, getVocab } from "api";
import { BatchGrid } from "batch_grid";
import { Charts } from "charts";
import { Chips } from "chips";
import { collapsible } from "collapse";
import { compact, Cost } from "compact";
import { Detail } from "detail";
import { $, el, setText } from "dom";
import { Gate } from "gate";
import { Explanations } from "explanation";
import { Handoff } from "handoff";
import { History } from "history";
import { hover } from "hover";
import { bindKeys } from "keys";
import { KvMap } from "kv_map";
import { links } from "links";
import { Net } from "net";
import { registerPanels } from "panel_address";
import { Player } from "player";
import { Presets } from "presets";
import { Profile } from "profile";
import { Prompts } from "prompts";
import { watchRecording } from "recording";
import { Replay } from "replay";
import { ReplayTransport } from "replay_transport";
import { Requests } from "requests";
import { SaveView } from "save_view";
import { Scrubber } from "scrubber";
import { selection } from "selection";
import { engineId } from "source";
import { Store } from "store";
import { Theme } from "theme";
import { Timeline } from "timeline";
import { TokenAxis } from "token_axis";
import { Transport } from "transport";
import { Vocab } from "vocab";
import { Walk } from "walk";
import { Why } from "why";
import { WhyPanel } from "why_panel";

const RETRY_MS = 2000;
const TICK_MS = 500; // the pass rate is looked at this often at least
const FADE_MS = 80; // what fades is drawn anew this often
const OTHER_RUN = "The address names a moment of another run than the one served here. This is its newest pass.";

async function load() {
  for (;;) {
    try {
      const [config, vocab] = await Promise.all([getConfig(), getVocab()]);
      return { config, vocab: new Vocab(vocab) };
    } catch (error) {
      const link = engineId === "main" ? [] : [" ", el("a", { href: "/" }, "Show the served engine.")];
      $("notice").replaceChildren(error.message, ...link);
      $("notice").hidden = false;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

class Page {
  constructor({ config, vocab }) {
    this.store = new Store(config.max_num_seqs);
    links.attach(this.store, config.block_size);
    const explanations = new Explanations(config.explanations);
    collapsible();
    this.theme = new Theme(() => this.changed());
    this.history = new History(this.store);
    this.walk = new Walk(this.store, this.history, {
      changed: () => this.#render(), // at once: the next frame may be that much later
      tell: (words) => this.transport.tell(words),
    });
    this.transport = new (config.replay ? ReplayTransport : Transport)(this.store, this.walk, config);
    this.player = new Player(this.walk, this.store);
    this.scrubber = new Scrubber(this.walk, this.player, this.store);
    this.chips = new Chips(config.phases, (name) => this.showPhase(name), explanations);
    this.axis = new TokenAxis(this.store, this.theme, vocab, config.block_size);
    this.grid = new BatchGrid(this.store, this.theme, config.block_size);
    this.kvMap = new KvMap(this.store, this.theme, vocab, config);
    this.detail = new Detail(this.store, explanations, config, (name) => this.showPhase(name));
    this.views = [
      new Requests(this.store, vocab, new Why(config.why)),
      this.axis,
      new Handoff(this.store, this.theme, vocab),
      new WhyPanel(this.store),
      this.detail,
      new Timeline(this.store, this.theme, (name) => this.showPhase(name)),
      new Charts(this.store, this.theme, {
        near: (passId, count) => this.history.near(passId, count),
        goTo: (passId) => this.transport.goTo(passId),
      }),
    ];
    this.net = new (config.replay ? Replay : Net)(this.store, this.history, (link) => this.transport.setLink(link));
    if (config.replay) {
      $("prompt-form").parentElement.remove();
    } else {
      new Prompts();
      watchRecording();
      this.gate = new Gate(this.store, {
        goTo: (passId, phase) => this.transport.goTo(passId, phase),
        live: () => this.walk.live(),
        tell: (words) => this.transport.tell(words),
      });
      this.views.push(this.gate);
      this.presets = compact ? null : new Presets(config);
      this.net.onEngines = (engines) => this.presets?.take(engines);
    }
    if (compact) this.views.push(new Cost(this.store, (passId, count) => this.history.near(passId, count)));
    new Profile(this.store, {
      near: (passId, count) => this.history.near(passId, count),
      phases: config.phases,
      hasEngine: !config.replay,
    });
    new SaveView(() => ({ pass: this.store.shown()?.record.pass_id ?? null, phase: this.store.phase }));
    this.#keys();
    this.#address();
    setText($("model"), config.model);
  }

  async start() {
    this.presets?.start();
    await this.net.start();
    globalThis.__model = model(this.store);
    if (!address.start(runName(this.history.created))) this.transport.tell(OTHER_RUN);
    this.started = true;
    this.store.wake = () => this.#wake();
    setInterval(() => this.changed(), TICK_MS);
    this.changed();
  }

  changed() {
    this.dirty = true;
    if (this.started) this.#wake();
  }

  /** Ask for a frame: a page at rest asks for none, as even an empty one takes a third of a core. */
  #wake() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.#frame();
    });
  }

  #frame() {
    this.net.drain();
    this.player.tick();
    if (this.dirty || this.store.version !== this.drawn) this.#render();
    else if (this.fading.length && performance.now() - this.fadedAt > FADE_MS) this.#fade(this.fading);
    if (this.player.playing || this.fading.length) this.#wake();
  }

  showPhase(name) {
    this.store.showPhase(name);
  }

  #render() {
    const shown = this.store.shown();
    [this.drawn, this.dirty] = [this.store.version, false];
    this.transport.render(shown);
    this.scrubber.render();
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

  /** Escape: nothing is pointed at or chosen any more; then no phase is. */
  #letGo() {
    const nothing = selection.reqId === null;
    hover.set();
    selection.choose(null);
    if (nothing) this.showPhase(null);
  }

  /** What of the shown moment stands in the address. */
  #address() {
    const { store, walk } = this;
    const passId = () => (store.live ? null : store.shown().record.pass_id);
    address.register("pass", { read: passId, write: (text) => walk.goTo(Number(text)) });
    address.register("phase", { read: () => store.phase, write: (text) => this.showPhase(text) });
    address.register("request", { read: () => selection.reqId, write: (text) => selection.choose(text) });
    const token = (text) => selection.choose(selection.reqId, Number(text));
    address.register("token", { read: () => selection.position, write: token });
    registerPanels();
  }

  #keys() {
    const { transport, walk, player, theme, grid, axis, store, chips, kvMap, detail } = this;
    const help = () => ($("keys").open ? $("keys").close() : $("keys").showModal());
    $("help").addEventListener("click", help);
    bindKeys({
      help,
      pauseOrResume: this.gate && (() => transport.pauseOrResume()),
      stepStop: this.gate && (() => this.gate.stepStop()),
      breakpoints: this.gate && (() => this.gate.breakpoints.toggle()),
      step: this.gate && (() => transport.step()),
      forwardOrStep: () => transport.forwardOrStep(),
      back: () => walk.by(-1),
      live: () => walk.live(),
      first: () => walk.goTo(walk.first),
      last: () => walk.goTo(walk.last),
      jump: () => this.scrubber.ask(),
      play: () => player.toggle(),
      walkPhase: (by) => walk.phase(by),
      phase: (by) => this.showPhase(chips.neighbour(store.phase, by)),
      letGo: () => this.#letGo(),
      row: (by) => grid.chooseRow(by),
      choose: () => selection.toggle(links.lit?.reqIds[0] ?? null, links.lit?.position ?? null),
      code: () => detail.tabs.choose("code"),
      wide: () => detail.toggleWide(),
      kvMap: () => kvMap.toggle(),
      token: (by) => axis.chooseToken(by),
      prompt: $("prompt") && (() => $("prompt").focus()),
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
    get shownRequests() {
      return Object.fromEntries(copy(store.requests()));
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
