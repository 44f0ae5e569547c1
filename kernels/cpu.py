"""What the compiled CPU kernels share: the compiler's options, bfloat16 as bits, a vectorizable exp, and threads.

bfloat16 travels as uint16 bits: numba has no such type, and widening to float32 is one shift. All arithmetic is done in
float32 for bfloat16 and float32, in float64 for float64.

Threads: parallel kernels use numba's default layer, OpenMP where libgomp is installed. On two cores a decode pass of
16 rows that alternates torch products and our attention took 22 ms under OpenMP and 30 ms under workqueue, whose
sleeping threads lose the core to torch's spinning ones; sharing torch's own libgomp or OMP_WAIT_POLICY=passive was
never better. workqueue aborts the process when two threads enter it at once, hence `PARALLEL_SECTION`.

numba's disk cache looks at a kernel's own file alone, while kernels are compiled into each other: each state of these
files has a folder of its own in __pycache__.
"""

import functools
import hashlib
import math
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
import numba.extending
import numba.np.numpy_support
import numpy as np
import torch
from llvmlite import binding, ir
from numba import types
from numba.extending import overload

intrinsic: Any = numba.extending.intrinsic

# Sums may be reordered so that they vectorize; NaN and infinity keep their meaning (no nnan, no ninf).
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
PARALLEL_SECTION = threading.Lock()
PARALLEL_FROM = 1 << 16  # elements
PARALLEL_INSIDE_FROM = 1 << 13  # the same where a compiled caller keeps the threads awake

_LOG2_E = np.float32(math.log2(math.e))
_LOWEST_EXPONENT, _HIGHEST_EXPONENT = np.float32(-126.0), np.float32(127.0)
_HALF, _ONE = np.float32(0.5), np.float32(1.0)
# ln(2)**k / k!, the Taylor series of 2**x, good to float32's last bit on [-0.5, 0.5].
_C1, _C2, _C3, _C4, _C5, _C6 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(1, 7))


def state_of(folder: Path) -> str:
    """Return what changes with any Python file of a folder."""
    sources = (path.name.encode() + path.read_bytes() for path in sorted(folder.glob("*.py")))
    return hashlib.sha256(b"".join(sources)).hexdigest()[:16]


@functools.cache
def has_amx() -> bool:
    """Say whether this processor, system, torch and compiler have bfloat16 tiles; ask the system to let us use them."""
    try:
        usable = torch.cpu._is_amx_tile_supported() and torch.cpu._init_amx()
    except AttributeError:
        return False
    features = binding.get_host_cpu_features()
    return bool(usable and features.get("amx-tile") and features.get("amx-bf16") and features.get("avx512bw"))


_here = Path(__file__).parent
if not os.environ.get("NUMBA_CACHE_DIR") and os.access(_here, os.W_OK):  # else numba finds a folder of the user's
    _state = state_of(_here) + "-amx" * has_amx()  # a system may let one process use it and not another
    numba.config.CACHE_DIR = str(_here / "__pycache__" / _state)  # type: ignore[attr-defined]


def jit(parallel: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return numba's decorator with our options; without the disk cache where no folder for it can be written."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"fastmath": FASTMATH, "error_model": "numpy", "nogil": True, "parallel": parallel}
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:  # numba found no folder to cache in
            return numba.njit(**options)(function)

    return decorate


def set_threads() -> int:
    """Give parallel kernels torch's number of threads and return it. Call it with PARALLEL_SECTION held."""
    workers = max(1, min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    numba.set_num_threads(workers)
    return workers


def jit_both(function: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compile a kernel whose outer loop is a prange twice: as it stands for little work, parallel for much.

    The second is a copy with a name of its own, since numba's disk cache tells functions apart by nothing else.
    """
    parallel = FunctionType(function.__code__, function.__globals__, f"{function.__name__}_parallel")
    parallel.__module__, parallel.__qualname__ = function.__module__, f"{function.__qualname__}_parallel"
    return jit()(function), jit(parallel=True)(parallel)


def run(kernels: tuple[Callable[..., Any], Callable[..., Any]], num_elements: int, *args: Any) -> None:
    """Call the serial or the parallel kernel of `jit_both`: waking a thread costs more than a small pass's work."""
    serial, parallel = kernels
    if num_elements < PARALLEL_FROM:
        serial(*args)
    else:
        with PARALLEL_SECTION:
            set_threads()
            parallel(*args)


# What tells a kernel the type of the elements at an address: the scalar that stands for a tensor's dtype.
LIKE = {torch.bfloat16: np.uint16(0), torch.float32: np.float32(0), torch.float64: np.float64(0)}


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """View a CPU tensor as numpy, bfloat16 as its uint16 bits."""
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


def compute_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Return the dtype in which kernels calculate with this tensor's elements."""
    return torch.float64 if tensor.dtype is torch.float64 else torch.float32


def is_dense(tensor: torch.Tensor) -> bool:
    """Say whether each row (first dimension) of [T, N] or [T, H, D] is one dense run; the step between rows is free."""
    shape, strides = tensor.shape, tensor.stride()
    return strides[-1] == 1 and (len(shape) == 2 or strides[1] == shape[2])


def as_rows(tensor: torch.Tensor) -> tuple[np.ndarray, int]:
    """View [T, N] or [T, H, D] as one flat array and the step from row to row: slices of a fused product need no copy.

    Raises ValueError if a row is not dense.
    """
    step = tensor.stride(0)
    if tensor.is_contiguous():
        return as_numpy(tensor).reshape(-1), step
    if not is_dense(tensor):
        raise ValueError(f"rows of shape {tuple(tensor.shape[1:])} must be dense; call .contiguous() first")
    span = (tensor.shape[0] - 1) * step + math.prod(tensor.shape[1:])
    return as_numpy(tensor.as_strided((span,), (1,))), step


@intrinsic
def _pointer(typingctx, address):
    return types.voidptr(types.intp), lambda context, builder, signature, args: builder.inttoptr(
        args[0], context.get_value_type(types.voidptr)
    )


def array_at(address, shape, like):
    """View memory at an address (Tensor.data_ptr()) as a dense array of the type of `like`.

    A kernel that is called thousands of times a second takes addresses: making numpy arrays of five tensors costs 7 us,
    their addresses one. The caller keeps the tensors alive, and answers for their shapes.
    """
    raise NotImplementedError("array_at is for compiled kernels")


@overload(array_at)
def _array_at(address, shape, like):
    dtype = numba.np.numpy_support.as_dtype(like)
    return lambda address, shape, like: numba.carray(_pointer(address), shape, dtype)


@intrinsic
def widen(typingctx, x):
    """uint16 bits of a bfloat16 to float32; float32 and float64 as they are."""
    if not isinstance(x, types.Integer):
        return x(x), lambda context, builder, signature, args: args[0]

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        bits = builder.shl(builder.zext(args[0], word), ir.Constant(word, 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(x), codegen


@intrinsic
def product(typingctx, a, b):
    """Return a * b, rounded: never made one with the sum that takes it.

    Of a * b + c * d the compiler may fuse either product, here the one and there the other, and the sums differ.
    """
    return a(a, a), lambda context, builder, signature, args: builder.fmul(*args, flags=["nsz"])


@intrinsic
def _float_to_bits(typingctx, x):
    return types.uint32(types.float32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.IntType(32)
    )


@intrinsic
def _bits_to_float(typingctx, bits):
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(
        args[0], ir.FloatType()
    )


def cast(x, like):
    """Give a number the type of `like`, since numba makes float64 of an integer times a float32."""
    raise NotImplementedError("cast is for compiled kernels")


@overload(cast)
def _cast(x, like):
    if like == types.float32:
        return lambda x, like: np.float32(x)
    return lambda x, like: np.float64(x)


def size_of(like):
    """Return the bytes of an element of the type of `like`."""
    raise NotImplementedError("size_of is for compiled kernels")


@overload(size_of)
def _size_of(like):
    size = like.bitwidth // 8
    return lambda like: size


def scratch(shape, like):
    """Allocate an array of the type of `like`."""
    raise NotImplementedError("scratch is for compiled kernels")


@overload(scratch)
def _scratch(shape, like):
    if like == types.float32:
        return lambda shape, like: np.empty(shape, np.float32)
    return lambda shape, like: np.empty(shape, np.float64)


def narrow(x, like):
    """Round a float to the storage type of `like`: nearest even for bfloat16 bits, as torch rounds."""
    raise NotImplementedError("narrow is for compiled kernels")


@overload(narrow)
def _narrow(x, like):
    if not isinstance(like, types.Integer):
        return lambda x, like: x

    def to_bfloat16(x, like):
        bits = _float_to_bits(x)
        rounded = np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
        return rounded if x == x else np.uint16(0x7FC0)

    return to_bfloat16


def exp(x):
    """e**x without a library call, so that loops over it vectorize; float32 is clamped to normal numbers."""
    raise NotImplementedError("exp is for compiled kernels")


@overload(exp)
def _exp(x):
    if x != types.float32:
        return lambda x: math.exp(x)

    def exp_float32(x):
        y = x * _LOG2_E
        y = _LOWEST_EXPONENT if y < _LOWEST_EXPONENT else y
        y = _HIGHEST_EXPONENT if y > _HIGHEST_EXPONENT else y
        whole = np.floor(y + _HALF)
        f = y - whole
        power = _ONE + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))))
        return power * _bits_to_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))

    return exp_float32
