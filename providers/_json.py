"""Reading a vendor's JSON without trusting its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


def as_object(value: object) -> Mapping[str, Any]:
    """Return *value* if it is a JSON object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> Sequence[Any]:
    """Return *value* if it is a JSON array, else an empty one."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


def as_text(value: object) -> str:
    """Return *value* if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return *value* if it is a number of 0 or more, as an integer, else 0."""
    return max(int(value), 0) if isinstance(value, int | float) and abs(value) < 1e15 else 0
