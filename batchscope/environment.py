"""What must be so before torch is imported: our packages are found, and waiting threads give way."""

import os
from importlib.metadata import PackageNotFoundError, version

SPIN_COUNT = "3000"


def let_threads_give_way() -> None:
    """Have OpenMP's waiting threads sleep soon, unless GOMP_SPINCOUNT or OMP_WAIT_POLICY is set already.

    Torch and our compiled kernels each have their own OpenMP threads. Left alone, those that wait spin for
    milliseconds and keep the others off the cores. A decode pass of 16 rows on two cores, ms, quiet / beside one other
    busy process: spins of 1,000 29 / 46, 3,000 21 / 53, 10,000 22 / 82, 100,000 21 / 295.
    It works only before torch is imported, and child processes inherit it.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def check_environment() -> None:
    """Raise ImportError where Hugging Face's `kernels` shares the environment.

    Both distributions install a package named `kernels`. Whichever comes first on the path hides the other: either the
    runner imports theirs, or transformers, which sees theirs installed, imports ours.
    """
    try:
        found = version("kernels")
    except PackageNotFoundError:
        return
    raise ImportError(
        f"Hugging Face's `kernels` {found} is installed here, and Batchscope has a package of the same name: only one "
        "of them can be imported. Install Batchscope in a fresh environment (python -m venv, or `make setup`), or "
        "remove the other with `pip uninstall kernels` and install Batchscope again."
    )
