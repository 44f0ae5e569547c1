"""Hand a model its weights by name, checking that none is missing, misshapen or left over."""

from typing import Protocol

import torch

from engine.config import ConfigError
from kernels.linear_int4 import Int4Weight, prepare_int4

UNUSED = ("rotary_emb.inv_freq",)  # old checkpoints store what is computed from rope_theta


class Checkpoint(Protocol):
    """Named tensors, read one at a time."""

    @property
    def source(self) -> str:
        """The file or folder, for error messages."""

    def names(self) -> set[str]:
        """Return the name of every tensor."""

    def read(self, name: str) -> torch.Tensor:
        """Return one tensor on the CPU. Raises ConfigError when the file is damaged."""


class Weights:
    """A checkpoint on its way into a model, by Hugging Face's names."""

    def __init__(
        self, checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device, int4: Checkpoint | None = None
    ) -> None:
        """`int4` has the 4-bit weights that the file itself holds, as NAME.q, NAME.scale and NAME.minimum."""
        self.checkpoint = checkpoint
        self.int4 = int4
        self.dtype = dtype
        self.device = device
        self._left = {name for name in checkpoint.names() if not name.endswith(UNUSED)}

    def take(self, name: str, *shape: int) -> torch.Tensor:
        """Return the named tensor in our dtype, on our device. Raises ConfigError when missing or of another shape."""
        if name not in self._left:
            raise ConfigError(f"{self.checkpoint.source} has no tensor {name}: the weights do not fit config.json")
        self._left.remove(name)
        tensor = self.checkpoint.read(name)
        if tuple(tensor.shape) != shape or not tensor.is_floating_point():
            raise ConfigError(
                f"{self.checkpoint.source}: tensor {name} is {tensor.dtype} {list(tensor.shape)}, "
                f"expected floating point {list(shape)}: the weights do not fit config.json"
            )
        return tensor.to(self.device, self.dtype, copy=True)  # one that lies in a mapped file keeps all of it in memory

    def stacked_int4(self, names: list[str]) -> Int4Weight | None:
        """Return the named weights, one below the other, in the file's own 4 bits; None where it has others."""
        if self.int4 is None or not {f"{name}.q" for name in names} <= self.int4.names():
            return None
        pairs, scale, minimum = (
            torch.cat([self.int4.read(f"{name}.{part}") for name in names]) for part in ("q", "scale", "minimum")
        )
        q = torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(1)
        return prepare_int4(q, scale, minimum)

    def drop(self, name: str) -> None:
        """Leave out a tensor that the model has no use for, if it is there."""
        self._left.discard(name)

    def finish(self) -> None:
        """Raise ConfigError if the checkpoint holds a tensor that the model did not take."""
        if self._left:
            name = min(self._left)
            raise ConfigError(
                f"{self.checkpoint.source} has a tensor we don't know, {name} ({len(self._left)} such): "
                "this variant of the architecture is not implemented"
            )
