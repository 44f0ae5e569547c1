// Choices about the look, kept by this browser.

/** What was kept under a name, else null. */
export function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // private windows forget
  }
}

/** Keep a text under a name. */
export function remember(name, text) {
  try {
    localStorage.setItem(name, text);
  } catch {
    // it holds until the page is closed
  }
}
