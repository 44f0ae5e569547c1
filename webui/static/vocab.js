// Token ids to text: exact bytes for running text, visible glyphs where each token stands alone.

const GLYPHS = { " ": "·", "\n": "↵", "\r": "←", "\t": "⇥" };

/** Knows the bytes of every token. `vocab` is what api.getVocab returns. */
export class Vocab {
  constructor({ tokens, special }) {
    this.tokens = tokens;
    this.special = new Set(special);
    this.glyphs = new Map();
  }

  /** The text of a finished list of ids, special tokens included. */
  text(ids) {
    const decoder = new TextDecoder();
    return ids.map((id) => decoder.decode(this.#bytes(id), { stream: true })).join("") + decoder.decode();
  }

  /** A decoder for text that grows: push(ids) returns the new text; half a character waits for its rest. */
  stream() {
    const decoder = new TextDecoder();
    const push = (ids) =>
      ids.map((id) => (this.special.has(id) ? "" : decoder.decode(this.#bytes(id), { stream: true })));
    return { push: (ids) => push(ids).join("") };
  }

  /** One token with its spaces and line ends visible; bytes that are no text on their own as hex. */
  glyph(id) {
    let glyph = this.glyphs.get(id);
    if (glyph === undefined) {
      glyph = this.#visible(id);
      this.glyphs.set(id, glyph);
    }
    return glyph;
  }

  #visible(id) {
    const bytes = this.#bytes(id);
    try {
      const text = new TextDecoder("utf-8", { fatal: true })
        .decode(bytes)
        .replace(/[ \n\r\t]/g, (letter) => GLYPHS[letter]);
      if (!/\p{Cc}/u.test(text)) return text || "∅";
    } catch {
      // not text on its own: part of a character
    }
    return `‹${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}›`;
  }

  #bytes(id) {
    return this.tokens[id] ?? new TextEncoder().encode(`⟨${id}⟩`);
  }
}
