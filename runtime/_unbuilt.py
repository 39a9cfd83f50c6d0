"""Keys that this version reads and does not act on: a blueprint that uses one is refused, instead of half obeyed."""

from __future__ import annotations

import os
from collections.abc import Iterator

from shoal.blueprints import Blueprint
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
    if os.name != "nt":  # the hint about the shell says something there only
        return
    if blueprint.shell_hint:
        yield "agent.shell_hint"
    yield from (f"stages.{stage.name}.shell_hint" for stage in blueprint.stages if stage.shell_hint)
