// A PNG or an SVG of any panel, as it is shown: each panel gets a button for it in its title line.
import { $, el, setText } from "dom";
import { late } from "late";

const SCALE = 2; // pixels of the PNG for each of the page
const KINDS = { png: "PNG", svg: "SVG" };

/** `moment()` tells what is shown, as { pass, phase }, for the file's name. */
export class SaveView {
  constructor(moment) {
    this.moment = moment;
    this.menu = el("div", { id: "save-menu", popover: "auto", role: "group", "aria-label": "save as image" });
    for (const [kind, words] of Object.entries(KINDS)) {
      const button = el("button", { type: "button", class: "small", "data-kind": kind }, words);
      button.addEventListener("click", () => this.#save(kind));
      this.menu.append(button);
    }
    this.said = this.menu.appendChild(el("span", { role: "status" }));
    document.body.append(this.menu);
    for (const panel of document.querySelectorAll("section.panel[aria-labelledby]")) this.#equip(panel);
  }

  #equip(panel) {
    const button = el("button", { type: "button", class: "small save-view", title: "save as image" }, "⤓");
    button.setAttribute("aria-label", `save as image: ${titleOf(panel)}`);
    button.addEventListener("click", () => this.#ask(panel, button));
    panel.querySelector("h2").after(button);
  }

  #ask(panel, button) {
    this.panel = panel;
    setText(this.said, "");
    this.menu.showPopover();
    const { right, bottom, top } = button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.menu;
    this.menu.style.left = `${Math.max(4, right - width)}px`;
    this.menu.style.top = `${bottom + height < innerHeight ? bottom : top - height}px`;
    this.menu.querySelector("button").focus();
  }

  async #save(kind) {
    try {
      setText(this.said, " …");
      download(await imageOf(this.panel, kind), this.#name(kind));
      this.menu.hidePopover();
    } catch (error) {
      setText(this.said, ` It could not be made: ${error.message}`);
    }
  }

  #name(kind) {
    const { pass, phase } = this.moment();
    const view = titleOf(this.panel).toLowerCase().replaceAll(/\W+/g, "-");
    const parts = ["batchscope", view, pass === null ? null : `pass-${pass}`, phase];
    return `${parts.filter((part) => part !== null).join("-")}.${kind}`;
  }
}

/** The panel's title, without what is counted beside it. */
function titleOf(panel) {
  return $(panel.getAttribute("aria-labelledby")).firstChild.textContent.trim();
}

/** A Blob with the panel's picture. */
async function imageOf(panel, kind) {
  const { domToBlob, domToForeignObjectSvg } = await late("modernScreenshot");
  const scrolled = { features: { restoreScrollPosition: true }, onCloneEachNode: hideScrollbars };
  const options = { font: false, filter: isDrawn, ...scrolled };
  if (kind === "png") return domToBlob(panel, { ...options, scale: SCALE, type: "image/png" });
  const svg = await domToForeignObjectSvg(panel, options);
  return new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" });
}

/** Buttons that save images and the tables that only screen readers get are no part of a picture. */
function isDrawn(node) {
  return !node.classList?.contains("save-view") && !node.classList?.contains("hidden-visually");
}

function hideScrollbars(node) {
  if (node.classList?.contains("scroll")) node.style.overflow = "hidden";
}

function download(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
