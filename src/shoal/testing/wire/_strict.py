"""JSON Schemas that a vendor can hold a reply to: what it does not understand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast, final

STRICT_TOOLS = 20
OPTIONALS = 24
UNIONS = 16

LENGTHS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
)


@final
@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """Something in a schema that strict mode does not take. *path* leads there from its root."""

    path: tuple[str, ...]
    what: str


@final
@dataclass(slots=True)
class Budget:
    """What all schemas of a request have used up together."""

    optional: int = 0
    unions: int = 0


def schema_problems(schema: Mapping[str, Any], budget: Budget) -> Iterator[SchemaProblem]:
    """Yield what Anthropic's structured output does not take of *schema*, and count it into *budget*."""
    yield from _walk(schema, (), schema, budget, ())


def _walk(
    node: Mapping[str, Any], path: tuple[str, ...], root: Mapping[str, Any], budget: Budget, inside: tuple[str, ...]
) -> Iterator[SchemaProblem]:
    if (ref := node.get("$ref")) is not None:
        yield from _ref(str(ref), path, root, budget, inside)
        return
    if is_object(node):
        if node.get("additionalProperties") is not False:
            yield SchemaProblem(path, "For 'object' type, 'additionalProperties' must be explicitly set to false")
        budget.optional += len(set(node.get("properties") or {}) - set(node.get("required") or ()))
    if "anyOf" in node or isinstance(node.get("type"), list):
        budget.unions += 1
    for key in LENGTHS:
        if key in node:
            yield SchemaProblem(path, f"For '{node.get('type')}' type, property '{key}' is not supported")
    for step, inner in children(node):
        yield from _walk(inner, (*path, *step), root, budget, inside)


def _ref(
    ref: str, path: tuple[str, ...], root: Mapping[str, Any], budget: Budget, inside: tuple[str, ...]
) -> Iterator[SchemaProblem]:
    if not ref.startswith("#"):
        yield SchemaProblem(path, f"External $ref '{ref}' is not supported")
    elif ref in inside:
        yield SchemaProblem(path, f"Recursive $ref '{ref}' is not supported")
    elif (target := resolve(ref, root)) is None:
        yield SchemaProblem(path, f"$ref '{ref}' leads nowhere")
    else:
        yield from _walk(target, path, root, budget, (*inside, ref))


def resolve(ref: str, root: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what the pointer *ref* (`#/…`) leads to in *root*; `None` if it leads nowhere."""
    node: Any = root
    for step in ref.removeprefix("#").split("/")[1:]:
        if not isinstance(node, dict) or step not in node:
            return None
        node = cast("dict[str, Any]", node)[step]
    return cast("Mapping[str, Any]", node) if isinstance(node, dict) else None


def is_object(node: Mapping[str, Any]) -> bool:
    """Say whether *node* describes an object."""
    kind = node.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or ("properties" in node and kind is None)


def children(node: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the schemas right inside of *node*, each with the steps that lead there; `$defs` only by reference."""
    for name, inner in cast("Mapping[str, Any]", node.get("properties") or {}).items():
        if isinstance(inner, dict):
            yield ("properties", name), cast("dict[str, Any]", inner)
    if isinstance(node.get("items"), dict):
        yield ("items",), cast("dict[str, Any]", node["items"])
    for key in ("anyOf", "allOf", "oneOf"):
        for number, inner in enumerate(cast("list[Any]", node.get(key) or [])):
            if isinstance(inner, dict):
                yield (key, str(number)), cast("dict[str, Any]", inner)
