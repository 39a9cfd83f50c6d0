"""Reading a vendor's JSON without trusting its shape."""

from __future__ import annotations

import json
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


def plain(text: str) -> str:
    """Return *text* without halves of characters, which nothing that is written down may hold."""
    # The way through UTF-16 joins the halves of one where both are there, and replaces the others.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def mended(source: str) -> str:
    """Return *source*, JSON, without halves of characters in its texts: small models and naive servers cut within one.

    Raises:
        ValueError: It is no JSON.
        RecursionError: It is too deep.
    """
    return plain(json.dumps(json.loads(source), ensure_ascii=False))
