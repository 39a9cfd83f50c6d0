"""Reading a vendor's JSON, of which the shape is known and the type is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

Json: TypeAlias = Mapping[str, Any]


NOTHING: Json = {}


def obj(value: Any) -> Json:
    """Return *value* as an object; empty if it is missing or null."""
    return cast("Json", value or {})


def arr(value: Any) -> Sequence[Any]:
    """Return *value* as a list; empty if it is missing or null."""
    return cast("Sequence[Any]", value or ())
