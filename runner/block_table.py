"""The block table: for each row of the batch, the physical KV blocks of its request, in order."""

import numpy as np
import torch

from kernels.slot_mapping import compute_slot_mapping
from runner.buffers import CpuGpuBuffer


class BlockTable:
    """Rows of block ids, with how many of each row's columns count. What lies past them is stale and never read."""

    def __init__(
        self, max_num_reqs: int, max_num_blocks_per_req: int, max_num_batched_tokens: int, block_size: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.block_size = block_size
        self.block_table = CpuGpuBuffer(max_num_reqs, max_num_blocks_per_req, dtype=torch.int32, device=device)
        self.num_blocks_per_row = np.zeros(max_num_reqs, dtype=np.int32)
        self.slot_mapping = CpuGpuBuffer(max_num_batched_tokens, dtype=torch.int64, device=device)

    def append_row(self, block_ids: list[int], row: int) -> None:
        """Extend the row. Raises ValueError where it would not fit."""
        start = self.num_blocks_per_row[row]
        self.block_table.np[row, start : start + len(block_ids)] = block_ids
        self.num_blocks_per_row[row] += len(block_ids)

    def add_row(self, block_ids: list[int], row: int) -> None:
        """Replace the row."""
        self.num_blocks_per_row[row] = 0
        self.append_row(block_ids, row)

    def move_row(self, src: int, dst: int) -> None:
        count = self.num_blocks_per_row[src]
        self.block_table.np[dst, :count] = self.block_table.np[src, :count]
        self.num_blocks_per_row[dst] = count

    def swap_row(self, a: int, b: int) -> None:
        self.block_table.np[[a, b]] = self.block_table.np[[b, a]]
        self.num_blocks_per_row[[a, b]] = self.num_blocks_per_row[[b, a]]

    def row(self, row: int) -> list[int]:
        """Return the block ids that count, for the trace and for tests."""
        return self.block_table.np[row, : self.num_blocks_per_row[row]].tolist()

    def commit_block_table(self, num_reqs: int) -> None:
        """Send the first num_reqs rows to the device."""
        self.block_table.copy_to_gpu(num_reqs)

    def compute_slot_mapping(self, query_start_loc: torch.Tensor, positions: torch.Tensor) -> None:
        """Write one physical slot a token into slot_mapping.gpu, on the device.

        query_start_loc is int32 [R + 1], positions int64 [T].
        """
        num_reqs = query_start_loc.shape[0] - 1
        compute_slot_mapping(
            query_start_loc, positions, self.block_table.gpu[:num_reqs], self.block_size, self.slot_mapping.gpu
        )
