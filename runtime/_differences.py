"""What a changed blueprint has changed, named as it stands in its file: for people, and to see that nothing did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from shoal.blueprints import Blueprint
from shoal.runtime._bundle import Bundle
from shoal.runtime.program import Program
from shoal.runtime.scripts import Script
from shoal.runtime.state import RunState


def differences(state: RunState, program: Program, scripts: Mapping[str, Script]) -> Iterator[str]:
    """Yield what differs between what a run is made of and *program*, such as `stages.plan` or `tools.count`.

    Args:
        state: The run.
        program: What it is to be made of.
        scripts: The scripts that are not in its definition, by path.
    """
    made = state.made_by
    if made.definition != program.digest:
        yield from _in_bundle(state.program.bundle, program.bundle)
        given = {source.name: (source.qualname, source.digest) for source in made.tools}
        yield from _named("tools", given, {tool.name: tool.source for tool in program.given})
        yield from _named("tools", _connected(state.program), _connected(program))
    yield from _named("scripts", dict(made.scripts), {path: script.digest for path, script in scripts.items()})


def _in_bundle(before: Bundle, after: Bundle) -> Iterator[str]:
    yield from _in_blueprint(before.blueprint, after.blueprint)
    yield from _named("tools", _shipped(before), _shipped(after))
    for name in dict.fromkeys((*before.workers, *after.workers)):
        old, new = before.workers.get(name), after.workers.get(name)
        if old is None or new is None or any(_in_bundle(old, new)):
            yield f"workers.{name}"


def _in_blueprint(before: Blueprint, after: Blueprint) -> Iterator[str]:
    for field in fields(Blueprint):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new:
            continue
        if field.name in ("stages", "regions"):
            named = [*_named(field.name, {each.name: each for each in old}, {each.name: each for each in new})]
            yield from named or [field.name]  # nothing but their order
        else:
            yield field.name


def _shipped(bundle: Bundle) -> Mapping[str, object]:
    return {file.stem: file for file in bundle.tools}


def _connected(program: Program) -> Mapping[str, object]:
    return {tool.name: (tool.schema, tool.description) for tool in program.connected}


def _named(what: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    """Yield what differs by name, behind *what*; what stands on one side only differs."""
    missing = object()
    for name in dict.fromkeys((*before, *after)):
        if before.get(name, missing) != after.get(name, missing):
            yield f"{what}.{name}"
