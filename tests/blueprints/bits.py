"""What the tests of blueprints have in common."""

from __future__ import annotations

from pathlib import Path

from shoal.blueprints import Blueprint, Finding, Region, loads
from shoal.errors import BlueprintInvalid

DATA = Path(__file__).parent / "data"
HEAD = 'agent.name = "trial"\n\n'
MARK = "# <-"


def found_in(text: str, *, file: str = "blueprint.toml") -> tuple[Finding, ...]:
    """Return the findings with which *text*, a file without its `[agent]`, is refused."""
    try:
        loads(HEAD + text, file=file)
    except BlueprintInvalid as refused:
        return refused.findings
    raise AssertionError("the text was accepted")


def marked_lines(text: str) -> list[int]:
    """Return the numbers of the lines of *text*, behind its head, that have the mark."""
    return [number for number, line in enumerate((HEAD + text).split("\n"), 1) if MARK in line]


def region_of(text: str, name: str = "r", *, file: str = "blueprint.toml") -> Region:
    """Return the region *name* of *text*, a file without its `[agent]`."""
    return next(region for region in loads(HEAD + text, file=file).regions if region.name == name)


def blueprint_of(text: str, *, file: str = "blueprint.toml") -> Blueprint:
    """Return the blueprint of *text*, a file without its `[agent]`."""
    return loads(HEAD + text, file=file)
