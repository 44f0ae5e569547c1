"""Triton where it is installed; `triton` and `tl` are None elsewhere, and the kernels are then not defined."""

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None

__all__ = ["tl", "triton"]
