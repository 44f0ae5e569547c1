"""Pairs of a row and a token id, flat, so that one indexing operation serves all rows."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch


class RowTokens(NamedTuple):
    rows: torch.Tensor  # int64 [N]
    token_ids: torch.Tensor  # int64 [N]

    @classmethod
    def make(cls, ids_of_rows: Iterable[tuple[int, Iterable[int]]], device: torch.device) -> "RowTokens":
        pairs = [(row, token_id) for row, token_ids in ids_of_rows for token_id in token_ids]
        rows, token_ids = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
        return cls(torch.from_numpy(rows).to(device), torch.from_numpy(token_ids).to(device))
