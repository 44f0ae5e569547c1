"""The Triton kernels: what they write, in Triton's interpreter, and that a GPU's compiler takes them.

The interpreter must be chosen before triton is imported, so this file runs itself in a process of its own.
"""

import os
import subprocess
import sys

import pytest

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

SIGNATURES = {
    "slot_mapping": {
        "query_start_loc": "*i32",
        "positions": "*i64",
        "block_table": "*i32",
        "out": "*i64",
        "num_rows": "i32",
        "table_stride": "i32",
        "block_size": "i32",
        "out_size": "i32",
        "TILE": "constexpr",
    },
    "store_kv": {
        "key": "*bf16",
        "value": "*bf16",
        "key_cache": "*bf16",
        "value_cache": "*bf16",
        "slot_mapping": "*i64",
        "key_stride": "i32",
        "value_stride": "i32",
        "num_heads": "i32",
        "block_size": "i32",
        "DIM": "constexpr",
        "PADDED_DIM": "constexpr",
    },
}


def run_self(case, interpret):
    env = {**os.environ, "TRITON_INTERPRET": "1" if interpret else "0"}
    done = subprocess.run([sys.executable, __file__, case], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", ["slots_equal_the_reference", "stored_equal_the_reference", "index_is_64_bits_wide"])
def test_in_the_interpreter(case):
    run_self(case, interpret=True)


@pytest.mark.parametrize("case", ["compile_slot_mapping", "compile_store_kv"])
def test_for_a_hopper_gpu(case):
    run_self(case, interpret=False)


def slots_equal_the_reference():
    import torch
    from test_kernels_slots import rows_of

    from kernels.slot_mapping import slot_mapping_reference, slot_mapping_triton

    for block_size in (1, 4, 16, 32):
        starts, positions, table = rows_of([1, 1500, 1, 40], [0, 3, 977, 8], block_size)
        out, expected = torch.full((1550,), 77), torch.full((1550,), 99)
        slot_mapping_triton(starts, positions, table, block_size, out)
        slot_mapping_reference(starts, positions, table, block_size, expected)
        assert torch.equal(out, expected)


def stored_equal_the_reference():
    import torch

    from kernels.store_kv import store_kv_reference, store_kv_triton

    for block_size, dim, dtype in ((1, 16, torch.float32), (4, 20, torch.float32), (16, 64, torch.bfloat16)):
        fused = torch.randn(9, 2 * 3 * dim + 4).to(dtype)
        key, value = (fused[:, at : at + 3 * dim].view(9, 3, dim) for at in (0, 3 * dim))
        slots = torch.randperm(12 * block_size)[:9]
        slots[[1, 8]] = -1
        caches = [torch.randn(12, 3, block_size, dim).to(dtype) for _ in range(2)]
        expected = [cache.clone() for cache in caches]
        store_kv_triton(key, value, *caches, slots)
        store_kv_reference(key, value, *expected, slots)
        assert all(torch.equal(a, b) for a, b in zip(caches, expected, strict=True))


if __name__ == "__main__":
    from kernels.flat_index import flat_index_triton

    @triton.jit
    def index_of(rows, out, width):
        tl.store(out, flat_index_triton(tl.load(rows), 7, width))


def index_is_64_bits_wide():
    """A slot past 2**31, and the table entry of row 598 of width 3,600,000."""
    import torch

    from kernels.slot_mapping import slot_mapping_triton

    out = torch.empty(1, dtype=torch.int64)
    table = torch.tensor([[2**31 - 1]], dtype=torch.int32)
    slot_mapping_triton(torch.tensor([0, 1], dtype=torch.int32), torch.tensor([5]), table, 16, out)
    assert out.item() == (2**31 - 1) * 16 + 5

    index_of[(1,)](torch.tensor([598], dtype=torch.int32), out, 3_600_000)
    assert out.item() == 2_152_800_007


def compile_kernel(kernel, signature, **constants):
    """Compile for compute capability 9.0, which needs no GPU. Returns the PTX."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]


def compile_slot_mapping():
    from kernels.slot_mapping import slot_mapping_kernel

    ptx = compile_kernel(slot_mapping_kernel, SIGNATURES["slot_mapping"], TILE=1024)
    assert "slot_mapping_kernel" in ptx
    assert "st.global" in ptx


def compile_store_kv():
    from kernels.store_kv import store_kv_kernel

    ptx = compile_kernel(store_kv_kernel, SIGNATURES["store_kv"], DIM=64, PADDED_DIM=64)
    assert "store_kv_kernel" in ptx
    assert "st.global" in ptx


if __name__ == "__main__":
    globals()[sys.argv[1]]()
