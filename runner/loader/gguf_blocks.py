"""4-bit weights as a GGUF file keeps them: Q4_0 and Q4_1, blocks of 32 numbers with a scale and a minimum."""

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind

BLOCK = 32
_SCALE_BYTES = {Kind.Q4_0: 2, Kind.Q4_1: 4}  # before a block's 16 bytes: its scale, and for Q4_1 its minimum

Int4Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def has_blocks(kind: Kind) -> bool:
    """Say whether tensors of this kind can be read as scale * q + minimum."""
    return kind in _SCALE_BYTES


def read_blocks(data: np.ndarray, kind: Kind) -> Int4Parts:
    """Return q (uint8 [out, in / 2], the even input in the low half), scale and minimum (float16 [out, in / 32]).

    data: uint8 [out, bytes of a row], as in the file.
    """
    start = _SCALE_BYTES[kind]
    blocks = np.ascontiguousarray(data).reshape(len(data), -1, start + BLOCK // 2)
    scale = blocks[..., :2].copy().view(np.float16)[..., 0]
    if kind is Kind.Q4_1:
        minimum = blocks[..., 2:4].copy().view(np.float16)[..., 0]
    else:
        minimum = scale * np.float16(-8)  # Q4_0 counts from -8
    packed = blocks[..., start:]  # byte i holds inputs i and 16 + i
    q = np.concatenate([packed & 15, packed >> 4], axis=-1)  # [out, blocks, 32]
    pairs = (q[..., 0::2] | q[..., 1::2] << 4).reshape(len(data), -1)
    return torch.from_numpy(pairs), torch.from_numpy(scale), torch.from_numpy(minimum)
