"""Keys that are read and not acted on: whoever uses one is told, instead of being half obeyed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.blueprints import (
    Blueprint,
    BlueprintTransform,
    Stage,
    TransformMapping,
)
from shoal.errors import NotBuiltYet
from shoal.runtime import _unbuilt
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
]


@pytest.mark.parametrize(("key", "fields"), WHOLE, ids=[key for key, _ in WHOLE])
def test_a_key_of_the_blueprint_is_named(key: str, fields: dict[str, Any]):
    assert refused(replace(PLAIN, **fields)) == (key,)


def test_the_hint_about_the_shell_says_nothing_but_on_windows(monkeypatch: pytest.MonkeyPatch):
    made = replace(PLAIN, shell_hint=True, stages=(Stage("work", shell_hint=True),))
    monkeypatch.setattr(_unbuilt, "os", SimpleNamespace(name="posix"))
    refuse_unbuilt(made)
    monkeypatch.setattr(_unbuilt, "os", SimpleNamespace(name="nt"))
    assert refused(made) == ("agent.shell_hint", "stages.work.shell_hint")


def test_what_is_switched_off_is_obeyed():
    off = replace(PLAIN, batch_tool_hint=False, shell_hint=False)
    refuse_unbuilt(replace(off, stages=(Stage("work", batch_tool_hint=False, shell_hint=False),)))


def test_everything_that_is_used_is_named_at_once_in_the_order_of_the_file():
    made = replace(PLAIN, components=("facts",), dynamic_tools=True)
    assert refused(made) == ("components.use", "agent.dynamic_tools")
