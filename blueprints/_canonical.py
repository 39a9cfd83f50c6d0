"""A blueprint as bytes that stay the same: for its digest, and to have it back from a journal."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, cast, final, get_args, get_origin, get_type_hints

from shoal.blueprints._model import Blueprint, Seed
from shoal.errors import BlueprintInvalid

_SHOWN = 80
_WANTED: Mapping[type[Any], str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "`True` or `False`",
    list: "a tuple",
    dict: "a mapping",
}


@final
class Misfit(ValueError):
    """A value of another type than its field has: *why*, as the end of a sentence that begins with its path."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path = ""

    def inside(self, place: str | int, name: object) -> Misfit:
        """Return this with one more place in front of its path: a key, or an element by its *name* if it has one."""
        key = name if isinstance(place, int) and isinstance(name, str) else place
        self.path = (f".{key}" if isinstance(key, str) else f"[{key}]") + self.path
        return self

    def __str__(self) -> str:
        return f"`{self.path.removeprefix('.')}` {self.why}"


FORMAT = 1
"""Goes up when bytes of an older version would be read wrong."""

_FORM = "form"
_SEEDS = {seed.__name__: seed for seed in get_args(Seed)}
_A_SEED = get_args(Seed)[0]


def canonical(blueprint: Blueprint) -> bytes:
    """Return *blueprint* without its folder as ASCII JSON, every field included.

    Equal blueprints give equal bytes, but for the order of keys in free tables (`parameters`, `args`, `schema`): a
    model sees that order, so it counts. Defaults are written, so that a later version with other ones reads the same.
    """
    document = {"format": FORMAT, "blueprint": _plain(dataclasses.replace(blueprint, folder=None))}
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


def from_canonical(data: bytes, *, folder: Path | None = None) -> Blueprint:
    """Return the blueprint that `canonical` wrote as *data*, with *folder* as its folder. It is not checked again.

    Raises:
        BlueprintInvalid: The bytes are damaged, or a newer version wrote them.
    """
    try:
        document = json.loads(data)
        version = document["format"]
        if version != FORMAT:
            raise BlueprintInvalid(
                f"the blueprint has the format {version!r}, and this version reads {FORMAT}; update it"
            )
        blueprint = cast("Blueprint", _made(Blueprint, document["blueprint"]))
    except (ValueError, KeyError, TypeError, InvalidOperation) as error:
        raise BlueprintInvalid(f"the bytes are no canonical blueprint ({error}); take them from `canonical`") from error
    return dataclasses.replace(blueprint, folder=folder)


def _plain(value: Any) -> Any:
    """Return *value* as JSON holds it."""
    if dataclasses.is_dataclass(value):
        name_ = type(value).__name__
        shape = _shape(type(value))
        table: dict[str, Any] = {_FORM: name_} if name_ in _SEEDS else {}
        for name in shape.hints:
            field = getattr(value, name)
            # 60 and 60.0 are equal, so they must not give two digests.
            whole = name in shape.floats and isinstance(field, int)
            table[name] = float(field) if whole else _plain_at(name, field)
        return table
    if isinstance(value, Mapping):
        return {name: _plain_at(name, inner) for name, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain_at(place, inner) for place, inner in enumerate(cast("tuple[Any, ...]", value))]
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Decimal):
        return _digits(value)
    raise Misfit(f"is {_shown(value)}, which no blueprint can hold")


def _plain_at(place: str | int, value: Any) -> Any:
    try:
        return _plain(value)
    except Misfit as misfit:
        raise misfit.inside(place, getattr(value, "name", None)) from None


def _digits(amount: Decimal) -> str:
    """Return *amount* in the one spelling that equal amounts share."""
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) if amount else "0"


class _Shape(NamedTuple):
    """The fields of a type: the annotation of each, in order, the folder excluded; and which of them hold a float."""

    hints: Mapping[str, Any]
    floats: frozenset[str]


_SHAPES: dict[type[Any], _Shape] = {}


def _shape(type_: type[Any]) -> _Shape:
    if type_ not in _SHAPES:
        hints = get_type_hints(type_)
        hints = {field.name: hints[field.name] for field in dataclasses.fields(type_) if field.name != "folder"}
        floats = frozenset(name for name, hint in hints.items() if float in (hint, *get_args(hint)))
        _SHAPES[type_] = _Shape(hints, floats)
    return _SHAPES[type_]


def _made(type_: type[Any], table: Any) -> Any:
    """Return the value of *type_* for *table*. A field that an older version did not have keeps its default."""
    hints = _shape(type_).hints
    if not isinstance(table, dict):
        raise Misfit(f"is {_shown(table)}; give `{type_.__name__}(…)`")
    table = cast("dict[str, Any]", table)
    unknown = table.keys() - hints.keys() - {_FORM}
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)} of {type_.__name__}")
    return type_(**{name: _read_at(name, hints[name], value) for name, value in table.items() if name != _FORM})


def _read_at(place: str | int, hint: Any, value: Any) -> Any:
    try:
        return _read(hint, value)
    except Misfit as misfit:
        name = cast("dict[str, Any]", value).get("name") if isinstance(value, dict) else None
        raise misfit.inside(place, name) from None


def _read(hint: Any, value: Any) -> Any:
    """Return *value* as a field with the annotation *hint* holds it."""
    if get_origin(hint) in (Union, UnionType):
        if value is None and NoneType in get_args(hint):
            return None
        if isinstance(value, dict) and _FORM in value:
            return _made(_SEEDS[value[_FORM]], value)
        if _A_SEED in get_args(hint):
            raise Misfit(f"is {_shown(value)}; give a seed, such as `CallerSeed({value!r})`")
        hint = next(option for option in get_args(hint) if option is not NoneType)
    return _READERS.get(get_origin(hint), _read_plain)(hint, value)


def _read_tuple(hint: Any, value: Any) -> Any:
    return tuple([_read_at(place, get_args(hint)[0], inner) for place, inner in enumerate(_typed(list, value))])


def _read_mapping(hint: Any, value: Any) -> Any:
    inner = get_args(hint)[1]
    return MappingProxyType({name: _read_at(name, inner, item) for name, item in _typed(dict, value).items()})


def _read_literal(hint: Any, value: Any) -> Any:
    options = get_args(hint)
    if value not in options:
        near = difflib.get_close_matches(str(value), options, n=1)
        meant = f" (did you mean `{near[0]}`?)" if near else ""
        raise Misfit(f"is {_shown(value)}{meant}; write one of {', '.join(f'`{option}`' for option in options)}")
    return value


def _read_plain(hint: Any, value: Any) -> Any:
    if hint is Any:
        return value
    if hint is Decimal:
        return Decimal(_typed(str, value))
    if dataclasses.is_dataclass(hint):
        return _made(cast("type[Any]", hint), value)
    return _typed(hint, value)


def _typed(type_: type[Any], value: Any) -> Any:
    if type(value) is not type_:
        raise Misfit(f"is {_shown(value)}; give {_WANTED.get(type_, type_.__name__)}")
    return value


def _shown(value: Any) -> str:
    """Return *value* for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


_READERS: Mapping[Any, Any] = {tuple: _read_tuple, Mapping: _read_mapping, Literal: _read_literal}
