// Tabs as screen readers know them: one of them is in the tab order, and the arrows, Home and End go to the others.
import { setAttr } from "dom";

/** `list` holds buttons of role tab, each with aria-controls "panel-NAME". `changed()` is called when one is chosen. */
export class Tabs {
  constructor(list, changed) {
    this.tabs = Array.from(list.children);
    this.changed = changed;
    list.addEventListener("click", (event) => {
      const tab = event.target.closest("[role=tab]");
      if (tab) this.choose(nameOf(tab));
    });
    list.addEventListener("keydown", (event) => this.#key(event));
    this.#show(this.tabs[0]);
  }

  get first() {
    return nameOf(this.tabs[0]);
  }

  get chosen() {
    return nameOf(this.tabs.find((tab) => tab.getAttribute("aria-selected") === "true"));
  }

  /** Choose a tab by name; a name that there isn't changes nothing. */
  choose(name) {
    const tab = this.tabs.find((each) => nameOf(each) === name);
    if (!tab) return;
    this.#show(tab);
    this.changed();
  }

  #show(tab) {
    for (const each of this.tabs) {
      setAttr(each, "aria-selected", each === tab);
      setAttr(each, "tabindex", each === tab ? 0 : -1);
      document.getElementById(each.getAttribute("aria-controls")).hidden = each !== tab;
    }
  }

  #key(event) {
    const at = this.tabs.findIndex((tab) => tab === event.target);
    const last = this.tabs.length - 1;
    const to = { ArrowRight: at === last ? 0 : at + 1, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // the page's own arrows walk over passes
    this.choose(nameOf(this.tabs[to]));
    this.tabs[to].focus();
  }
}

function nameOf(tab) {
  return tab.getAttribute("aria-controls").replace("panel-", "");
}
