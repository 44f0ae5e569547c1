"""What the runner tells the trace of its arrays: arguments of tracer.facts."""

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from runner.gpu_model_runner import GPUModelRunner


def prepared(runner: "GPUModelRunner", num_reqs: int, total: int) -> tuple[Any, ...]:
    """Return the last arguments of prepare_inputs: copies of buffers, which the next pass overwrites."""
    return (
        runner.input_batch.token_ids_cpu.shape[1],
        runner.query_pos.np[:total].copy(),
        runner.positions.np[:total].copy(),
        runner.input_ids.np[:total].copy(),
        runner.query_start_loc.np.copy(),
        runner.seq_lens.np[:num_reqs].copy(),
        runner.input_batch.block_table.slot_mapping.copy_from_gpu(total),
        runner.discard_request_mask.np[:num_reqs].copy(),
    )


def forward(model: Any, device: torch.device, num_tokens: int) -> tuple[int, str, str, str]:
    """Return the arguments of tracer.facts.forward."""
    return num_tokens, str(model.dtype).removeprefix("torch."), str(device), model.path(num_tokens)
