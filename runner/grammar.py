"""Puts the masks of structured-output requests on their rows."""

from typing import Any, NamedTuple

import numpy as np
import torch

from engine.outputs import GrammarOutput
from kernels.bitmask import apply_token_bitmask

NUM_CANDIDATES = 5


class MaskedRows(NamedTuple):
    """The masks of one pass, each beside the row that its request has in the batch."""

    rows: list[int]
    masks: torch.Tensor  # int32 [len(rows), ceil(vocab / 32)], on the CPU

    @classmethod
    def of(cls, grammar_output: GrammarOutput, req_id_to_index: dict[str, int]) -> "MaskedRows":
        """The ids come in the scheduler's order and the rows in the batch's. Ids that have no row are passed over."""
        ids = grammar_output.structured_output_request_ids
        masks = np.frombuffer(grammar_output.grammar_bitmask, dtype=np.int32).reshape(len(ids), -1)
        present = [i for i, req_id in enumerate(ids) if req_id in req_id_to_index]
        return cls([req_id_to_index[ids[i]] for i in present], torch.from_numpy(masks[present]))

    def apply(self, logits: torch.Tensor) -> None:
        """Mask logits, float32 [R, V], in place."""
        apply_token_bitmask(logits, self.masks, torch.tensor(self.rows, dtype=torch.int64))

    def facts(self, before: torch.Tensor) -> dict[str, Any]:
        """Return, for the trace, the rows, how many tokens each allows, and its top candidates before and after.

        before: float32 [len(rows), V], these rows unmasked.
        """
        after = before.clone()
        apply_token_bitmask(after, self.masks, torch.arange(len(self.rows)))
        bits = np.unpackbits(self.masks.numpy().view(np.uint8), axis=1, bitorder="little")[:, : before.shape[1]]
        return {
            "masked_rows": self.rows,
            "num_allowed_tokens": bits.sum(axis=1, dtype=np.int64).tolist(),
            "candidates_before": _top_candidates(before),
            "candidates_after": _top_candidates(after),
        }


def _top_candidates(logits: torch.Tensor) -> list[list[tuple[int, float]]]:
    """Return each row's likeliest tokens with their logits, those that may not come left out."""
    values, ids = logits.topk(min(NUM_CANDIDATES, logits.shape[1]))
    return [
        [(token_id, value) for token_id, value in zip(*pair, strict=True) if value != -torch.inf]
        for pair in zip(ids.tolist(), values.tolist(), strict=True)
    ]
