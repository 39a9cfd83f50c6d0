"""Keys that this version reads and does not act on: a blueprint that uses one is refused, instead of half obeyed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shoal.blueprints import (
    Blueprint,
    Stage,
)
from shoal.errors import NotBuiltYet


def refuse_unbuilt(blueprint: Blueprint) -> None:
    """Refuse *blueprint* where it asks for what this version cannot do.

    Raises:
        NotBuiltYet: It does; the keys are listed.
    """
    keys = tuple(_unbuilt(blueprint))
    if keys:
        listed = ", ".join(f"`{key}`" for key in keys)
        raise NotBuiltYet(
            f"blueprint {blueprint.name!r} uses what this version does not do: {listed}; take them out to run it",
            keys=keys,
        )


def _unbuilt(blueprint: Blueprint) -> Iterator[str]:
    on_windows = os.name == "nt"  # the hint about the shell says something there only
    whole = {
        "components.use": bool(blueprint.components),
        # A summary needs a model, and a child is born without waiting for one.
        "transforms.mappings.transform": any(
            mapping.transform == "summarize" for each in blueprint.transforms for mapping in each.mappings
        ),
        "agent.dynamic_tools": blueprint.dynamic_tools,
        "agent.shell_hint": bool(blueprint.shell_hint) and on_windows,
    }
    yield from (key for key, used in whole.items() if used)
    for stage in blueprint.stages:
        yield from _stage(f"stages.{stage.name}", stage)


def _stage(path: str, stage: Stage) -> Iterator[str]:
    used = {
        "shell_hint": bool(stage.shell_hint) and os.name == "nt",
    }
    yield from (f"{path}.{key}" for key, is_used in used.items() if is_used)
