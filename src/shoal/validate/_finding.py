"""How the checks of this room say what they found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from shoal.blueprints import Blueprint, Finding, Region, Stage

Findings: TypeAlias = Iterator[Finding]


def error(id_: str, key: str, message: str) -> Finding:
    """Return an error at *key*."""
    return Finding(id_, "error", message, key=key)


def warning(id_: str, key: str, message: str) -> Finding:
    """Return a warning at *key*."""
    return Finding(id_, "warning", message, key=key)


def note(id_: str, key: str, message: str) -> Finding:
    """Return a note at *key*."""
    return Finding(id_, "note", message, key=key)


def regions_of(blueprint: Blueprint) -> Iterator[tuple[str, Region]]:
    """Yield every region that a layout declares, with the key under which it stands."""
    for region in blueprint.regions:
        yield f"context.regions.{region.name}", region
    for stage in blueprint.stages:
        for region in stage.context.regions or ():
            yield f"stages.{stage.name}.context.regions.{region.name}", region


def moves_of(blueprint: Blueprint) -> Iterator[tuple[str, Stage, Stage]]:
    """Yield each move from one stage to another, with the key that declares it."""
    by_name = {stage.name: stage for stage in blueprint.stages}
    for position, stage in enumerate(blueprint.stages):
        if stage.transitions is not None:
            for edge in stage.transitions:
                if edge.target in by_name and edge.target != stage.name:
                    yield f"stages.{stage.name}.transitions.{edge.target}", stage, by_name[edge.target]
        elif position + 1 < len(blueprint.stages):
            yield f"stages.{stage.name}", stage, blueprint.stages[position + 1]
