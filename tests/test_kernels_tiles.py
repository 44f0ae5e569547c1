"""What kernels.tiles promises, of each of its two versions that this machine can run."""

import importlib

import pytest
import torch
from numba import njit

from kernels.avx512_products import has_bfloat16_dot
from kernels.cpu import has_amx
from kernels.linear_tiles import pack_tiles

RUNS_HERE = {"amx": has_amx, "avx512": has_bfloat16_dot}
NUM_TILES = 3
INPUTS = 32 * NUM_TILES


@pytest.fixture(params=RUNS_HERE)
def products(request):
    if not RUNS_HERE[request.param]():
        pytest.skip(f"this processor has no bfloat16 products by {request.param}")
    return importlib.import_module(f"kernels.{request.param}_products")


def run(products, num_rows, name, *args):
    """Call a product, between begin_tiles and end_tiles, of tensors and whole numbers."""
    begin, end, product = products.begin_tiles, products.end_tiles, getattr(products, name)

    @njit
    def call(num_rows, *addresses):
        begin(num_rows)
        product(*addresses)
        end()

    call(num_rows, *(arg.data_ptr() if isinstance(arg, torch.Tensor) else arg for arg in args))


def some(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).bfloat16()


def expected(x, weight):
    return (x.double() @ weight.double().t()).float()


@pytest.mark.parametrize("rows", range(1, 17))
def test_rows_are_multiplied_by_two_columns(products, rows):
    x, weight = some(2 * rows, INPUTS + 32), some(32, INPUTS)  # rows of x lie apart
    first, second = pack_tiles(weight)
    step = 2 * x.stride(0)
    sums, one, other = torch.empty(rows, 32), torch.empty(rows, 32), torch.empty(rows, 32)
    run(products, rows, "multiply_block", x, step, rows, first, second, NUM_TILES, sums)
    run(products, rows, "multiply_blocks", x, x[rows:], step, rows, first, second, NUM_TILES, one, other)
    torch.testing.assert_close(sums, expected(x[:rows, :INPUTS], weight), atol=1e-4, rtol=1e-4)
    assert torch.equal(one, sums)
    torch.testing.assert_close(other, expected(x[rows:, :INPUTS], weight), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("rows", range(1, 17))
def test_a_row_is_calculated_alike_whatever_stands_beside_it(products, rows):
    x, weight = some(rows, INPUTS), some(32, INPUTS)
    first, second = pack_tiles(weight)
    sums, alone = torch.empty(rows, 32), torch.empty(1, 32)
    run(products, rows, "multiply_block", x, 2 * INPUTS, rows, first, second, NUM_TILES, sums)
    run(products, 1, "multiply_block", x[-1], 2 * INPUTS, 1, first, second, NUM_TILES, alone)
    assert torch.equal(sums[-1:], alone)


def test_sixteen_rows_are_multiplied_by_one_column(products):
    x, weight = some(32, INPUTS), some(16, INPUTS)
    column = pack_tiles(weight)[0]
    sums, one, other = (torch.empty(16, 16) for _ in range(3))
    run(products, 16, "multiply_column", x, 2 * INPUTS, column, NUM_TILES, sums)
    run(products, 16, "multiply_two_by_column", x, x[16:], 2 * INPUTS, column, NUM_TILES, one, other)
    torch.testing.assert_close(sums, expected(x[:16], weight), atol=1e-4, rtol=1e-4)
    assert torch.equal(one, sums)
    torch.testing.assert_close(other, expected(x[16:], weight), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("num_queries", [1, 3, 16])
def test_keys_are_multiplied_by_queries(products, num_queries):
    keys, queries = some(16, INPUTS), torch.zeros(16, INPUTS, dtype=torch.bfloat16)
    queries[:num_queries] = some(num_queries, INPUTS)
    scores, out = torch.empty(16, 16), torch.zeros(num_queries, 20)
    tiles = pack_tiles(queries)
    run(products, 16, "multiply_keys", keys, queries, tiles, num_queries, NUM_TILES, scores, out, 80)
    torch.testing.assert_close(out[:, :16], expected(queries[:num_queries], keys), atol=1e-4, rtol=1e-4)
    assert not out[:, 16:].any()


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (5, 2), (11, 3), (16, 3)])
def test_rows_are_multiplied_by_each_tile_for_itself(products, rows, count):
    x, weight = some(rows, INPUTS), some(16, INPUTS)
    sums = torch.empty(count, 16, 16)
    run(products, rows, "multiply_each", x, 2 * INPUTS, rows, pack_tiles(weight), count, sums)
    for i in range(count):
        part = slice(32 * i, 32 * i + 32)
        torch.testing.assert_close(sums[i, :rows], expected(x[:, part], weight[:, part]), atol=1e-4, rtol=1e-4)


def test_infinity_and_nan_stay_in_their_rows(products):
    x, weight = some(8, INPUTS), some(32, INPUTS)
    x[2, 5], x[4, 7] = float("inf"), float("nan")
    sums = torch.empty(8, 32)
    run(products, 8, "multiply_block", x, 2 * INPUTS, 8, *pack_tiles(weight), NUM_TILES, sums)
    assert sums[2].isinf().all()
    assert sums[4].isnan().all()
    assert sums[[0, 1, 3, 5, 6, 7]].isfinite().all()
