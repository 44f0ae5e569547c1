// Which panels one has opened, closed or turned into tables stands in the address.
import { address } from "address";

const SHUT = "-";

/** Follow the buttons that open panels (they name what they control) and those that show tables. */
export function registerPanels() {
  const panels = new Map(); // what one has clicked: the button's id, and whether its panel is open
  const isOpen = (button) => !document.getElementById(button.getAttribute("aria-controls")).hidden;
  addEventListener("click", ({ target }) => {
    const button = target.closest?.("button[id$=-open][aria-controls]");
    if (button) panels.set(button.id, isOpen(button));
  });
  address.register("panels", {
    read: () => Array.from(panels, ([id, open]) => (open ? "" : SHUT) + id.replace(/-open$/, "")).join() || null,
    write: (text) => {
      for (const name of text.split(",")) {
        const button = document.getElementById(`${name.replace(SHUT, "")}-open`);
        if (button && isOpen(button) === name.startsWith(SHUT)) button.click();
      }
    },
  });
  const toggles = () => [...document.querySelectorAll("button[id$=-table-toggle]")];
  const nameOf = ({ id }) => id.replace(/-table-toggle$/, "");
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  address.register("tables", {
    read: () => toggles().filter(pressed).map(nameOf).join() || null,
    write: (text) => {
      const names = text.split(",");
      for (const button of toggles()) if (names.includes(nameOf(button)) && !pressed(button)) button.click();
    },
  });
}
