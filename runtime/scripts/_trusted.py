"""Python functions of the program itself in the place of a script: trusted, so that no sandbox holds them."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Functions: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""Functions by the names that a script would define them under: each is given a plain copy and returns plain values."""

MARK = "# trusted functions of the program\n"
"""What the journal holds instead of a script begins with it."""


def described(functions: Functions) -> str:
    """Return what the journal keeps of *functions*: where each is, and what its source was."""
    rows = [f"{name} {_where(function)} {_source_digest(function)}" for name, function in sorted(functions.items())]
    return MARK + "\n".join(rows)


def _where(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', repr(type(function)))}"


def _source_digest(function: Callable[..., Any]) -> str:
    try:
        source = inspect.getsource(function).encode()
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        source = b"" if code is None else code.co_code
    return hashlib.sha256(source).hexdigest()[:16]
