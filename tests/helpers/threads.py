"""One thread for small models: on a busy machine, waiting for a second one takes longer than the work."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the calling thread's kernels on one thread."""
    before = numba.get_num_threads(), torch.get_num_threads()
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        numba.set_num_threads(before[0])
        torch.set_num_threads(before[1])
