"""Finds a class by its qualified name, so that a part can be swapped by configuration."""

import importlib
from typing import Any

from engine.config import ConfigError


def resolve_obj_by_qualname(qualname: str) -> Any:
    """Return the object that "package.module.Name" names. Raises ConfigError when there is none."""
    module_name, _, name = qualname.rpartition(".")
    if not module_name:
        raise ConfigError(f"{qualname!r} is not a qualified name: write it as package.module.Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise ConfigError(f"there is no module {module_name!r}, named by {qualname!r}") from error
        raise
    try:
        return getattr(module, name)
    except AttributeError:
        raise ConfigError(f"module {module_name!r} has no {name!r}") from None
