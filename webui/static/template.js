// Sentences with a pass's own values in them, from templates kept as data. The same lines as tracer/template.py.

const PLACEHOLDER = /\{([^{}]+)\}/g;
const MOST_VALUES = 8; // of a list
const MOST_NAMES = 5; // in "a, b and c"
const MOST_EACH = 4; // sentences that an `each` makes
const NUMBER = /^-?\d+$/;
const OPERATORS = {
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<": (a, b) => a < b,
  ">": (a, b) => a > b,
  in: (item, items) => items.includes(item),
};

/** Where names are looked up: one phase of a record, the other phases, and `it`, one item of a list. */
export class Scope {
  constructor(record, phase, it = null) {
    Object.assign(this, { record, phase, it });
  }

  /** The value of a placeholder, null where it was not recorded. */
  value(expression) {
    const [name, ...filters] = expression.split("|");
    let value = this.named(name);
    for (const each of filters) {
      if (value === null) return null;
      const colon = each.indexOf(":");
      const [word, argument] = colon < 0 ? [each, ""] : [each.slice(0, colon), each.slice(colon + 1)];
      value = (word in WORDY ? WORDY[word](value, argument) : FILTERS[word](value, this.named(argument))) ?? null;
    }
    return value;
  }

  /** The value without filters; a number or a 'word' stands for itself. */
  named(name) {
    if (NUMBER.test(name)) return Number(name);
    if (name.startsWith("'")) return name.slice(1, -1);
    let [head, ...rest] = name.split(".");
    let value = this.it;
    if (head !== "it") {
      const facts = this.#facts(this.phase);
      if (facts && (Object.hasOwn(facts, head) || head.startsWith("@"))) [value, rest] = [facts, [head, ...rest]];
      else value = this.#facts(head);
    }
    for (const part of rest) value = partOf(value, part);
    return value ?? null;
  }

  /** Whether all conditions hold. */
  holds(conditions) {
    return [conditions].flat().every((condition) => this.#holds(condition));
  }

  #holds(condition) {
    if (condition.startsWith("not ")) {
      const value = this.value(condition.slice(4));
      return value !== null && !isThere(value);
    }
    const [left, operator, right] = condition.split(" ");
    if (operator === undefined) return isThere(this.value(left));
    const [one, other] = [this.value(left), this.value(right)];
    return one !== null && other !== null && OPERATORS[operator](one, other);
  }

  #facts(name) {
    const phase = this.record.phases.find((each) => each.phase === name);
    if (!phase) return null;
    const { facts = {}, start, end, changes = [] } = phase;
    return { ...facts, "@start": start, "@end": end, "@took": end - start, "@changes": changes };
  }
}

/** What a list of groups says, as a list of sentences: see tracer/template.py. */
export function sentencesOf(groups, scope) {
  return groups.flatMap((group) => sentences(group, scope));
}

function sentences(group, scope) {
  if (group.each === undefined) {
    for (const each of [group].flat()) {
      const text = said(each, scope);
      if (text !== null) return [text];
    }
    return [];
  }
  const items = scope.value(group.each) ?? [];
  const inside = (it) => new Scope(scope.record, scope.phase, it);
  const texts = items.slice(0, MOST_EACH).flatMap((it) => sentences(group.say, inside(it)));
  if (texts.length && items.length > MOST_EACH) {
    texts.push(...sentences({ text: group.more }, inside(items.length - MOST_EACH)));
  }
  return texts;
}

function said({ when = [], text }, scope) {
  if (!scope.holds(when)) return null;
  const values = new Map(Array.from(text.matchAll(PLACEHOLDER), ([, name]) => [name, scope.value(name)]));
  if ([...values.values()].includes(null)) return null;
  return text.replace(PLACEHOLDER, (_, name) => words(values.get(name)));
}

/** A value in few characters: lists in brackets and shortened, T and F for masks. */
export function words(value, most = MOST_VALUES) {
  if (value === true || value === false) return value ? "T" : "F";
  if (Array.isArray(value)) {
    const shown = value
      .slice(0, most)
      .map((item) => words(item, most))
      .join(", ");
    return value.length > most ? `[${shown}, … ${value.length} in all]` : `[${shown}]`;
  }
  if (value === null || value === undefined) return "none";
  if (typeof value !== "object") return String(value);
  const entries = Object.entries(value);
  const shown = entries
    .slice(0, most)
    .map(([name, item]) => `${name}: ${words(item, most)}`)
    .join(", ");
  return entries.length > most ? `{${shown}, … ${entries.length} in all}` : `{${shown}}`;
}

/** Nanoseconds in the unit that reads best. */
export function duration(ns) {
  const rounded = (by) => Math.floor((2 * ns + by) / (2 * by));
  if (ns < 1e4) return `${(rounded(100) / 10).toFixed(1)} µs`;
  if (ns < 1e6) return `${rounded(1e3)} µs`;
  if (ns < 1e7) return `${(rounded(1e4) / 100).toFixed(2)} ms`;
  if (ns < 1e9) return `${(rounded(1e5) / 10).toFixed(1)} ms`;
  return `${(rounded(1e7) / 100).toFixed(2)} s`;
}

/** Whether Python holds a value for true. */
function isThere(value) {
  if (value === null || typeof value !== "object") return Boolean(value);
  return (Array.isArray(value) ? value : Object.keys(value)).length > 0;
}

function partOf(value, name) {
  if (value === null || typeof value !== "object") return null;
  if (!Array.isArray(value)) {
    return Object.hasOwn(value, name) ? value[name] : name === "length" ? Object.keys(value).length : null;
  }
  if (name === "length") return value.length;
  return (NUMBER.test(name) ? value.at(Number(name)) : null) ?? null;
}

function joined(items) {
  let names = items.map((item) => words(item));
  if (names.length > MOST_NAMES) {
    names = [...names.slice(0, MOST_NAMES - 1), `${names.length - MOST_NAMES + 1} more`];
  }
  return [names.slice(0, -1).join(", "), ...names.slice(-1)].filter(Boolean).join(" and ");
}

function counted(value, noun) {
  const number = typeof value === "number" ? value : (value.length ?? Object.keys(value).length);
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

const least = (items, of) => (items.length ? items.reduce((a, b) => of(a, b)) : null);
const indices = (items, wanted) => items.flatMap((item, i) => (isThere(item) === wanted ? [i] : []));
const at = (value, key) => (key === null ? null : partOf(value, String(key)));

// Filters whose argument, if any, is a word.
const WORDY = {
  count: counted,
  named: (items, noun) => `${noun}${items.length === 1 ? "" : "s"} ${joined(items)}`,
  and: (items) => joined(items),
  time: (ns) => duration(ns),
  pick: (items, name) => items.map((item) => partOf(item, name)),
  with: (items, head) => items.filter((item) => item[0] === head),
  where: (items) => indices(items, true),
  where_not: (items) => indices(items, false),
  sum: (items) => items.reduce((a, b) => a + b, 0),
  min: (items) => least(items, (a, b) => Math.min(a, b)),
  max: (items) => least(items, (a, b) => Math.max(a, b)),
  sorted: (items) => items.toSorted((a, b) => a - b),
  items: (mapping) => Object.entries(mapping).sort(([a], [b]) => (a < b ? -1 : 1)),
};

// Filters whose argument is another value.
const FILTERS = {
  at,
  through: (keys, mapping) => keys.map((key) => at(mapping, key)),
  join: (items, others) => [...items, ...(others ?? [])],
  zip: (items, others) => items.slice(0, others?.length ?? 0).map((item, i) => [item, others[i]]),
  both: (items, others) => items.filter((item) => others?.includes(item)),
  without: (items, others) => items.filter((item) => !others?.includes(item)),
  plus: (a, b) => (b === null ? null : a + b),
  minus: (a, b) => (b === null ? null : a - b),
  times: (a, b) => (b === null ? null : a * b),
  div: (a, b) => (b ? Math.floor(a / b) : null),
  mod: (a, b) => (b ? a % b : null),
};
