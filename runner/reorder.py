"""The reorder hook: groups rows by kind of work, by swaps, as attention backends that treat decodes apart want it."""

import numpy as np

from runner.input_batch import InputBatch

DECODE, SHORT_EXTEND, LONG_EXTEND, PREFILL = range(4)


def regions(num_scheduled: np.ndarray, num_computed: np.ndarray, num_prompt: np.ndarray, threshold: int) -> np.ndarray:
    """Return each row's region [R]: decodes, then short and long extends of begun prompts, then fresh prefills."""
    begun = num_computed > 0
    short = num_scheduled <= threshold
    return np.select([~begun, ~short, num_computed < num_prompt], [PREFILL, LONG_EXTEND, SHORT_EXTEND], default=DECODE)


def reorder_batch(batch: InputBatch, num_scheduled_tokens: dict[str, int], threshold: int) -> list[tuple[int, int]]:
    """Swap rows until the regions follow one another; return the swaps. Rows in their place already don't move."""
    num_reqs = batch.num_reqs
    scheduled = np.array([num_scheduled_tokens[req_id] for req_id in batch.req_ids], dtype=np.int64)
    region = regions(scheduled, batch.num_computed_tokens_cpu[:num_reqs], batch.num_prompt_tokens[:num_reqs], threshold)
    misplaced = np.flatnonzero(region != np.sort(region))
    sources = misplaced[np.argsort(region[misplaced], kind="stable")]
    destination = dict(zip(sources.tolist(), misplaced.tolist(), strict=True))
    swaps = []
    for row in sources.tolist():
        while (target := destination[row]) != row:
            batch.swap_states(row, target)
            swaps.append((row, target))
            destination[row], destination[target] = destination[target], target
    return swaps
