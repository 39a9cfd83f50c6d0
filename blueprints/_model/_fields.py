"""What the values of a blueprint share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

Permission: TypeAlias = Literal["allow", "ask", "deny"]
_EMPTY: Mapping[str, Any] = MappingProxyType({})


def empty() -> Mapping[str, Any]:
    """Return the one empty mapping: no field is any other."""
    return _EMPTY


def without_zero(value: object, name: str) -> None:
    """Take 0 in a limit for no limit, as a file does, so that a file and Python give the same value."""
    if getattr(value, name) == 0:
        object.__setattr__(value, name, None)
