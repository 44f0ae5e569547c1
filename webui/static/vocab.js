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
    return new TextDecoder().decode(this.#join(ids));
  }

  /** A decoder for text that grows: push(ids) returns the new text; half a character waits for its rest. */
  stream() {
    const decoder = new TextDecoder();
    const plain = (id) => !this.special.has(id);
    return { push: (ids) => decoder.decode(this.#join(ids.filter(plain)), { stream: true }) };
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

  #join(ids) {
    const parts = ids.map((id) => this.#bytes(id));
    const bytes = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  #bytes(id) {
    return this.tokens[id] ?? new TextEncoder().encode(`⟨${id}⟩`);
  }
}
