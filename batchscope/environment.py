"""Checks that Python finds our packages, whose names others use too."""

from importlib.metadata import PackageNotFoundError, version


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
