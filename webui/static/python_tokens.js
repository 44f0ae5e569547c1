// Splits Python source into tokens that can be coloured and looked up. A string may go on over several lines.

const KEYWORDS = new Set(
  (
    "False None True and as assert async await break class continue def del elif else except finally for from global " +
    "if import in is lambda nonlocal not or pass raise return try while with yield self"
  ).split(" "),
);
const KINDS = {
  comment: /#.*/,
  string: /[rbfuRBFU]{0,2}(?:"""|'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')/,
  name: /[A-Za-z_]\w*/,
  number: /\d[\w.]*/,
  space: /\s+/,
  other: /[^\sA-Za-z_\d"'#]+|["']/,
};
const TOKEN = new RegExp(
  Object.entries(KINDS)
    .map(([kind, { source }]) => `(?<${kind}>${source})`)
    .join("|"),
  "y",
);

/** Return, for each line, a list of [kind, text]; kind is keyword, name, string, comment, number or other. */
export function tokenize(lines) {
  let open = null; // the quotes that an unfinished string began with
  return lines.map((line) => {
    const tokens = [];
    let at = 0;
    const take = (kind, end) => {
      if (end > at) tokens.push([kind, line.slice(at, end)]);
      at = end;
    };
    while (at < line.length) {
      if (open) {
        const end = line.indexOf(open, at);
        take("string", end < 0 ? line.length : end + open.length);
        if (end >= 0) open = null;
        continue;
      }
      TOKEN.lastIndex = at;
      const { groups, 0: text } = TOKEN.exec(line);
      const kind = Object.keys(groups).find((name) => groups[name] !== undefined);
      if (kind === "string" && /("""|''')$/.test(text)) open = text.slice(-3);
      take(kind === "name" && KEYWORDS.has(text) ? "keyword" : kind === "space" ? "other" : kind, at + text.length);
    }
    return tokens;
  });
}
