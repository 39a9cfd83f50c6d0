"""Pieces of the JSON schemas of built-in tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_of(description: str, **more: Any) -> Mapping[str, Any]:
    """Return the schema of a text argument."""
    return {"type": "string", "description": description, **more}


def object_of(properties: Mapping[str, Any], *required: str) -> Mapping[str, Any]:
    """Return the schema of a call's arguments."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


PATH = text_of("Path relative to the working directory.")
