"""Schemas of functions: the subset of OpenAPI that `parameters` are written in, or JSON Schema beside it. G7."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shoal.testing.wire._gemini._request import Request
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._rules import Violation

BODY = "* GenerateContentRequest"
FOREIGN = ("additionalProperties", "defs", "ref")
"""Fields of the client's own type for schemas that this API has not."""


def g7(request: Request) -> Iterator[Violation]:
    """Parameters are written in the subset, or as JSON Schema, not both."""
    for path, function in request.functions:
        for field, other in (("parameters", "parametersJsonSchema"), ("response", "responseJsonSchema")):
            if function.get(field) is not None and function.get(other) is not None:
                yield Violation("G7", path, f"{BODY}.{path}: only one of {field} and {other} may be set.")
            if field in function:
                yield from _walk(obj(function[field]), f"{path}.{field}", empty_objects=request.model.signatures)
            elif not isinstance(function.get(other, {}), dict):
                yield Violation("G7", path, f"{BODY}.{path}: {other} must be a JSON Schema object.")
    if "responseSchema" in request.generation:
        yield from _walk(obj(request.generation["responseSchema"]), "generation_config.response_schema")


def _walk(node: Json, path: str, *, empty_objects: bool = True) -> Iterator[Violation]:
    for key in FOREIGN:
        if key in node:
            what = f"Invalid JSON payload received. Unknown name \"{key}\" at '{path}': Cannot find field."
            yield Violation("G7", path, what)
    kind = str(node.get("type", "")).upper()
    properties = obj(node.get("properties"))
    if kind == "OBJECT" and not properties and not empty_objects:
        yield _told(f"{path}.properties", "should be non-empty for OBJECT type")
    for number, name in enumerate(arr(node.get("required"))):
        if name not in properties:
            yield _told(f"{path}.required[{number}]", "property is not defined")
    if kind == "ARRAY" and not node.get("items"):
        yield _told(f"{path}.items", "missing field.")
    if node.get("enum") and kind not in ("", "STRING"):
        yield _told(f"{path}.enum", "only allowed for STRING type")
    for step, inner in _inside(node):
        yield from _walk(inner, f"{path}.{step}", empty_objects=empty_objects)


def _told(path: str, what: str) -> Violation:
    return Violation("G7", path, f"{BODY}.{path}: {what}")


def _inside(node: Json) -> Iterator[tuple[str, Any]]:
    for name, inner in obj(node.get("properties")).items():
        yield f"properties[{name}]", inner
    for number, inner in enumerate(arr(node.get("anyOf"))):
        yield f"any_of[{number}]", inner
    if node.get("items"):
        yield "items", node["items"]
