"""Triton where there is a GPU, or who asks has imported it; else `triton` and `tl` are None, and no kernel is defined.

Importing it takes a fifth of a second and 70 MB, of which a CPU has nothing.
"""

import sys
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING or torch.cuda.is_available() or sys.modules.get("triton"):
    try:
        import triton
        import triton.language as tl
    except ImportError:
        triton = tl = None
else:
    triton = tl = None

__all__ = ["tl", "triton"]
