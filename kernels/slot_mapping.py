"""Where each token of the pass keeps its key and value: block id * block size + offset."""

import itertools

import torch

from kernels.cpu import as_numpy, jit
from kernels.flat_index import flat_index
from kernels.triton_support import tl, triton

PADDING_SLOT = -1


def compute_slot_mapping(
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
    out: torch.Tensor,
) -> None:
    """Write each token's slot into out, and -1 past the last token.

    query_start_loc: int32 [R + 1], where each row's tokens start. positions: int64, T or more.
    block_table: int32 [R or more, max_blocks]; only columns up to each row's last position are read.
    out: int64 [P], P >= T = query_start_loc[R].
    """
    if query_start_loc.is_cuda and triton is not None:
        slot_mapping_triton(query_start_loc, positions, block_table, block_size, out)
    elif query_start_loc.is_cpu:
        _slot_mapping_cpu(
            as_numpy(query_start_loc),
            as_numpy(positions),
            as_numpy(block_table.contiguous()),
            block_size,
            as_numpy(out),
        )
    else:
        _slot_mapping_torch(query_start_loc, positions, block_table, block_size, out)


@jit()
def _slot_mapping_cpu(query_start_loc, positions, block_table, block_size, out):
    num_rows = query_start_loc.shape[0] - 1
    for row in range(num_rows):
        for token in range(query_start_loc[row], query_start_loc[row + 1]):
            block = block_table[row, positions[token] // block_size]
            out[token] = block * block_size + positions[token] % block_size
    out[query_start_loc[num_rows] :] = PADDING_SLOT


def _slot_mapping_torch(
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
    out: torch.Tensor,
) -> None:
    tokens = torch.arange(out.shape[0], device=out.device)
    valid = tokens < query_start_loc[-1]
    rows = torch.searchsorted(query_start_loc[1:], tokens, right=True).clamp_(max=query_start_loc.shape[0] - 2)
    at = positions[tokens.clamp(max=positions.shape[0] - 1)].where(valid, 0)
    blocks = block_table[rows, at // block_size]
    out.copy_(torch.where(valid, flat_index(blocks, at % block_size, block_size), PADDING_SLOT))


def slot_mapping_reference(
    query_start_loc: torch.Tensor,
    positions: torch.Tensor,
    block_table: torch.Tensor,
    block_size: int,
    out: torch.Tensor,
) -> None:
    """Say what compute_slot_mapping means, token by token."""
    out.fill_(PADDING_SLOT)
    starts = query_start_loc.tolist()
    for row, (start, end) in enumerate(itertools.pairwise(starts)):
        for token in range(start, end):
            block, offset = divmod(int(positions[token]), block_size)
            out[token] = int(block_table[row, block]) * block_size + offset


if triton is not None:
    from kernels.flat_index import flat_index_triton

    @triton.jit
    def slot_mapping_kernel(
        query_start_loc,
        positions,
        block_table,
        out,
        num_rows,
        table_stride,
        block_size,
        out_size,
        TILE: tl.constexpr,
    ):
        """One program a row; one more fills the padding."""
        row = tl.program_id(0)
        start = tl.load(query_start_loc + row)
        if row == num_rows:
            for first in range(start, out_size, TILE):
                at = first + tl.arange(0, TILE)
                tl.store(out + at, tl.full((TILE,), -1, tl.int64), mask=at < out_size)
        else:
            end = tl.load(query_start_loc + row + 1)
            for first in range(start, end, TILE):
                at = first + tl.arange(0, TILE)
                position = tl.load(positions + at, mask=at < end, other=0)
                entry = flat_index_triton(row, position // block_size, table_stride)
                block = tl.load(block_table + entry, mask=at < end, other=0)
                tl.store(out + at, flat_index_triton(block, position % block_size, block_size), mask=at < end)

    def slot_mapping_triton(
        query_start_loc: torch.Tensor,
        positions: torch.Tensor,
        block_table: torch.Tensor,
        block_size: int,
        out: torch.Tensor,
    ) -> None:
        """Launch the kernel: compute_slot_mapping on the GPU, without a wait for it."""
        num_rows = query_start_loc.shape[0] - 1
        slot_mapping_kernel[(num_rows + 1,)](
            query_start_loc,
            positions,
            block_table,
            out,
            num_rows,
            block_table.stride(0),
            block_size,
            out.shape[0],
            TILE=1024,
        )
