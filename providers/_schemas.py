"""JSON schemas in the forms that vendors take for the form of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.errors import ProviderRefused
from shoal.providers._json import as_list, as_object, as_text

_MEASURES = frozenset(
    {
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "uniqueItems",
    }
)
_NAMED = frozenset({"$defs", "definitions", "properties"})  # their keys are names, not keywords
_VALUES = frozenset({"const", "default", "enum", "examples"})
_UNIONS = ("allOf", "anyOf", "oneOf")
_MAX_OPTIONAL = 24
_MAX_UNIONS = 16


def closed_schema(schema: Any, provider: str, model: str) -> Any:
    """Return *schema* with each object closed and without measures, which grammars cannot hold.

    A measure goes into the description, where a model may still read it.

    Raises:
        ProviderRefused: It refers to something outside of it, or to itself, or leaves too much open.
    """
    problem = _endless(schema, schema, (), set())
    if problem:
        why = f"the schema of the reply {problem}; write it out"
        raise ProviderRefused(why, provider=provider, model=model)
    optional, unions = _choices(schema, schema, {})
    if optional > _MAX_OPTIONAL or unions > _MAX_UNIONS:
        raise ProviderRefused(
            f"the schema of the reply has {optional!r} optional properties and {unions!r} unions, and {_MAX_OPTIONAL} "
            f"and {_MAX_UNIONS} are taken; list more of them in `required`, or split the schema",
            provider=provider,
            model=model,
        )
    return _closed(schema)


def _choices(schema: Any, root: Any, known: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return how many properties *schema* makes optional, and how many unions it has, wherever it refers to.

    *known* holds what references come to: each is looked at once, however often it stands there.
    """
    here = as_object(schema)
    reference = here.get("$ref")
    if isinstance(reference, str):
        if reference not in known:
            known[reference] = _choices(_target(reference, root), root, known)
        return known[reference]
    properties = as_object(here.get("properties"))
    optional = len(properties.keys() - set(as_list(here.get("required"))))
    unions = int("anyOf" in here or isinstance(here.get("type"), list))
    items = [here["items"]] if "items" in here else []
    for part in [*properties.values(), *items, *[branch for key in _UNIONS for branch in as_list(here.get(key))]]:
        inner = _choices(part, root, known)
        optional, unions = optional + inner[0], unions + inner[1]
    return optional, unions


def _target(reference: str, root: Any) -> Any:
    target = root
    for step in reference[2:].split("/"):
        target = as_object(target).get(step)
    return target


def _closed(schema: Any) -> Any:
    if as_list(schema):
        return [_closed(part) for part in as_list(schema)]
    here = as_object(schema)
    if not here:
        return schema
    made: dict[str, Any] = {}
    measures: list[str] = []
    for key, value in here.items():
        if key in _MEASURES or (key == "minItems" and value not in (0, 1)):
            measures.append(f"{key}: {value}")
        elif key in _NAMED:
            made[key] = {name: _closed(part) for name, part in as_object(value).items()}
        else:
            made[key] = value if key in _VALUES else _closed(value)
    if here.get("type") == "object" or "properties" in here:
        made["additionalProperties"] = False
    if measures:
        said = as_text(here.get("description"))
        made["description"] = f"{said} ({', '.join(measures)})" if said else ", ".join(measures)
    return made


def _endless(schema: Any, root: Any, inside: tuple[str, ...], sound: set[str]) -> str:
    """Return why *schema* cannot be written out; empty where it can. *sound* holds references that can."""
    here = as_object(schema)
    reference = here.get("$ref")
    if isinstance(reference, str):
        if not reference.startswith("#/"):
            return f"refers to {reference!r} outside of it"
        if reference in inside:
            return f"refers to itself at {reference!r}"
        if reference in sound:
            return ""
        problem = _endless(_target(reference, root), root, (*inside, reference), sound)
        if not problem:
            sound.add(reference)
        return problem
    parts = [part for key, part in here.items() if key not in _VALUES and key not in _NAMED]
    parts += [*as_object(here.get("properties")).values(), *as_list(schema)]
    return next(filter(None, [_endless(part, root, inside, sound) for part in parts]), "")


def is_strict(schema: Any) -> bool:
    """Say whether each object in *schema* requires all its properties and forbids others."""
    return not loose(schema, "schema")


def loose(schema: Any, path: str) -> str:
    """Return the path of the first object schema that a strict schema may not hold; empty where there is none."""
    here = as_object(schema)
    if isinstance(here.get("properties"), Mapping):
        properties, required = as_object(here["properties"]), as_list(here.get("required"))
        if set(properties) != set(required) or here.get("additionalProperties") is not False:
            return path
    parts = [(f"{path}.{name}", part) for name, part in here.items()]
    parts += [(f"{path}[{index}]", part) for index, part in enumerate(as_list(schema))]
    return next(filter(None, (loose(part, name) for name, part in parts)), "")
