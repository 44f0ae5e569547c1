"""Attention over paged KV: our CPU version and the torch version against the plain reference."""

import numba
import pytest
import torch
from test_kernels_slots import rows_of

from kernels.paged_attention import paged_attention, paged_attention_reference, paged_attention_torch
from kernels.paged_attention_long import LONG_PAIRS, LONG_QUERY_LEN
from kernels.store_kv import store_kv

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float64: 1e-12}
VERSIONS = [paged_attention, paged_attention_torch]


def poisoned_rows(query_lens, computed, block_size, dtype, heads=6, kv_heads=2, dim=16, garbage=0):
    """Query and cache of rows, with NaN wherever no row has a token; garbage fills the tables' unused columns."""
    starts, _, table = rows_of(query_lens, computed, block_size, garbage)
    contexts = torch.tensor([c + q for c, q in zip(computed, query_lens, strict=True)], dtype=torch.int32)
    shape = (int(table.max()) + 1 if garbage <= 0 else sum(-(-int(n) // block_size) for n in contexts) + 1,)
    caches = [torch.full((*shape, kv_heads, block_size, dim), torch.nan, dtype=dtype) for _ in range(2)]
    for row, n in enumerate(contexts.tolist()):
        for at in range(n):
            for cache in caches:
                cache[table[row, at // block_size], :, at % block_size] = torch.randn(kv_heads, dim).to(dtype)
    query = torch.randn(int(starts[-1]), heads, dim).to(dtype)
    return query, *caches, table, starts, contexts


def attend(version, query, *rest):
    out = torch.full_like(query, 7)
    version(query, *rest, query.shape[-1] ** -0.5, out)
    return out


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_mixed_decodes_and_chunks_equal_the_reference_among_nan_poisoned_blocks(block_size, dtype, version):
    torch.manual_seed(block_size)
    rows = poisoned_rows([1, 5, 1, 20, 1], [0, 0, 150, 13, 3], block_size, dtype)
    expected = attend(paged_attention_reference, *rows)
    assert not expected.isnan().any()
    torch.testing.assert_close(attend(version, *rows), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize(("heads", "kv_heads", "dim", "block_size"), [(9, 3, 64, 16), (5, 1, 32, 32), (32, 2, 96, 48)])
def test_bfloat16_heads_that_tiles_can_take_equal_the_reference(heads, kv_heads, dim, block_size):
    shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim}
    rows = poisoned_rows([1, 5, 1, 15, 1], [0, 0, 150, 13, 15], block_size, torch.bfloat16, **shape)
    expected = attend(paged_attention_reference, *rows)
    torch.testing.assert_close(attend(paged_attention, *rows), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(("heads", "kv_heads"), [(9, 3), (16, 1), (4, 4), (10, 2)])
def test_chunks_of_any_length_are_calculated_by_tiles_as_by_the_reference(heads, kv_heads):
    torch.manual_seed(heads)
    lengths, computed = [2, 3, 5, 6, 16, 17, 1, 31, 33, 70], [0, 29, 30, 31, 0, 15, 64, 1, 95, 250]
    rows = poisoned_rows(lengths, computed, 16, torch.bfloat16, heads=heads, kv_heads=kv_heads, dim=64)
    expected = attend(paged_attention_reference, *rows)
    torch.testing.assert_close(attend(paged_attention, *rows), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("garbage", [-1, 2**31 - 1])
@pytest.mark.parametrize("version", VERSIONS)
def test_table_entries_behind_a_row_are_never_read(version, garbage):
    rows = poisoned_rows([1, 9], [4, 0], 4, torch.float32, garbage=garbage)
    torch.testing.assert_close(attend(version, *rows), attend(paged_attention_reference, *rows))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("computed", [0, 37])
def test_a_long_chunk_equals_the_reference_on_the_gathering_path(computed, dtype):
    length = 100
    assert length >= LONG_QUERY_LEN
    assert length * (length + computed) >= LONG_PAIRS
    rows = poisoned_rows([length, 1], [computed, 9], 16, dtype, heads=4, kv_heads=2, dim=8)
    expected = attend(paged_attention_reference, *rows)
    torch.testing.assert_close(attend(paged_attention, *rows), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(9, 3, 64), (4, 4, 16), (8, 1, 20)])
def test_head_groups_of_any_size_equal_the_reference(heads, kv_heads, dim):
    rows = poisoned_rows([1, 3], [40, 0], 16, torch.float32, heads, kv_heads, dim)
    expected = attend(paged_attention_reference, *rows)
    torch.testing.assert_close(attend(paged_attention, *rows), expected, atol=1e-5, rtol=1e-5)


def test_scores_far_apart_neither_overflow_nor_lose_the_highest():
    query, keys, values, *rest = poisoned_rows([1], [40], 4, torch.float32)
    rows = (query * 300, keys, values, *rest)
    torch.testing.assert_close(attend(paged_attention, *rows), attend(paged_attention_reference, *rows))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("length", [1, 110])
def test_a_row_is_bitwise_the_same_alone_beside_others_in_another_row_and_with_other_threads(length, dtype):
    query, keys, values, table, starts, contexts = poisoned_rows([1, length, 2], [70, 25, 0], 16, dtype)
    mine = slice(1, 1 + length)
    together = attend(paged_attention, query, keys, values, table, starts, contexts)[mine]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(min(2, numba.config.NUMBA_NUM_THREADS) if threads == 1 else 1)
        local = torch.tensor([0, length], dtype=torch.int32)
        alone = attend(paged_attention, query[mine].clone(), keys, values, table[1:2], local, contexts[1:2])
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(together, alone)


def test_a_row_is_the_same_whole_and_in_chunks():
    query, keys, values, table, starts, contexts = poisoned_rows([120], [0], 16, torch.float32)
    whole = attend(paged_attention, query, keys, values, table, starts, contexts)
    chunks = []
    for first, last in [(0, 1), (1, 4), (4, 100), (100, 120)]:
        local, seen = (torch.tensor(n, dtype=torch.int32) for n in ([0, last - first], [last]))
        chunks.append(attend(paged_attention, query[first:last], keys, values, table, local, seen))
    torch.testing.assert_close(torch.cat(chunks), whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_row_attends_to_keys_that_its_neighbour_stores_in_the_same_pass(version):
    """B hits two blocks that A fills in this very pass, and lies before A: with rows [B, A] first tokens agree."""
    torch.manual_seed(0)
    key, value, query = (torch.randn(9, heads, 16) for heads in (2, 2, 6))
    caches = [torch.full((5, 2, 4, 16), torch.nan) for _ in range(2)]
    flat = [8, *range(9)]
    store_kv(key[flat], value[flat], *caches, torch.tensor([16, *range(4, 13)]))
    table = torch.tensor([[1, 2, 4], [1, 2, 3]], dtype=torch.int32)
    starts, contexts = torch.tensor([0, 1, 10], dtype=torch.int32), torch.tensor([9, 9], dtype=torch.int32)
    out = attend(version, query[flat], *caches, table, starts, contexts)
    torch.testing.assert_close(out[0], out[9])


def test_padding_tokens_and_strided_rows_are_left_alone_and_read_right():
    query, *rest = poisoned_rows([1, 4], [9, 0], 4, torch.float32)
    fused = torch.cat([query.view(5, -1), torch.full((5, 8), torch.nan)], dim=1)
    strided = torch.cat([fused, torch.full((3, fused.shape[1]), torch.nan)])[:, :96].view(8, 6, 16)
    out = attend(paged_attention, strided, *rest)
    torch.testing.assert_close(out[:5], attend(paged_attention_reference, query, *rest), atol=1e-5, rtol=1e-5)
    assert (out[5:] == 7).all()


def test_a_cache_that_is_not_contiguous_is_refused():
    query, keys, values, *rest = poisoned_rows([1], [9], 4, torch.float32)
    with pytest.raises(ValueError, match="contiguous"):
        attend(paged_attention, query, keys.transpose(2, 3), values, *rest)
