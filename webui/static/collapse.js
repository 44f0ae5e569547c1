// Panels that can be closed down to their title line. The browser keeps which ones are.
import { el, setAttr, setText } from "dom";
import { remember, remembered } from "remember";

/** Give each panel with data-collapsible, which is its name, a button that closes and opens it. */
export function collapsible() {
  for (const panel of document.querySelectorAll("[data-collapsible]")) equip(panel);
}

function equip(panel) {
  const name = panel.dataset.collapsible;
  const title = panel.querySelector("h2");
  const button = title.appendChild(el("button", { type: "button", class: "small collapse" }));
  const show = (open) => {
    setAttr(panel, "data-closed", open ? null : "");
    setAttr(button, "aria-expanded", open);
    setText(button, open ? "hide" : "show");
    setAttr(button, "aria-label", `${open ? "hide" : "show"} ${name}`);
  };
  button.addEventListener("click", () => {
    const open = panel.hasAttribute("data-closed");
    show(open);
    remember(`panel ${name}`, open ? "open" : "closed");
  });
  show(remembered(`panel ${name}`) !== "closed");
}
