"""Render a model's chat template in a sandbox: the template comes from the model file and is not trusted."""

import json
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def render_chat_template(template: str, messages: list[dict[str, Any]], **variables: Any) -> str:
    """Return the prompt text for `messages` ({"role", "content"} each). Raises ValueError when the template fails."""
    try:
        return _compile(template).render(messages=messages, **variables)
    except Exception as error:  # a template may fail in any way that Python code can
        raise ValueError(f"the model's chat template refuses these messages: {error}") from error


@lru_cache(maxsize=8)
def _compile(template: str) -> Template:
    """Compile with the settings and functions that templates on the hub are written for."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment.from_string(template)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    """Write JSON as it is: jinja2's own filter escapes <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
