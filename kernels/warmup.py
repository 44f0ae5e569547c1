"""Compile at start what a model will need, so that no request waits for the compiler."""

import contextlib

import torch

from kernels import cpu
from kernels.bitmask import apply_token_bitmask
from kernels.logprobs import gather_logprobs
from kernels.paged_attention import paged_attention
from kernels.rms_norm import fused_add_rms_norm, rms_norm
from kernels.rotary_embedding import make_cos_sin, rotary_embedding
from kernels.sampling import random_sample
from kernels.silu_and_mul import silu_and_mul
from kernels.slot_mapping import compute_slot_mapping
from kernels.store_kv import store_kv


def warmup(dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
    """Compile every CPU kernel for dtype, or load it from numba's disk cache. Does nothing for another device.

    Once per machine and dtype it takes up to a minute, with the model's own kernels; from the cache below a second. A
    cache that can't be written (a full disk) costs the time again at the next start, nothing else.
    """
    if torch.device(device).type != "cpu":
        return
    for num_tokens in (1, cpu.PARALLEL_FROM // 32):  # below and above the switch to the parallel kernels
        with contextlib.suppress(OSError):  # numba has compiled the function before it tries to save it
            _run_all(num_tokens, dtype)


def _run_all(num_tokens: int, dtype: torch.dtype) -> None:
    """Call each kernel on a row of num_tokens tokens, two heads of 32, one block of 16."""
    x = torch.zeros(num_tokens, 64, dtype=dtype)
    heads = x.view(num_tokens, 2, 32)
    cache = torch.zeros(1, 2, 16, 32, dtype=dtype)
    positions = torch.zeros(num_tokens, dtype=torch.int64)
    starts, table, one = (torch.tensor(n, dtype=torch.int32) for n in ([0, 1], [[0]], [1]))
    fused_add_rms_norm(rms_norm(x, x[0], 1e-5), x, x[0], 1e-5)
    silu_and_mul(x)
    rotary_embedding(positions, heads, heads.clone(), make_cos_sin(1, 32, 10000.0))
    compute_slot_mapping(starts, positions, table, 16, positions)
    store_kv(heads, heads, cache, cache, positions[:1])
    paged_attention(heads, cache, cache, table, starts, one, 1.0, torch.empty_like(heads))
    ones = torch.ones(num_tokens)
    random_sample(x.float(), ones, positions, ones, ones - 1, positions, positions)
    gather_logprobs(x.float(), positions, 1)
    apply_token_bitmask(x.float(), torch.zeros(num_tokens, 2, dtype=torch.int32), positions)
