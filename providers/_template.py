"""Templates in the steps of an offline policy: text with placeholders in braces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from shoal.providers._json import as_list, as_object

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_ITEM = "item"

Fill: TypeAlias = Callable[[str], str]


def filled(value: Any, fill: Fill) -> Any:
    """Return *value*, any JSON value, with each placeholder in each of its strings replaced by what *fill* gives."""
    if isinstance(value, str):
        return _PLACEHOLDER.sub(lambda match: _one(match, fill), value)
    if isinstance(value, Mapping):
        return {name: filled(part, fill) for name, part in as_object(cast("object", value)).items()}
    if isinstance(value, list | tuple):
        return [filled(part, fill) for part in as_list(cast("object", value))]
    return value


def spread(value: Any, fill: Fill, items: list[str]) -> Any:
    """Return *value* filled; a list of one element that mentions the item holds that element once for each item."""
    parts = as_list(value)
    if len(parts) == 1 and mentions_item(parts[0]):
        return [filled(parts[0], with_item(fill, item)) for item in items]
    if parts:
        return [spread(part, fill, items) for part in parts]
    if isinstance(value, Mapping):
        return {name: spread(part, fill, items) for name, part in as_object(cast("object", value)).items()}
    return filled(value, fill)


def spreads_items(value: Any) -> bool:
    """Say whether *value* holds a list of one element that mentions the item."""
    parts = as_list(value)
    if len(parts) == 1 and mentions_item(parts[0]):
        return True
    return any(map(spreads_items, [*parts, *as_object(value).values()]))


def mentions_item(value: Any) -> bool:
    """Say whether a string anywhere in *value* mentions the item."""
    if isinstance(value, str):
        return any((match.group(1) or "").strip() == _ITEM for match in _PLACEHOLDER.finditer(value))
    return any(map(mentions_item, [*as_list(value), *as_object(value).values()]))


def with_item(fill: Fill, item: str) -> Fill:
    """Return *fill* with the item known."""
    return lambda name: item if name == _ITEM else fill(name)


def _one(match: re.Match[str], fill: Fill) -> str:
    name: str | None = match.group(1)
    return match.group()[0] if name is None else fill(name.strip())
