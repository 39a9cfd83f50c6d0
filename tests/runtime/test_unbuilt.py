"""Keys that are read and not acted on: whoever uses one is told, instead of being half obeyed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.blueprints import (
    Blueprint,
    BlueprintTransform,
    Stage,
    TransformMapping,
)
from shoal.errors import NotBuiltYet
from shoal.runtime._unbuilt import refuse_unbuilt

PLAIN = Blueprint("made", (Stage("work"),))


def refused(blueprint: Blueprint) -> tuple[str, ...]:
    """Return the keys that *blueprint* is refused for."""
    with pytest.raises(NotBuiltYet, match="blueprint 'made' uses what this version does not do: ") as caught:
        refuse_unbuilt(blueprint)
    assert all(f"`{key}`" in str(caught.value) for key in caught.value.keys)
    return tuple(caught.value.keys)


def test_a_blueprint_that_asks_for_nothing_special_is_not_refused():
    refuse_unbuilt(PLAIN)


WHOLE: list[tuple[str, dict[str, Any]]] = [
    ("components.use", {"components": ("facts",)}),
    (
        "transforms.mappings.transform",
        {"transforms": (BlueprintTransform("a", "b", (TransformMapping("x", "y", "summarize"),)),)},
    ),
    ("agent.dynamic_tools", {"dynamic_tools": True}),
    ("agent.batch_tool_hint", {"batch_tool_hint": True}),
    ("agent.shell_hint", {"shell_hint": True}),
]


@pytest.mark.parametrize(("key", "fields"), WHOLE, ids=[key for key, _ in WHOLE])
def test_a_key_of_the_blueprint_is_named(key: str, fields: dict[str, Any]):
    assert refused(replace(PLAIN, **fields)) == (key,)


STAGE: list[tuple[str, dict[str, Any]]] = [
    ("batch_tool_hint", {"batch_tool_hint": True}),
    ("shell_hint", {"shell_hint": True}),
]


@pytest.mark.parametrize(("key", "fields"), STAGE, ids=[key for key, _ in STAGE])
def test_a_key_of_a_stage_is_named_with_its_stage(key: str, fields: dict[str, Any]):
    assert refused(replace(PLAIN, stages=(Stage("work", **fields),))) == (f"stages.work.{key}",)


def test_what_is_switched_off_is_obeyed():
    off = replace(PLAIN, batch_tool_hint=False, shell_hint=False)
    refuse_unbuilt(replace(off, stages=(Stage("work", batch_tool_hint=False, shell_hint=False),)))


def test_everything_that_is_used_is_named_at_once_in_the_order_of_the_file():
    stages = (Stage("one", batch_tool_hint=True), Stage("two", shell_hint=True))
    made = replace(PLAIN, dynamic_tools=True, stages=stages)
    assert refused(made) == (
        "agent.dynamic_tools",
        "stages.one.batch_tool_hint",
        "stages.two.shell_hint",
    )
