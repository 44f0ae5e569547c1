// The flat arrays of one pass, as its prepare_inputs recorded them.
import { factsOf, stepOf } from "row_states";

/** The recorded arrays of a pass under short names; null where they are not made (yet). */
export function axisOf(record, rows) {
  const facts = factsOf(record, "prepare_inputs");
  if (!facts.input_ids?.length) return null;
  return {
    ids: facts.input_ids,
    positions: facts.positions,
    slots: facts.slot_mapping,
    rows: facts.req_indices,
    starts: facts.query_start_loc,
    discard: facts.discard_request_mask,
    logits: new Map(facts.logits_indices.map((token, i) => [token, i])),
    reqIds: factsOf(record, "refresh_metadata").req_ids ?? rows.map((row) => row?.req_id),
    steps: facts.num_scheduled_tokens.map((count, row) => stepOf(rows[row], count)),
  };
}
