"""Pairs of buffers: one that the host writes, one that the device reads. On the CPU the two are one."""

import numpy as np
import torch


class CpuGpuBuffer:
    """A preallocated tensor with its host side (`cpu`, and `np` over the same memory) and its device side (`gpu`)."""

    def __init__(self, *size: int, dtype: torch.dtype, device: torch.device) -> None:
        on_cpu = device.type == "cpu"
        self.cpu = torch.zeros(*size, dtype=dtype, pin_memory=not on_cpu)
        self.np = self.cpu.numpy()
        self.gpu = self.cpu if on_cpu else torch.zeros(*size, dtype=dtype, device=device)

    def copy_from_gpu(self, n: int) -> np.ndarray:
        """Return the first n entries of the device side as an array of their own."""
        return self.np[:n].copy() if self.gpu is self.cpu else self.gpu[:n].cpu().numpy()

    def copy_to_gpu(self, n: int | None = None) -> torch.Tensor:
        """Send the first n entries (all for None) along dimension 0 and return their device side."""
        host, device = (self.cpu, self.gpu) if n is None else (self.cpu[:n], self.gpu[:n])
        if self.gpu is not self.cpu:
            device.copy_(host, non_blocking=True)
        return device
