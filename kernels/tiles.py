"""Products of bfloat16 that are summed in float32, by AMX or else by AVX512's bfloat16 instructions.

What lies in memory is the same for both:
- x: rows of inputs, x_step bytes apart, read where they stand
- a column: tiles of 16 outputs side by side, each of 32 inputs as 16 rows of pairs, 1,024 bytes, one after the other
- sums: rows of 16 float32, or of 32 for two columns side by side

Addresses are integers. `num_tiles` and counts are 1 at least, `num_rows` is what `begin_tiles` got, up to 16:

- begin_tiles(num_rows), end_tiles(): before a thread's first product, and after its last
- multiply_block(x, x_step, num_rows, first, second, num_tiles, sums): by two columns
- multiply_blocks(x, other, x_step, num_rows, first, second, num_tiles, sums, other_sums): two blocks of rows by two
- multiply_column(x, x_step, column, num_tiles, sums): 16 rows by one
- multiply_two_by_column(x, other, x_step, column, num_tiles, sums, other_sums): twice 16 rows by one
- multiply_keys(keys, queries, tiles, num_queries, num_tiles, scores, out, out_step): out[q, t] = keys[t] . queries[q],
  16 keys and up to 16 queries, which lie in rows and in tiles as well; scores: memory for 16 rows of 16
- multiply_each(x, x_step, num_rows, tiles, count, sums): rows by each of some tiles for itself: tile i's inputs begin
  with input 32 i, its sums lie 1,024 i bytes behind the first's

How a large product is best cut:
- BLOCK_ROWS: so many rows at once, and BLOCKS_AT_ONCE such blocks. AMX loads a tile for two of them; by AVX512 a block
  of x stays in the first-level cache beside the two columns that pass it.
- PANEL_BYTES: so much of the weights stays in the second-level cache while all rows pass it.
"""

from kernels import amx_products, avx512_products
from kernels.amx import TILE_BYTES, TILE_INPUTS, TILE_ROWS, tile_rows
from kernels.avx512_products import has_bfloat16_dot
from kernels.cpu import has_amx

__all__ = [
    "BLOCKS_AT_ONCE", "BLOCK_ROWS", "PANEL_BYTES", "TILES_BY", "TILE_BYTES", "TILE_INPUTS", "TILE_ROWS", "begin_tiles",
    "end_tiles", "has_tiles", "multiply_block", "multiply_blocks", "multiply_column", "multiply_each", "multiply_keys",
    "multiply_two_by_column", "tile_rows",
]  # fmt: skip

_products = amx_products if has_amx() else avx512_products
BLOCK_ROWS, BLOCKS_AT_ONCE, PANEL_BYTES = _products.BLOCK_ROWS, _products.BLOCKS_AT_ONCE, _products.PANEL_BYTES
begin_tiles, end_tiles = _products.begin_tiles, _products.end_tiles
multiply_block, multiply_blocks = _products.multiply_block, _products.multiply_blocks
multiply_column, multiply_two_by_column = _products.multiply_column, _products.multiply_two_by_column
multiply_keys, multiply_each = _products.multiply_keys, _products.multiply_each
TILES_BY = "AMX" if has_amx() else "AVX512"  # for the record of a pass


def has_tiles() -> bool:
    """Say whether this machine can do this."""
    return has_amx() or has_bfloat16_dot()
