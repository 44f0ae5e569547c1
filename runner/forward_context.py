"""What attention layers fetch instead of being given: slots, block tables and boundaries of the pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class AttentionMetadata:
    """Where the pass's tokens lie. R rows, T tokens, all on the model's device."""

    num_actual_tokens: int  # T, without padding
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor  # int32 [R + 1]
    seq_lens: torch.Tensor  # int32 [R], computed plus scheduled tokens
    block_table: torch.Tensor  # int32 [R, max_blocks_per_row]
    slot_mapping: torch.Tensor  # int64 [T], block id * block_size + offset


@dataclass(slots=True)
class ForwardContext:
    attn_metadata: AttentionMetadata


_forward_context: ForwardContext | None = None


def get_forward_context() -> ForwardContext:
    """Return the running pass's context. Raises RuntimeError outside a forward pass."""
    if _forward_context is None:
        raise RuntimeError("no forward context: run the model inside `with set_forward_context(...)`")
    return _forward_context


@contextmanager
def set_forward_context(attn_metadata: AttentionMetadata) -> Iterator[None]:
    """Install the metadata for the layers, for the length of one forward pass."""
    global _forward_context
    previous, _forward_context = _forward_context, ForwardContext(attn_metadata)
    try:
        yield
    finally:
        _forward_context = previous
