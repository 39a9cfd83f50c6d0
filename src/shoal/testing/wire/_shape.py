"""Does a body have the shape that the vendor's own types give it?

The shapes are data, made once from the types of the official clients (each file says from which version), so that no
field is missing here because somebody did not think of it. A node of a shape is one of

    "str" "int" "num" "bool" "null" "any"
    {"enum": [values]}   {"list": node}   {"map": node}   {"union": [nodes]}
    {"ref": name}        an object of the file's `defs`: {"required": {key: node}, "optional": {key: node}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, TypeAlias, cast, final

Path: TypeAlias = tuple[str | int, ...]
Node: TypeAlias = str | Mapping[str, Any]

TAGS = ("type", "role")
"""Fields that tell which object of a union is meant."""


@final
class Tag(str):
    """A step of a path that names the kind of object, which is no key. Some vendors write it."""

    __slots__ = ()


@final
@dataclass(frozen=True, slots=True)
class Problem:
    """A place where a body does not have its shape.

    Args:
        path: Keys and positions from the top.
        kind: `missing`: a required field is not there; `unknown`: a field that nobody has; `type`: another type is
            wanted; `value`: one of some values is wanted.
        wanted: The types or the values that would do; empty where a field is missing or unknown.
        got: What stands there; `None` where a field is missing.
    """

    path: Path
    kind: Literal["missing", "unknown", "type", "value"]
    wanted: tuple[str, ...] = ()
    got: Any = None

    @property
    def keys(self) -> Path:
        """The path without its tags."""
        return tuple(step for step in self.path if not isinstance(step, Tag))


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of one kind of body, and of another kind that shares its parts. Load it with `shape`."""

    root: Node
    other: Node | None
    defs: Mapping[str, Mapping[str, Any]]

    def problems(self, body: Any, root: Node | None = None) -> list[Problem]:
        """Return where *body* is wrong, in the order of the body; empty if it is not.

        Args:
            body: Any JSON.
            root: The node to hold it against, for a part of a body; `None` is the whole.
        """
        return list(self._check(self.root if root is None else root, body, ()))

    def _check(self, node: Node, value: Any, path: Path) -> Iterator[Problem]:
        if isinstance(node, str):
            if not _is(node, value):
                yield Problem(path, "type", (node,), value)
            return
        match node:
            case {"ref": name}:
                yield from self._object(self.defs[name], value, path)
            case {"enum": values}:
                if not any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in values):
                    yield Problem(path, "value", tuple(str(known) for known in values), value)
            case {"list": item}:
                yield from self._list(item, value, path)
            case {"map": item}:
                yield from self._map(item, value, path)
            case _:
                yield from self._union(node["union"], value, path)

    def _list(self, item: Node, value: Any, path: Path) -> Iterator[Problem]:
        if not isinstance(value, list):
            yield Problem(path, "type", ("list",), value)
            return
        for number, entry in enumerate(cast("list[object]", value)):
            yield from self._check(item, entry, (*path, number))

    def _map(self, item: Node, value: Any, path: Path) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield Problem(path, "type", ("object",), value)
            return
        for key, entry in cast("dict[str, Any]", value).items():
            yield from self._check(item, entry, (*path, key))

    def _object(self, known: Mapping[str, Any], value: Any, path: Path) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield Problem(path, "type", ("object",), value)
            return
        fields = {**known["required"], **known["optional"]}
        for tag in TAGS:
            if tag in value and (wrong := list(self._check(fields.get(tag, "any"), value[tag], (*path, tag)))):
                yield from wrong  # meant as something else: nothing more can be said about it
                return
        for key, entry in cast("dict[str, Any]", value).items():
            if key in fields:
                yield from self._check(fields[key], entry, (*path, key))
            else:
                yield Problem((*path, key), "unknown", (), entry)
        for key in known["required"]:
            if key not in value:
                yield Problem((*path, key), "missing")

    def _union(self, nodes: list[Node], value: Any, path: Path) -> Iterator[Problem]:
        fitting = [node for node in nodes if self._may_be(node, value)]
        if not fitting:
            yield self._none_fits(nodes, value, path)
            return
        best: list[Problem] | None = None
        for node in fitting:
            found = list(self._check(node, value, (*path, *_tag(value)) if len(nodes) > 1 else path))
            if not found:
                return
            # The one that gets furthest is the one that was meant.
            if best is None or len(found[0].path) > len(best[0].path):
                best = found
        yield from best or ()

    def _may_be(self, node: Node, value: Any) -> bool:
        """Say whether *node* is what *value* could be meant as: its JSON type fits, and so does its tag."""
        if isinstance(node, str):
            return _is(node, value)
        match node:
            case {"ref": name}:
                return isinstance(value, dict) and self._tag_fits(name, cast("dict[str, Any]", value))
            case {"map": _}:
                return isinstance(value, dict)
            case {"list": _}:
                return isinstance(value, list)
            case _:
                return any(type(value) is type(known) for known in node["enum"])

    def _tag_fits(self, name: str, value: Mapping[str, Any]) -> bool:
        for tag in TAGS:
            node = self._field(name, tag)
            allowed = _enum(node)
            if allowed is None:
                continue
            if tag in value:
                return value[tag] in allowed
            return tag not in self.defs[name]["required"]
        return True

    def _field(self, name: str, key: str) -> Node | None:
        known = self.defs[name]
        return cast("Node | None", known["required"].get(key) or known["optional"].get(key))

    def _none_fits(self, nodes: list[Node], value: Any, path: Path) -> Problem:
        """Return what is wrong with *value* that is none of *nodes*: its tag, or its type."""
        if isinstance(value, dict):
            for tag in TAGS:
                values = [_enum(self._field(name, tag)) for name in map(_ref, nodes) if name]
                allowed = [str(known) for some in values for known in some or ()]
                if allowed:
                    got = cast("dict[str, Any]", value)
                    kind: Literal["value", "missing"] = "value" if tag in got else "missing"
                    return Problem((*path, tag), kind, tuple(dict.fromkeys(allowed)), got.get(tag))
        return Problem(path, "type", tuple(dict.fromkeys(_name(node) for node in nodes)), value)


def _ref(node: Node) -> str | None:
    return None if isinstance(node, str) else cast("str | None", node.get("ref"))


def _enum(node: Node | None) -> tuple[Any, ...] | None:
    """Return the values of *node* if it is a set of values, or a union of such sets; null is one of them."""
    match node:
        case {"enum": values}:
            return tuple(values)
        case {"union": nodes}:
            found = [(None,) if inner == "null" else _enum(inner) for inner in nodes]
            return None if None in found else tuple(value for some in found for value in some or ())
        case _:
            return None


def _tag(value: Any) -> tuple[Tag, ...]:
    """Return what names the kind of *value*."""
    kind = cast("dict[str, Any]", value).get("type") if isinstance(value, dict) else None
    return (Tag(kind),) if isinstance(kind, str) else ()


def _name(node: Node) -> str:
    if isinstance(node, str):
        return node
    return {"ref": "object", "map": "object", "list": "list", "enum": "str"}[next(iter(node))]


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "any":
            return True
        case "null":
            return value is None
        case "bool":
            return isinstance(value, bool)
        case "str":
            return isinstance(value, str)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


@cache
def shape(name: str) -> Shape:
    """Return the shape that ships as `shape_<name>.json`."""
    text = (resources.files("shoal.testing.wire") / f"shape_{name}.json").read_text("utf-8")
    loaded = json.loads(text)
    return Shape(loaded["root"], loaded["other"], loaded["defs"])
