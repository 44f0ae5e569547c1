"""All decoder layers of a pass in one compiled call: bfloat16 by tiles (kernels.tiles), weights also in 4 bits.

It does what the kernels would do that the layers call one by one from Python, some of them joined, so the numbers are
the same bit for bit. What is saved is the time between them: a call from Python costs 10 us and more, in which the
threads that wait for the next parallel loop fall asleep and must be woken. On two cores a pass of SmolLM2 took, ms, one
by one / in one call: 1 row 25 / 14, 16 rows 28 / 21.
"""

import time
from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from kernels.cpu import PARALLEL_INSIDE_FROM, PARALLEL_SECTION, array_at, jit, jit_both, set_threads
from kernels.cycles import cycles
from kernels.linear_int4 import MOST_ROWS, Int4Weight, multiply_int4
from kernels.linear_tiles import multiply_tiles
from kernels.paged_attention_tiles import attend_tokens, fits_tiles
from kernels.rms_norm import add_and_norm
from kernels.rotary_embedding import rotate_token
from kernels.silu_and_mul import activate
from kernels.store_kv import store_token
from kernels.tiles import TILE_INPUTS, TILE_ROWS

_NORM, _QKV, _ROTATE_STORE, _ATTEND, _O, _GATE_UP, _SILU, _GATE_UP_SILU, _DOWN = range(9)  # the stages of a layer
_BITS = np.uint16(0)  # stands for bfloat16
# Columns of a layer's row of addresses; a product has four: its tiles, its 4-bit blocks, their scales, its bias.
_INPUT_NORM, _POST_NORM, _KEYS, _VALUES, _QKV_AT, _O_AT, _GATE_UP_AT, _DOWN_AT = 0, 1, 2, 3, 4, 8, 12, 16


class Product(NamedTuple):
    """One product's weights, as `prepare_weight` and `prepare_int4` lay them out."""

    packed: torch.Tensor
    int4: Int4Weight | None
    bias: torch.Tensor | None

    def fits(self) -> bool:
        """Whether these weights lie in tiles."""
        return self.packed.dim() == 5 and (self.int4 is None or self.int4.blocks.dtype is torch.int32)

    def addresses(self) -> list[int]:
        blocks, scales = (0, 0) if self.int4 is None else (part.data_ptr() for part in self.int4)
        return [self.packed.data_ptr(), blocks, scales, 0 if self.bias is None else self.bias.data_ptr()]


class Layer(NamedTuple):
    """One decoder layer's weights and its caches, each [num_blocks, num_kv_heads, block_size, head_dim]."""

    input_layernorm: torch.Tensor
    post_attention_layernorm: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    qkv_proj: Product
    o_proj: Product
    gate_up_proj: Product
    down_proj: Product

    def products(self) -> tuple[Product, ...]:
        return self[4:]

    def addresses(self) -> list[int]:
        return [part.data_ptr() for part in self[:4]] + [at for part in self.products() for at in part.addresses()]


class Shape(NamedTuple):
    """What all layers share."""

    hidden: int
    intermediate: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eps: float


class _Fixed(NamedTuple):
    """Addresses and sizes that are the same in every pass."""

    cos_sin: int
    block_size: int
    final_norm: int


class _Pass(NamedTuple):
    """Addresses and lengths of a pass's arrays."""

    num_tokens: int
    positions: int
    slot_mapping: int
    num_rows: int
    block_table: int
    table_width: int
    query_start_loc: int
    seq_lens: int


class _Memory(NamedTuple):
    """Addresses of what lies between the kernels, bfloat16, a row a token."""

    delta: int  # [hidden], what a block adds to the residual
    residual: int  # [hidden], between layers
    total: int  # [hidden], the residual between attention and MLP
    normed: int  # [hidden]
    qkv: int  # [(heads + 2 * kv heads) * head_dim]
    attended: int  # [heads * head_dim]
    gate_up: int  # [2 * intermediate]
    activated: int  # [intermediate]


class DecoderLayers:
    """The decoder layers and the final norm of one model, and memory for the longest pass so far."""

    def __init__(self, layers: list[Layer], shape: Shape, cos_sin: torch.Tensor, final_norm: torch.Tensor) -> None:
        """cos_sin: from make_cos_sin. Raises ValueError where `fits_layers` says no."""
        if not fits_layers(layers, shape):
            raise ValueError("these layers do not lie in tiles: call their kernels one by one")
        self._layers, self._shape, self._kept = layers, shape, (cos_sin, final_norm)  # what the addresses are of
        self._addresses = np.array([layer.addresses() for layer in layers], dtype=np.int64)
        self._fixed = _Fixed(cos_sin.data_ptr(), layers[0].key_cache.shape[2], final_norm.data_ptr())
        heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        mlp = shape.intermediate
        self._widths = [*[shape.hidden] * 4, heads + 2 * kv_heads, heads, 2 * mlp, mlp]  # in _Memory's order
        self._memory = self._allocate(0)
        self._stages = [
            "fused_add_rms_norm", f"linear {shape.hidden} → {heads + 2 * kv_heads}", "rotary_embedding, store_kv",
            "paged_attention", f"linear {heads} → {shape.hidden}", f"linear {shape.hidden} → {2 * mlp}", "silu_and_mul",
            f"linear {shape.hidden} → {2 * mlp}, silu_and_mul", f"linear {mlp} → {shape.hidden}",
        ]  # fmt: skip
        self._spent = np.zeros((len(self._stages), 2), dtype=np.int64)  # calls and cycles
        self.reset_clock()

    def reset_clock(self) -> None:
        """Let `times` count from now."""
        self._spent[:] = 0
        self._since = self._clock()

    def times(self) -> list[tuple[str, int, int]]:
        """Return name, calls and nanoseconds of each kernel that ran since reset_clock. Names may be there twice.

        The last norm of a pass is not counted.
        """
        counted, ns = (now - then for now, then in zip(self._clock(), self._since, strict=True))
        return [
            (name, calls, round(spent * ns / counted))
            for name, (calls, spent) in zip(self._stages, self._spent.tolist(), strict=True)
            if calls
        ]

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_table: torch.Tensor,
        query_start_loc: torch.Tensor,
        seq_lens: torch.Tensor,
    ) -> torch.Tensor:
        """Embeddings [T, hidden] to normed hidden states [T, hidden], bfloat16; positions: int64 [T].

        The others are paged_attention's and store_kv's. Every token has a slot.
        """
        num_tokens = len(hidden)
        if num_tokens > len(self._memory[0]):
            self._memory = self._allocate(num_tokens)
        delta, residual, *_ = self._memory
        delta[:num_tokens].zero_()
        residual[:num_tokens] = hidden
        out = torch.empty_like(hidden)
        memory = _Memory(*[part.data_ptr() for part in self._memory])
        rows = _Pass(
            num_tokens, positions.data_ptr(), slot_mapping.data_ptr(), len(seq_lens), block_table.data_ptr(),
            block_table.stride(0), query_start_loc.data_ptr(), seq_lens.data_ptr(),
        )  # fmt: skip
        with PARALLEL_SECTION:
            _run(
                self._addresses, self._shape, self._fixed, rows, memory, self._spent, out.data_ptr(),
                set_threads(),
            )  # fmt: skip
        return out

    @staticmethod
    def _clock() -> tuple[int, int]:
        return _cycles_now(), time.perf_counter_ns()

    def _allocate(self, num_tokens: int) -> list[torch.Tensor]:
        return [torch.empty(num_tokens, width, dtype=torch.bfloat16) for width in self._widths]


def fits_layers(layers: list[Layer], shape: Shape) -> bool:
    """Say whether all of this can run by tiles, on this machine."""
    query = layers[0].key_cache.new_empty(1, shape.num_heads, shape.head_dim)
    return fits_tiles(query, layers[0].key_cache) and all(part.fits() for layer in layers for part in layer.products())


@jit()
def _linear(num_tokens, x, num_inputs, at, out, num_outputs, workers):
    """at: a product's four addresses."""
    tiles, blocks, scales, bias = at[0], at[1], at[2], at[3]
    step, num_blocks = 2 * num_inputs, num_inputs // TILE_INPUTS
    if blocks and num_tokens <= MOST_ROWS:
        columns = num_outputs // TILE_ROWS
        multiply_int4(x, step, num_tokens, blocks, scales, bias, out, columns, num_blocks, workers)
    else:
        multiply_tiles(x, step, num_tokens, tiles, num_blocks, bias, _BITS, out, num_outputs, False, workers)


@jit()
def _clock(stage, start, spent):
    now = cycles()
    spent[stage, 0] += 1
    spent[stage, 1] += now - start
    return now


@jit()
def _cycles_now():
    return cycles()


@jit_both
def _rotate_and_store_tokens(layer, shape, fixed, rows, qkv):
    """Turn each token's query and key in qkv [(H + 2 * KH) * D], and store its key and value."""
    num_tokens, dim, num_heads, num_kv_heads = rows.num_tokens, shape.head_dim, shape.num_heads, shape.num_kv_heads
    positions = array_at(rows.positions, num_tokens, np.int64(0))
    slots = array_at(rows.slot_mapping, num_tokens, np.int64(0))
    for token in prange(num_tokens):
        query = qkv + 2 * token * (num_heads + 2 * num_kv_heads) * dim
        key = query + 2 * num_heads * dim
        rotate_token(_BITS, query, num_heads, key, num_kv_heads, fixed.cos_sin + 4 * positions[token] * dim, dim)
        store_token(
            _BITS, key, key + 2 * num_kv_heads * dim, slots[token], num_kv_heads, fixed.block_size, dim, layer[_KEYS],
            layer[_VALUES],
        )  # fmt: skip


_rotate_and_store, _rotate_and_store_parallel = _rotate_and_store_tokens


@jit()
def _attend(layer, shape, fixed, rows, memory, spent, workers):
    """From the residual to the attended heads."""
    num_tokens, dim, num_heads, num_kv_heads = rows.num_tokens, shape.head_dim, shape.num_heads, shape.num_kv_heads
    step = (num_heads + 2 * num_kv_heads) * dim
    query = memory.qkv
    now = cycles()
    add_and_norm(
        _BITS, num_tokens, shape.hidden, memory.delta, memory.residual, layer[_INPUT_NORM], shape.eps, memory.normed,
        memory.total,
    )  # fmt: skip
    now = _clock(_NORM, now, spent)
    _linear(num_tokens, memory.normed, shape.hidden, layer[_QKV_AT:], query, step, workers)
    now = _clock(_QKV, now, spent)
    # Every row's keys and values are stored before any row attends: rows may share blocks.
    if num_tokens * (num_heads + num_kv_heads) * dim < PARALLEL_INSIDE_FROM:
        _rotate_and_store(layer, shape, fixed, rows, query)
    else:
        _rotate_and_store_parallel(layer, shape, fixed, rows, query)
    now = _clock(_ROTATE_STORE, now, spent)
    attend_tokens(
        query, 2 * step, layer[_KEYS], layer[_VALUES], num_kv_heads, num_heads // num_kv_heads, fixed.block_size, dim,
        rows.num_rows, rows.block_table, rows.table_width, rows.query_start_loc, rows.seq_lens, dim**-0.5,
        memory.attended, 2 * num_heads * dim, workers,
    )  # fmt: skip
    _clock(_ATTEND, now, spent)


@jit()
def _feed_forward(layer, shape, fixed, rows, memory, spent, workers):
    """From the attended heads to what the layer's MLP adds to the residual."""
    num_tokens, hidden, intermediate = rows.num_tokens, shape.hidden, shape.intermediate
    heads = shape.num_heads * shape.head_dim
    now = cycles()
    _linear(num_tokens, memory.attended, heads, layer[_O_AT:], memory.delta, hidden, workers)
    now = _clock(_O, now, spent)
    add_and_norm(
        _BITS, num_tokens, hidden, memory.delta, memory.total, layer[_POST_NORM], shape.eps, memory.normed,
        memory.residual,
    )  # fmt: skip
    now = _clock(_NORM, now, spent)
    if layer[_GATE_UP_AT + 1] and num_tokens <= MOST_ROWS:
        _linear(num_tokens, memory.normed, hidden, layer[_GATE_UP_AT:], memory.gate_up, 2 * intermediate, workers)
        now = _clock(_GATE_UP, now, spent)
        activate(_BITS, num_tokens, intermediate, memory.gate_up, memory.activated)
        now = _clock(_SILU, now, spent)
    else:
        multiply_tiles(
            memory.normed, 2 * hidden, num_tokens, layer[_GATE_UP_AT], hidden // TILE_INPUTS, layer[_GATE_UP_AT + 3],
            _BITS, memory.activated, intermediate, True, workers,
        )  # fmt: skip
        now = _clock(_GATE_UP_SILU, now, spent)
    _linear(num_tokens, memory.activated, intermediate, layer[_DOWN_AT:], memory.delta, hidden, workers)
    _clock(_DOWN, now, spent)


@jit()
def _run(layers, shape, fixed, rows, memory, spent, out, workers):
    """The layers, and the final norm of what they leave."""
    for i in range(len(layers)):
        _attend(layers[i], shape, fixed, rows, memory, spent, workers)
        _feed_forward(layers[i], shape, fixed, rows, memory, spent, workers)
    add_and_norm(
        _BITS, rows.num_tokens, shape.hidden, memory.delta, memory.residual, fixed.final_norm, shape.eps, out,
        memory.total,
    )  # fmt: skip
