// Where the time of a pass goes, from its record: the same sums as tracer/pass_times.py.

export const BETWEEN = "between phases";
const ENCLOSING = "execute_model"; // the call, whose own phases lie inside it

/** How long a pass took, in ns: from its start to the end of its last phase. */
export const passNs = ({ phases }) => Math.max(0, ...phases.map(({ end }) => end));

/** A map from phases to ns over all records; with what lies between phases, which is last, it adds up to the passes. */
export function phaseNs(records, names) {
  const spent = new Map([...names, BETWEEN].map((name) => [name, 0]));
  const add = (name, ns) => spent.set(name, (spent.get(name) ?? 0) + ns);
  for (const record of records) {
    let reached = 0;
    const inner = record.phases.filter(({ phase }) => phase !== ENCLOSING).sort((a, b) => a.start - b.start);
    for (const { phase, start, end } of inner) {
      const from = Math.max(start, reached);
      add(BETWEEN, from - reached);
      reached = Math.max(end, from);
      add(phase, reached - from);
    }
    add(BETWEEN, passNs(record) - reached);
  }
  spent.delete(ENCLOSING);
  return spent;
}
