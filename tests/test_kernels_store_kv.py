"""Keys and values into the paged cache."""

import pytest
import torch

from kernels.store_kv import _store_kv_torch, store_kv, store_kv_reference

DTYPES = [torch.float32, torch.bfloat16, torch.float64]


@pytest.mark.parametrize("version", [store_kv, _store_kv_torch])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [1, 4, 16, 32])
def test_store_from_a_fused_product_equals_the_reference_and_touches_nothing_else(block_size, dtype, version):
    torch.manual_seed(block_size)
    fused = torch.randn(11, 2 * 3 * 8 + 5).to(dtype)
    key, value = (fused[:, at : at + 24].view(11, 3, 8) for at in (0, 24))
    slots = torch.randperm(9 * block_size * 4)[:11]
    slots[[2, 10]] = -1
    caches = [torch.randn(36, 3, block_size, 8).to(dtype) for _ in range(2)]
    expected = [cache.clone() for cache in caches]
    version(key, value, *caches, slots)
    store_kv_reference(key, value, *expected, slots)
    assert all(torch.equal(a, b) for a, b in zip(caches, expected, strict=True))


def test_three_tokens_padded_to_four_write_three_slots():
    key = torch.arange(1.0, 9.0).view(4, 1, 2)
    cache, other = torch.zeros(10, 1, 4, 2), torch.zeros(10, 1, 4, 2)
    store_kv(key, -key, cache, other, torch.tensor([28, 8, 36, -1]))
    written = cache.permute(0, 2, 1, 3).reshape(40, 2)
    assert written.nonzero()[:, 0].unique().tolist() == [8, 28, 36]
    assert written[[28, 8, 36]].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert torch.equal(other, -cache)


def test_fewer_slots_than_keys_leave_the_padding_keys_unread():
    cache = torch.zeros(1, 1, 4, 2)
    store_kv(torch.full((4, 1, 2), 5.0), torch.full((4, 1, 2), 5.0), cache, cache.clone(), torch.tensor([1]))
    assert cache.flatten().nonzero().flatten().tolist() == [2, 3]


def test_a_cache_that_is_not_contiguous_is_refused():
    cache = torch.zeros(2, 4, 2, 2).transpose(1, 2)
    with pytest.raises(ValueError, match="contiguous"):
        store_kv(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), cache, cache, torch.tensor([0]))
