"""The shape of Gemini's bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.testing.wire._gemini._errors import problem_message, where
from shoal.testing.wire._json import arr, obj
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._shape import Problem, shape

SCHEMAS = ("parameters", "response", "responseSchema")
BROKEN = ("missing", "type", "value")


def camelled(body: Any, *, caching: bool = False) -> Any:
    """Return *body* with its fields in the one way of writing them; the vendor takes `inline_data` for `inlineData`."""
    known = shape("gemini")
    return _camelled(body, known.other if caching else known.root, known.defs)


def _camelled(value: Any, node: Any, defs: Mapping[str, Mapping[str, Any]]) -> Any:
    match node:
        case {"ref": name} if isinstance(value, dict):
            fields = {**defs[name]["required"], **defs[name]["optional"]}
            named = {_field(key, fields): inner for key, inner in obj(value).items()}
            return {key: _camelled(inner, fields.get(key), defs) for key, inner in named.items()}
        case {"list": inner} if isinstance(value, list):
            return [_camelled(entry, inner, defs) for entry in arr(value)]
        case {"map": inner} if isinstance(value, dict):
            return {key: _camelled(entry, inner, defs) for key, entry in obj(value).items()}
        case _:
            return value


def _field(key: str, fields: Mapping[str, Any]) -> str:
    first, *rest = key.split("_")
    camel = first + "".join(word.title() for word in rest)
    return camel if camel in fields else key


def shape_violations(body: Any, *, caching: bool = False) -> list[tuple[Violation, bool]]:
    """Return what is wrong with the shape of *body*, each with whether something could be made of it all the same."""
    if not isinstance(body, dict):
        return [(Violation("schema", "", "Invalid JSON payload received. Expected an object."), False)]
    known = shape("gemini")
    problems = [found for found in known.problems(body, known.other if caching else None) if not _lower_case(found)]
    return [
        (Violation(_rule(found), where(found.keys), problem_message(found)), found.kind not in BROKEN)
        for found in problems
    ]


def _in_schema(problem: Problem) -> bool:
    return any(step in SCHEMAS for step in problem.keys[:-1]) and "contents" not in problem.keys


def _lower_case(problem: Problem) -> bool:
    """Say whether *problem* is a type of a schema in lower case, which is taken."""
    return _in_schema(problem) and problem.keys[-1] == "type" and str(problem.got).upper() in problem.wanted


def _rule(problem: Problem) -> str:
    keys = problem.keys
    if _in_schema(problem):
        return "G7"
    match problem.kind, keys:
        case "missing", ("contents",):
            return "G1"
        case _, (*_, "functionResponse", "response"):
            return "G3"
        case "unknown", _:
            return "unknown"
        case _:
            return "schema"
