"""What a page costs to draw: the browser's own frame times, and from an input event to the paint that shows it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Frames are noted between start and stop; events by the browser's Event Timing, in steps of 8 ms.
RECORDER = """() => {
  const frames = [], events = [];
  let [running, last] = [false, null];
  const note = (now) => {
    if (!running) return;
    if (last !== null) frames.push(now - last);
    last = now;
    requestAnimationFrame(note);
  };
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => events.push(entry.duration)))
    .observe({ type: "event", durationThreshold: 16 });
  globalThis.__frames = {
    start() {
      [running, last, frames.length, events.length] = [true, null, 0, 0];
      requestAnimationFrame(note);
    },
    async stop() {
      running = false;
      await new Promise((resolve) => setTimeout(resolve, 120));
      return { frames: [...frames], events: [...events] };
    },
  };
}"""

SCROLL = """async ([selector, by, count]) => {
  const box = document.querySelector(selector);
  const [across, name] = by[0] ? [box.scrollWidth - box.clientWidth, "scrollLeft"]
                               : [box.scrollHeight - box.clientHeight, "scrollTop"];
  if (across <= 0) throw new Error(`${selector} has nothing to scroll`);
  for (let i = 1, step = by[0] || by[1], at = 0; i <= count; i += 1) {
    if (at + step > across || at + step < 0) step = -step;
    box[name] = at += step;
    await new Promise(requestAnimationFrame);
  }
}"""


class Measured:
    """Frame times and event times of one action, in ms."""

    def __init__(self, frames: list[float], events: list[float]) -> None:
        self.frames = sorted(frames)
        self.events = sorted(events)

    @property
    def median(self) -> float:
        return self.frames[len(self.frames) // 2]

    @property
    def per_second(self) -> float:
        return 1000 * len(self.frames) / sum(self.frames)

    @property
    def slowest_event(self) -> float:
        """0 where every event was painted within 16 ms."""
        return self.events[-1] if self.events else 0.0

    def __str__(self) -> str:
        late = self.frames[int(len(self.frames) * 0.95)]
        return (
            f"{self.per_second:5.1f} frames/s, median {self.median:.1f}, 95% under {late:.1f}, "
            f"worst {self.frames[-1]:.1f} ms; slowest event to paint {self.slowest_event:.0f} ms"
        )


def measure(page: "Page", act: Callable[[], object]) -> Measured:
    """The frames that the page drew while `act` ran."""
    if page.evaluate("globalThis.__frames === undefined"):
        page.evaluate(RECORDER)
    page.evaluate("__frames.start()")
    act()
    return Measured(**page.evaluate("__frames.stop()"))


def scroll(page: "Page", selector: str, across: int = 0, down: int = 0, frames: int = 120) -> Measured:
    """Scroll a box by so many px a frame, to and fro."""
    return measure(page, lambda: page.evaluate(SCROLL, [selector, [across, down], frames]))
