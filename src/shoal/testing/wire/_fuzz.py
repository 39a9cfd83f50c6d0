"""A brain that makes things up, the same for the same request: random work that ends."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

from shoal.testing.wire._seal import digest
from shoal.testing.wire._values import Ask, Call, Offered, Part, Text, Thinking, Turn

WORDS = (
    "reef",
    "tide",
    "shoal",
    "größer",
    "鯨",
    "\U0001f41f",
    "a\u2028b",
    '"quoted"',
    "back\\slash",
    "line\nbreak",
    "",
)
_DEPTH = 4


@final
@dataclass(frozen=True, slots=True)
class Fuzz:
    """Calls tools with arguments that fit their schemas, thinks, talks, stops in odd ways, and comes to an end.

    What it says follows from the seed and the request alone, not from the order of requests, so that a run can be
    repeated however its tasks are scheduled.

    Args:
        seed: Another seed, another world.
        steps: Replies with tool calls before it only talks, counted in the conversation.
        parallel: Most calls in one reply, 1 or more.
        odd: Chance of an empty or a cut-off reply, 0 to 1.
    """

    seed: int = 0
    steps: int = 5
    parallel: int = 3
    odd: float = 0.05

    def __call__(self, ask: Ask) -> Turn:
        # The conversation rather than the body: what the client may send anew in each request says nothing about it.
        dice = random.Random(digest(str(self.seed), ask.model, repr(ask.said)))  # noqa: S311 - made up on purpose
        made = sum(1 for said in ask.said if said.calls)
        parts: list[Part] = []
        if dice.random() < 0.5:
            parts.append(Thinking(_words(dice, 12), redacted=dice.random() < 0.2))
        forced = ask.choice not in ("auto", "none")
        if (forced or made < self.steps) and ask.choice != "none" and (offered := _offered(ask)):
            parts += [Text(text)] if (text := _words(dice, 4).strip()) and dice.random() < 0.5 else []
            for _ in range(dice.randint(1, self.parallel)):
                tool = dice.choice(offered)
                # A function that takes nothing may come without a schema: its arguments are an object all the same.
                schema = {"type": "object", **tool.schema}
                parts.append(Call(tool.name, cast("Mapping[str, Any]", value(schema, dice, tool.schema))))
            return Turn(tuple(parts))
        if dice.random() < self.odd:
            return Turn((), stop=dice.choice(("end", "length")))
        return Turn((*parts, Text(_words(dice, 30).strip() or "done")))


def _offered(ask: Ask) -> Sequence[Offered]:
    named = [tool for tool in ask.tools if tool.name == ask.choice]
    return named or ask.tools


def _words(dice: random.Random, most: int) -> str:
    return " ".join(dice.choice(WORDS) for _ in range(dice.randint(1, most)))


def value(schema: Mapping[str, Any], dice: random.Random, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Return something that fits *schema*, as far as tools' schemas go: types, enums, bounds, references, unions."""
    if isinstance(ref := schema.get("$ref"), str):
        target: Any = root
        for step in ref.removeprefix("#").split("/")[1:]:
            target = target[step]
        return value(target, dice, root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return dice.choice(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            # Beyond a depth the last branch: unions end in the plain one, as of a tree in its leaf.
            branches = cast("list[Mapping[str, Any]]", schema[key])
            return value(branches[-1] if depth > _DEPTH else dice.choice(branches), dice, root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    return _of(dice.choice(cast("list[str]", kind)) if isinstance(kind, list) else str(kind), schema, dice, root, depth)


def _of(kind: str, schema: Mapping[str, Any], dice: random.Random, root: Mapping[str, Any], depth: int) -> Any:
    match kind.lower():
        case "object":
            required = cast("list[str]", schema.get("required") or [])
            fields = cast("Mapping[str, Mapping[str, Any]]", schema.get("properties") or {})
            chosen = [key for key in fields if key in required or (depth <= _DEPTH and dice.random() < 0.5)]
            return {key: value(fields[key], dice, root, depth + 1) for key in chosen}
        case "array":
            least = int(schema.get("minItems", 0))
            items = cast("Mapping[str, Any]", schema.get("items") or {})
            count = least if depth > _DEPTH else dice.randint(least, max(least, min(int(schema.get("maxItems", 3)), 5)))
            return [value(items, dice, root, depth + 1) for _ in range(count)]
        case "integer":
            low = int(schema.get("minimum", -5))
            return dice.randint(low, max(low, int(schema.get("maximum", low + 100))))
        case "number":
            least_number = float(schema.get("minimum", -5))
            return round(dice.uniform(least_number, float(schema.get("maximum", least_number + 10))), 3)
        case "boolean":
            return dice.random() < 0.5
        case "null":
            return None
        case _:
            text = _words(dice, 3)
            return text[: int(schema.get("maxLength", len(text)))].ljust(int(schema.get("minLength", 0)), "x")
