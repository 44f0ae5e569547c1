"""Starting: the kernels compile before the first request, without a cache folder, and without Triton."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
import torch
from numba.core import caching

from kernels import cpu, paged_attention_tiles
from kernels.paged_attention_cpu import _attend_tokens
from kernels.warmup import warmup


def test_after_warmup_a_real_pass_compiles_nothing_more():
    from kernels.paged_attention import paged_attention
    from kernels.store_kv import store_kv

    for dtype in (torch.float32, torch.bfloat16):
        warmup(dtype)
        compiled = len(_attend_tokens.signatures), len(paged_attention_tiles.attend_tokens.signatures)
        fused = torch.randn(20, 3 * 9 * 64).to(dtype)
        query, key, value = (x.view(20, 9, 64) for x in fused.chunk(3, dim=1))
        caches = [torch.zeros(5, 9, 16, 64, dtype=dtype) for _ in range(2)]
        starts, table, seen = (torch.tensor(x, dtype=torch.int32) for x in ([0, 20], [[1, 2, 3, 9, 9]], [20]))
        store_kv(key, value, *caches, torch.arange(16, 36))
        paged_attention(query, *caches, table[:, :4], starts, seen, 0.1, torch.empty(20, 9, 64, dtype=dtype))
        assert compiled == (len(_attend_tokens.signatures), len(paged_attention_tiles.attend_tokens.signatures))


def test_what_is_compiled_is_kept_for_one_state_of_the_files(tmp_path):
    (tmp_path / "a.py").write_text("X = 1\n")
    before = cpu.state_of(tmp_path)
    assert cpu.state_of(tmp_path) == before
    (tmp_path / "b.py").write_text("")
    added = cpu.state_of(tmp_path)
    (tmp_path / "a.py").write_text("X = 2\n")
    assert len({before, added, cpu.state_of(tmp_path)}) == 3
    kept = numba.config.CACHE_DIR
    assert kept.endswith(cpu.state_of(Path(cpu.__file__).parent))
    assert paged_attention_tiles.attend_tokens.stats.cache_path.startswith(kept)


def test_a_kernel_and_its_parallel_twin_are_kept_under_names_of_their_own():
    serial, parallel = cpu.jit_both(_doubled)
    assert serial.__name__ != parallel.__name__
    x = torch.arange(8.0).numpy()
    for kernel in (serial, parallel):
        kernel(x)
    assert x.tolist() == [4.0 * i for i in range(8)]


def _doubled(x):
    for i in numba.prange(len(x)):
        x[i] *= 2


def test_kernels_compile_where_no_cache_folder_can_be_written(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])

    @cpu.jit()
    def twice(x):
        return 2 * x

    assert twice(21) == 42


def test_warmup_survives_a_full_disk(monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.Cache, "save_overload", full)
    monkeypatch.setattr(caching.Cache, "load_overload", lambda *args: None)
    warmup(torch.float32)


def test_kernels_load_without_triton():
    code = "import sys; sys.modules['triton'] = None; import kernels.warmup, kernels.slot_mapping as s; print(s.triton)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ})
    assert done.stdout == "None\n", done.stderr


WITHOUT_AVX512 = """
import llvmlite.binding as binding
host = binding.get_host_cpu_features()
kept = type(host)({name: has and "avx512" not in name and "amx" not in name for name, has in host.items()})
binding.get_host_cpu_features = lambda: kept
import torch
from kernels import vectors
from kernels.silu_and_mul import silu_and_mul, silu_and_mul_reference
assert not (vectors._HAS_ROUNDING or vectors._HAS_SCALING)
x = torch.cat([torch.linspace(-100, 100, 42), torch.tensor([0.0, 1e4, -1e4, 1e38, -1e38, float("nan")])])
gate_up = torch.cat([x, torch.randn(48)]).bfloat16()[None]
torch.testing.assert_close(
    silu_and_mul(gate_up), silu_and_mul_reference(gate_up), atol=1e-30, rtol=1.6e-2, equal_nan=True
)
"""


def test_bfloat16_vectors_need_no_instruction_of_avx512(tmp_path):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WITHOUT_AVX512], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr


def test_a_parallel_kernel_takes_torchs_number_of_threads():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        with cpu.PARALLEL_SECTION:
            assert cpu.set_threads() == numba.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_warmup_leaves_other_devices_alone():
    warmup(torch.float32, "cuda")


@pytest.mark.parametrize("name", ["narrow", "exp", "cast", "scratch", "widen"])
def test_helpers_of_compiled_code_say_so_when_called_from_python(name):
    with pytest.raises(NotImplementedError):
        getattr(cpu, name)(1.0, 1.0) if name in ("narrow", "cast", "scratch") else getattr(cpu, name)(1.0)
