"""Schemas that OpenAI holds a reply or a call to: O11 and R8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shoal.testing.wire._strict import children, is_object, resolve

UNSUPPORTED = ("allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "patternProperties")


def strict_problems(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what strict mode does not take of *schema*, in the vendor's words."""
    if not is_object(schema):
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
        return
    yield from _walk(schema, (), schema, frozenset())


def _walk(
    node: Mapping[str, Any], path: tuple[str, ...], root: Mapping[str, Any], seen: frozenset[str]
) -> Iterator[str]:
    where = f"In context={path!r}, "
    if isinstance(ref := node.get("$ref"), str):
        target = resolve(ref, root)
        if target is None:
            yield f"{where}reference '{ref}' leads nowhere."
        elif ref not in seen:  # recursion is fine here
            yield from _walk(target, path, root, seen | {ref})
        return
    if is_object(node):
        if node.get("additionalProperties") is not False:
            yield f"{where}'additionalProperties' is required to be supplied and to be false."
        missing = sorted(set(node.get("properties") or {}) - set(node.get("required") or ()))
        if missing:
            what = "'required' is required to be supplied and to be an array including every key in properties."
            yield f"{where}{what} Missing '{missing[0]}'."
    for key in UNSUPPORTED:
        if key in node:
            yield f"{where}'{key}' is not permitted."
    for step, inner in children(node):
        yield from _walk(inner, (*path, *step), root, seen)
