// Why a request was not scheduled in a pass: sentences for the codes and numbers in the schedule facts.

const SENTENCES = {
  no_budget: "waits: {token_budget} tokens are left of the pass's budget",
  no_rows: "waits: every batch row is taken ({running} of {max_num_seqs})",
  no_blocks: "waits: needs {needed} KV blocks, {free} are free",
  behind: "waits behind {request}",
  preempted: "preempted: {for} needed blocks; {num_computed_tokens} computed tokens are lost",
  after_preemption: "waits: nobody is admitted in a pass that preempted {request}",
  nothing_to_do: "not in this pass: all its known tokens are computed",
};

/** The sentence for [code, numbers], "" for a request that was scheduled. An unknown code is shown as it is. */
export function whySentence([code, numbers = {}] = ["scheduled"]) {
  if (code === "scheduled") return "";
  const known = SENTENCES[code];
  if (known) return known.replace(/\{(\w+)\}/g, (_, name) => numbers[name] ?? "?");
  const values = Object.entries(numbers).map(([name, value]) => `${name} ${value}`);
  return [code.replaceAll("_", " "), ...values].join(", ");
}
