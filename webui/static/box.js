// The size of an element and how far it is scrolled, as the browser told last: to read them lays nothing out.

export class Box {
  /** `changed()` is called once a frame at most, before it is painted. */
  constructor(node, changed) {
    this.node = node;
    this.width = this.height = this.left = this.top = 0;
    new ResizeObserver(() => {
      [this.width, this.height] = [node.clientWidth, node.clientHeight];
      changed();
    }).observe(node);
    node.addEventListener("scroll", () => {
      [this.left, this.top] = [node.scrollLeft, node.scrollTop];
      changed();
    });
  }

  /** Scroll to px from the left or the top. The browser tells where that led. */
  scrollTo(to) {
    this.node.scrollTo({ ...to, behavior: "instant" });
  }
}
