"""Checks a decoded body against a vendor's `TypedDict`s, strictly: what the types do not name is a fault.

Ordinary validators let a body through that the vendor would refuse: they leave unknown keys alone, and they never look
into what is declared as an iterable.
"""

from __future__ import annotations

import collections.abc
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions
from pydantic import BaseModel

_WRAPPERS = {typing.Required, typing.NotRequired, typing_extensions.Required, typing_extensions.NotRequired}
_REQUIRED = {typing.Required, typing_extensions.Required}


def faults(value: object, kind: Any, path: str = "body") -> list[str]:
    """Return what is wrong with *value* as a *kind*, each fault with its path."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated or origin in _WRAPPERS:
        return faults(value, args[0], path)
    if kind is Any or kind is object:
        return []
    if origin in (Union, types.UnionType):
        return _fewest(value, [arm for arm in args if not _is_answer(arm)] or args, path)
    if origin is Literal:
        return [] if value in args else [f"{path}: {value!r} is none of {args!r}"]
    if typing_extensions.is_typeddict(kind):
        return _object_faults(value, kind, path)
    if origin in (list, collections.abc.Iterable, collections.abc.Sequence) or "SequenceNotStr" in str(origin):
        if not isinstance(value, list):
            return [f"{path}: {type(value).__name__} is no array"]
        return [fault for index, part in enumerate(value) for fault in faults(part, args[0], f"{path}[{index}]")]
    if origin in (dict, collections.abc.Mapping) or kind is dict:
        return [] if isinstance(value, Mapping) else [f"{path}: {type(value).__name__} is no object"]
    return _scalar_faults(value, kind, path)


def _object_faults(value: object, kind: Any, path: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {type(value).__name__} is no {kind.__name__}"]
    fields, required = _fields(kind)
    found = [f"{path}: `{name}` is missing" for name in sorted(required - value.keys())]
    for name, part in value.items():
        inner = f"{path}.{name}"
        found += faults(part, fields[name], inner) if name in fields else [f"{inner}: unknown to {kind.__name__}"]
    return found


@functools.cache
def _fields(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the fields of a `TypedDict`, and which of them it requires."""
    fields = typing_extensions.get_type_hints(kind, include_extras=True)
    required = [
        name
        for name, hint in fields.items()
        if get_origin(hint) in _REQUIRED or (name in kind.__required_keys__ and get_origin(hint) not in _WRAPPERS)
    ]
    return fields, frozenset(required)


def _scalar_faults(value: object, kind: Any, path: str) -> list[str]:
    wanted = type(None) if kind is None else kind
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return []
    fits = isinstance(wanted, type) and isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
    return [] if fits else [f"{path}: {value!r} is no {kind!r}"]


def _fewest(value: object, arms: Sequence[Any], path: str) -> list[str]:
    """Return the faults of *value* as the one of *arms* that it fits best."""
    found: list[list[str]] = []
    for arm in arms:
        found.append(faults(value, arm, path))
        if not found[-1]:
            break
    return min(found, key=len)


def _is_answer(kind: Any) -> bool:
    """Say whether *kind* is a model of an answer, which the vendor's types allow where a request stands too."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)
