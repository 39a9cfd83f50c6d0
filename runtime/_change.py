"""A changed blueprint for a run that is under way: checked as a spawn is, and journaled as a whole or not at all.

A run goes on with what it was spawned as, whatever becomes of the files. This is the one exception, and somebody has to
ask for it by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import final

import msgspec

from shoal.blueprints import CallerSeed, Region, ScriptSeed
from shoal.errors import JournalDamaged, SpawnRefused
from shoal.providers import Text
from shoal.runtime._differences import differences
from shoal.runtime._host import Host, Serving
from shoal.runtime._live import Live
from shoal.runtime._own_scripts import check_tools, own_scripts
from shoal.runtime._scripting import frees
from shoal.runtime._seeds import Resolved, Sources, check_callers, look_up_all, resolve_seeds
from shoal.runtime._sources import Moment, sources
from shoal.runtime._sowing import sow
from shoal.runtime._spawn import Drafting, check_serving, has_budget, sources_given
from shoal.runtime._tooling import tool_context
from shoal.runtime._unbuilt import refuse_unbuilt
from shoal.runtime.events import (
    BlueprintChanged,
    Event,
    LaneDegraded,
    ModelChanged,
    RunSpawned,
)
from shoal.runtime.journal import Reader
from shoal.runtime.program import Program
from shoal.runtime.scripts import Script
from shoal.runtime.state import RunState


def made_of(reader: Reader, run_id: str) -> RunSpawned:
    """Return how a run of the journal was spawned, and what it is made of now.

    Raises:
        JournalDamaged: Its first event cannot be read.
    """
    spawned = next(iter(reader.read(run_id))).payload
    assert isinstance(spawned, RunSpawned)  # the first event of every run
    try:
        changed = reader.newest(run_id, BlueprintChanged)
    except JournalDamaged:  # what is behind the damage is not counted when it goes on
        return made_behind(list(_good(reader, run_id)))
    return spawned if changed is None else _onto(spawned, changed)


def _good(reader: Reader, run_id: str) -> Iterator[Event]:
    """Yield the events of a run up to the first that cannot be read."""
    with suppress(JournalDamaged):
        yield from reader.read(run_id)


def made_behind(events: Sequence[Event]) -> RunSpawned:
    """Return how the run with *events* (oldest first) was spawned, and what it is made of at their end."""
    spawned = events[0].payload
    assert isinstance(spawned, RunSpawned)  # the first event of every run
    for event in events:
        if isinstance(event.payload, BlueprintChanged):
            spawned = event.payload.onto(spawned)
    return spawned


def _onto(spawned: RunSpawned, changed: Event) -> RunSpawned:
    assert isinstance(changed.payload, BlueprintChanged)  # the caller asked for that kind
    return changed.payload.onto(spawned)


@final
class Changed(msgspec.Struct, frozen=True):
    """A change that was worked out, and of which nothing is journaled yet.

    Args:
        program: What the run is made of from here on.
        events: What happens to it, in order.
        scripts: Scripts that it is made of beside its definition.
        parts: Bytes of the stored parts that come with it, by digest.
    """

    program: Program
    events: tuple[Event, ...]
    scripts: tuple[Script, ...]
    parts: Mapping[str, bytes]

    def write(self, host: Host) -> None:
        """Append its events; they are durable after the journal's next barrier.

        Raises:
            JournalFailed: The journal cannot be written.
        """
        host.journal.define(self.program.digest, self.program.definition)
        for script in self.scripts:
            host.journal.define(script.digest, script.source.encode())
        for digest, data in self.parts.items():
            host.journal.store(digest, data)
        for event in self.events:
            host.journal.append(event)


async def change(host: Host, state: RunState, program: Program, drafting: Drafting) -> Changed | None:
    """Work out what it does to a run to go on with *program*.

    Args:
        host: The services it shares.
        state: The run: a state of its own, which this changes, and which finds *program* and the drafted parts.
        program: What it is to be made of.
        drafting: Takes the events; empty.

    Returns:
        What is to be journaled; `None` where that is what it is made of already.

    Raises:
        SpawnRefused, NotBuiltYet: It cannot go on with that; the message says why.
    """
    made, blueprint = state.made_by, program.blueprint
    refuse_unbuilt(blueprint)
    _check(state, program)
    limited = has_budget(blueprint, made.stage, made.budget)
    budgets = made.budgets if not limited or state.run_id in made.budgets else (state.run_id, *made.budgets)
    check_serving(host, program, made, [run_id for run_id in budgets if run_id != state.run_id])
    scripts = dict(await own_scripts(blueprint, host.sandbox, host.threads))
    await check_tools(program.tool_scripts, host.sandbox)
    found = _sources(host, state, program)
    scripts |= await _seed_scripts(state, program, found)
    seeds = await _new_seeds(state, program, found)
    scripts |= {seed.script.path: seed.script for seed in seeds if seed.script is not None}
    payload = BlueprintChanged(
        program.digest,
        made.definition,
        tuple(sorted(differences(state, program, scripts))),
        sources_given(program),
        tuple((path, script.digest) for path, script in sorted(scripts.items())),
        budgets,
    )
    if not payload.changed:
        return None
    await _apply(_Lives(host, state, drafting, scripts), program, payload, seeds)
    return Changed(program, tuple(drafting.events), tuple(scripts.values()), drafting.parts)


@final
class _Lives:
    """A run before and behind the change: its scripts are not the same, and neither life takes a step."""

    def __init__(self, host: Host, state: RunState, drafting: Drafting, scripts: Mapping[str, Script]) -> None:
        self.host = host
        self.state = state
        self.before = Live(state, host, journal=drafting)
        self.after = Live(state, host, journal=drafting, scripts=scripts)


async def _apply(lives: _Lives, program: Program, payload: BlueprintChanged, seeds: Sequence[Resolved]) -> None:
    """Write down what of the window goes, the change, who serves from here on, and what new regions begin with."""
    state, before = lives.state, lives.before
    stage = program.stages[state.stage.name]
    serving = _serving(lives.host, state, program)
    window_tokens = serving.profile.window_tokens
    # The scripts of before say what goes: what is kept there is theirs.
    freed = await frees(before, state.view.layout_calls(stage.layout, window_tokens))
    shed = state.view.plan_layout(stage.layout, serving.model, window_tokens, frees=freed)
    before.change((each, None) for each in shed)
    for job in tuple(state.jobs.values()):
        if job.started.lane == "refresh" and job.started.region not in stage.refreshing:
            before.emit(LaneDegraded("refresh", job.job, job.started.region, "dropped"))
    before.emit(payload)
    if (serving.provider.name, serving.model) != state.serving[:2]:
        intake = serving.profile.intake
        named = (serving.provider.name, serving.model, window_tokens, "the blueprint was changed")
        before.emit(ModelChanged(*named, intake.types, intake.counting))
    for resolved in seeds:
        await sow(lives.after, resolved)


def _serving(host: Host, state: RunState, program: Program) -> Serving:
    """Return who serves the stage from here on: whoever does, unless the stage says something else now."""
    model = program.stages[state.stage.name].model
    candidates = host.serving(model, state.made_by.model, state.made_by.default_model)
    now = [each for each in candidates if (each.provider.name, each.model) == state.serving[:2]]
    return now[0] if now and model == state.stage.model else candidates[0]


# --- what is refused


def _check(state: RunState, program: Program) -> None:
    """Refuse a program under which what the run did, or is in the middle of, has no meaning."""
    blueprint, was = program.blueprint, state.program.blueprint
    if state.program.function is not None or program.function is not None:
        raise _refused(state, "an agentic function goes on with its own source, and no run becomes one")
    if blueprint.name != was.name:
        raise _refused(
            state, f"its blueprint is {was.name!r} and this one is {blueprint.name!r}: spawn that one instead"
        )
    edge = state.leaving
    used = dict.fromkeys((*state.visits, *([edge.target] if edge is not None and edge.target else [])))
    gone = [name for name in used if name not in program.stages]
    if gone:
        listed = ", ".join(f"`{name}`" for name in gone)
        raise _refused(state, f"it has been in {listed}, and the changed blueprint has no such stage: put it back")
    _check_points(state, program)
    for name, region in program.regions.items():
        held = state.view.states.get(name)
        if held is not None and not held.empty and (held.region.kind == "checklist") != (region.kind == "checklist"):
            raise _refused(
                state,
                f"its region {name!r} is a {held.region.kind!r} and would become a {region.kind!r}: items are no "
                "entries, so give one of them another name",
            )


def _check_points(state: RunState, program: Program) -> None:
    """Refuse a stage that lacks an interaction point at which the run waits for a person."""
    declared = {point.name for point in program.stages[state.stage.name].stage.interaction_points}
    was = {point.name for point in state.stage.stage.interaction_points}
    for asked in state.questions.values():
        if asked.point in was - declared:
            raise _refused(
                state, f"it asks a person at the interaction point {asked.point!r}, which is gone: answer it first"
            )


def _refused(state: RunState, why: str) -> SpawnRefused:
    return SpawnRefused(f"run {state.run_id} cannot go on with the changed blueprint: {why}")


# --- seeds and scripts


def _sources(host: Host, state: RunState, program: Program) -> Sources:
    made, visit = state.made_by, state.visit
    assert visit is not None  # a run is in a stage from its birth on
    context = tool_context(host, program, made, state.run_id, lambda _name: None)
    moment = Moment(program.stages[state.stage.name].stage, visit.number, host.clock.unix(), state.seq)
    return sources(host, program, context, made, moment)


def _new(state: RunState, program: Program) -> Mapping[str, Region]:
    return {name: region for name, region in program.regions.items() if name not in state.view.states}


async def _new_seeds(state: RunState, program: Program, found: Sources) -> tuple[Resolved, ...]:
    """Return what the seeds of regions give that the run has not had so far."""
    new = _new(state, program)
    takes = {region.seed.name for region in new.values() if isinstance(region.seed, CallerSeed)}
    given: dict[str, Text] = {name: text for name, text in found.caller.items() if name in takes}
    check_callers(new, program.blueprint.name, given)
    return await resolve_seeds(tuple(new.values()), found)


async def _seed_scripts(state: RunState, program: Program, found: Sources) -> Mapping[str, Script]:
    """Return the scripts that fill regions of the run again, by path."""
    known = [region for name, region in program.regions.items() if name in state.view.states]
    seeds = [r for r in known if isinstance(r.seed, ScriptSeed) and r.seed.refresh != "once"]
    looked = await look_up_all(seeds, found)
    return {each.script.path: each.script for each in looked.values() if each.script is not None}
