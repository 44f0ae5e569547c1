"""Slots and indices: where a token's key and value lie."""

import numpy as np
import pytest
import torch

from kernels.flat_index import flat_index, flat_index_reference
from kernels.slot_mapping import _slot_mapping_torch, compute_slot_mapping, slot_mapping_reference


def rows_of(query_lens, computed, block_size, garbage=2**31 - 1):
    """Rows with shuffled blocks; the table's unused columns hold garbage."""
    contexts = [c + q for c, q in zip(computed, query_lens, strict=True)]
    needed = [-(-n // block_size) for n in contexts]
    ids = torch.randperm(sum(needed), generator=torch.Generator().manual_seed(1)).int() + 1
    table = torch.full((len(query_lens), max(needed) + 2), garbage, dtype=torch.int32)
    for row, (blocks, n) in enumerate(zip(ids.split(needed), needed, strict=True)):
        table[row, :n] = blocks
    starts = torch.tensor([0, *np.cumsum(query_lens)], dtype=torch.int32)
    positions = torch.cat([torch.arange(c, c + q) for c, q in zip(computed, query_lens, strict=True)])
    return starts, positions, table


@pytest.mark.parametrize("version", [compute_slot_mapping, _slot_mapping_torch])
@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_slots_of_rows_of_very_different_length_equal_the_reference(block_size, version):
    starts, positions, table = rows_of([1, 300, 1, 7, 40], [0, 0, 977, 30, 8], block_size)
    out, expected = torch.full((360,), 77), torch.full((360,), 99)
    version(starts, positions, table, block_size, out)
    slot_mapping_reference(starts, positions, table, block_size, expected)
    assert torch.equal(out, expected)
    assert (out[349:] == -1).all()


def test_row_7_2_9_at_positions_0_to_9_maps_to_its_slots_and_padding_to_minus_1():
    out = torch.empty(12, dtype=torch.int64)
    table = torch.tensor([[7, 2, 9, -5]], dtype=torch.int32)
    compute_slot_mapping(torch.tensor([0, 10], dtype=torch.int32), torch.arange(10), table, 4, out)
    assert out.tolist() == [28, 29, 30, 31, 8, 9, 10, 11, 36, 37, -1, -1]


def test_prefix_hit_rows_in_the_order_b_a_get_the_slots_of_their_own_blocks():
    table = torch.tensor([[1, 2, 4], [1, 2, 3]], dtype=torch.int32)  # B hits 8 tokens, A schedules all 9
    positions = torch.tensor([8, *range(9)])
    out = torch.empty(10, dtype=torch.int64)
    compute_slot_mapping(torch.tensor([0, 1, 10], dtype=torch.int32), positions, table, 4, out)
    assert out.tolist() == [16, *range(4, 13)]


def test_slots_of_a_large_cache_do_not_wrap_at_32_bits():
    table = torch.tensor([[2**31 - 1]], dtype=torch.int32)
    for version in (compute_slot_mapping, _slot_mapping_torch, slot_mapping_reference):
        out = torch.empty(1, dtype=torch.int64)
        version(torch.tensor([0, 1], dtype=torch.int32), torch.tensor([5]), table, 16, out)
        assert out.item() == (2**31 - 1) * 16 + 5


@pytest.mark.parametrize(
    "rows",
    [598, np.array([598, 0], dtype=np.int32), torch.tensor([598, 0], dtype=torch.int32)],
    ids=["int", "numpy", "torch"],
)
def test_row_598_of_width_3600000_does_not_wrap(rows):
    flat = flat_index(rows, rows * 0 + 7, 3_600_000)
    flat = [flat] if isinstance(flat, int) else flat.tolist()
    assert flat == flat_index_reference([598, 0][: len(flat)], [7] * len(flat), 3_600_000)
    assert flat[0] == 2_152_800_007
