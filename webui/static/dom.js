// Small helpers for the DOM. Text is written only where it has changed.

export const $ = (id) => document.getElementById(id);

/** Make an element: el("td", { class: "num", title: "..." }, "text" or nodes...). */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Set the text of an element, if it differs. */
export function setText(node, text) {
  const value = String(text);
  if (node.shownText !== value) node.textContent = node.shownText = value;
}

/** Set an attribute, if it differs; null removes it. */
export function setAttr(node, name, value) {
  if (value === null) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) {
    node.setAttribute(name, value);
  }
}

/** Make `parent` hold exactly `count` children, made by `make(index)` where they are missing. Returns the children. */
export function resize(parent, count, make) {
  while (parent.children.length > count) parent.lastElementChild.remove();
  while (parent.children.length < count) parent.append(make(parent.children.length));
  return parent.children;
}

/** Fill the body of a table with rows of texts, reusing its nodes. */
export function fillTable(tbody, rows) {
  const width = rows[0]?.length ?? 0;
  const lines = resize(tbody, rows.length, () => el("tr"));
  rows.forEach((texts, i) => {
    const cells = resize(lines[i], width, () => el("td"));
    texts.forEach((text, k) => setText(cells[k], text));
  });
}

/** Size a canvas to its box in device pixels. Returns { context, width, height } in CSS pixels, null while hidden. */
export function fitCanvas(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  if (!width || !height) return null;
  const ratio = globalThis.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** A function that has `draw` called before the next paint: once, however often it is asked. */
export function beforePaint(draw) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      draw();
    });
  };
}
