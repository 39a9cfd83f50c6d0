"""How a run comes to have a child: what that is made of, what it is handed, and how deep it may stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from msgspec.structs import replace

from shoal.blueprints import Blueprint, ChildSupervision, resolve, stage_tools
from shoal.errors import RunEnded as RunIsOver
from shoal.errors import RunNotFound, SpawnRefused
from shoal.runtime._bundle import Bundle
from shoal.runtime._clock import Clock
from shoal.runtime._function import AgenticCall
from shoal.runtime._home import Home
from shoal.runtime._host import ChildRequest
from shoal.runtime._live import Live
from shoal.runtime._programs import Programs
from shoal.runtime._running import entered
from shoal.runtime._seeds import callers_of
from shoal.runtime._side import condensed
from shoal.runtime._spawn import Announced, Birth
from shoal.runtime._transforms import Carried, as_seeds, carried
from shoal.runtime.events import ChildSpawned, RestartRule
from shoal.runtime.journal import Journal
from shoal.runtime.program import Program, shipped_names
from shoal.runtime.tools import Tool

_WITHIN_S = 5.0
"""Window of a child's restart budget where its stage names none: OTP's default."""
_FOR_EVER_S = 1e12


_Inherited: TypeAlias = tuple[Mapping[str, str], tuple[Carried, ...]]
"""Seeds by name, and what regions begin with."""


class Spawns(Protocol):
    """What spawning a child needs of the hall."""

    journal: Journal
    clock: Clock
    programs: Programs
    home: Home

    async def begin(self, births: Sequence[Announced]) -> None:
        """Bring runs into the world, all or none, and let them live here."""
        ...


async def spawn_child(hall: Spawns, parent: str, wanted: ChildRequest) -> str:
    """Start a child of the run *parent* and return its id; see `spawn_children`."""
    run_id = hall.clock.new_id()
    await spawn_children(hall, parent, {run_id: wanted})
    return run_id


async def spawn_children(hall: Spawns, parent: str, wanted: Mapping[str, ChildRequest]) -> Sequence[str]:
    """Start children of the run *parent*, all or none; the parent's `ChildSpawned` of each is durable before it starts.

    Args:
        hall: The hall.
        parent: The run.
        wanted: What each is to be, by the id that it gets, in order.

    Returns:
        The name of each one's blueprint.

    Raises:
        RunEnded: The parent is over.
        RunNotFound: The parent does not live here.
        SpawnRefused: The parent may have no such child, or a child cannot run.
    """
    live = await _parent(hall, parent)
    births = [await _announced(hall, live, run_id, each) for run_id, each in wanted.items()]
    await hall.begin(births)
    return [each.birth.program.blueprint.name for each in births]


async def _announced(hall: Spawns, live: Live, run_id: str, wanted: ChildRequest) -> Announced:
    made = live.state.made_by
    if made.children_deeper < 1:
        raise SpawnRefused(
            f"{_called(wanted.blueprint)!r} would stand at depth {made.depth + 1} and this run may have no "
            "children; raise `max_child_depth`"
        )
    program = live.state.program if wanted.stage is not None else await _program(hall, live, wanted)
    inherited = await _inherited(live, program)
    if live.state.ended is not None:  # while its region was summarised
        raise _over(live.run_id)
    birth = _birth(live, wanted, run_id, program, inherited)
    spawned = ChildSpawned(
        run_id, program.blueprint.name, wanted.source, wanted.index, wanted.item, wanted.waited, wanted.detached
    )

    def announce() -> None:
        if wanted.step is not None:
            live.emit(wanted.step)
        live.emit(spawned)

    return Announced(birth, announce)


async def _inherited(live: Live, program: Program) -> _Inherited:
    """Return what a child of *live* is handed of its parent's regions: as seeds, and as what regions begin with."""
    ready = [
        replace(each, text=await condensed(live, each.source, each.text)) if each.summarize else each
        for each in carried(live.state, program.blueprint, program.regions)
    ]
    return as_seeds(ready, program.regions)


def _birth(live: Live, wanted: ChildRequest, run_id: str, program: Program, inherited: _Inherited) -> Birth:
    made = live.state.made_by
    given, carried_over = inherited
    takes = callers_of(program.regions)
    offered = {name: text for name, text in wanted.offered.items() if name in takes}
    allowed = (made.children_deeper - 1, program.blueprint.max_child_depth, wanted.most_depth)
    called = wanted.blueprint if isinstance(wanted.blueprint, AgenticCall) else None
    return Birth(
        run_id,
        program,
        wanted.task,
        {**given, **offered, **wanted.seeds},
        live.context.workdir,
        stage=wanted.stage,
        parent=live.run_id,
        root=made.root,
        depth=made.depth + 1,
        deeper=min(levels for levels in allowed if levels is not None),
        item=wanted.item,
        waited=wanted.waited,
        unattended=made.unattended or called is not None,
        key=wanted.key,
        model=wanted.model or made.model,
        output_dir=live.context.hidden_dir,
        detached=wanted.detached,
        output_format=wanted.output_format,
        output_instructions=wanted.output_instructions,
        output_schema=wanted.output_schema,
        carried=carried_over,
        budgets=() if wanted.detached else made.budgets,
        budget=wanted.budget,
        restarts=_rule_of(live.state.stage.stage.supervision) if wanted.source else None,
        entered=None if called is None else entered(called.function, called.arguments),
        default_model=made.default_model,
    )


async def _parent(hall: Spawns, run_id: str) -> Live:
    """Return a run that is to have a child, brought back where it sleeps.

    Raises:
        RunEnded: It is over.
        RunNotFound: It does not live here.
    """
    await hall.home.keeper.awake(run_id)
    live = hall.home.keeper.live.get(run_id)
    if live is not None and not live.over:
        return live
    row = hall.journal.find(run_id)
    if row.ended or live is not None:
        raise _over(run_id)
    raise RunNotFound(f"run {run_id} does not live here; take it up with `shoal resume {run_id}`", run_id=run_id)


def _over(run_id: str) -> RunIsOver:
    return RunIsOver(
        f"run {run_id} is over; it can have no more children: spawn them from the swarm, or from a run that waits for "
        "them, such as an agentic function",
        run_id=run_id,
    )


async def _program(hall: Spawns, live: Live, wanted: ChildRequest) -> Program:
    bundle = _bundle(hall, live, wanted)
    return await hall.programs.of(bundle, (*wanted.tools, *_passed_on(hall, live.run_id, bundle, wanted.tools)))


def _bundle(hall: Spawns, live: Live, wanted: ChildRequest) -> Bundle:
    if isinstance(wanted.blueprint, AgenticCall | Blueprint):
        return hall.programs.bundle(wanted.blueprint)
    given = live.state.program.bundle.workers.get(str(wanted.blueprint))
    if given is not None:
        return given
    path = resolve(wanted.blueprint, base=live.state.program.blueprint.folder)
    workdir = live.context.workdir
    if wanted.by_model and (path.resolve() == workdir or workdir in path.resolve().parents):
        raise SpawnRefused(
            f"{_called(wanted.blueprint)!r} lies in the run's working directory; a model may not run what it could "
            "write"
        )
    return hall.programs.bundle(path)


def _passed_on(hall: Spawns, parent: str, bundle: Bundle, given: Sequence[Tool]) -> Iterator[Tool]:
    """Yield the functions that code gave to *parent* or a run above it, as far as *bundle* lists them by name.

    What comes with the child itself, in code or as a script of its own, goes before them.
    """
    listed = {name for stage in bundle.blueprint.stages for name in stage_tools(stage)}
    found = {tool.name: tool for tool in _given_above(hall, parent) if tool.name in listed}
    if found:  # the scripts are read only where there is something to be passed on
        own = {tool.name for tool in given} | shipped_names(bundle.tools)
        yield from (tool for name, tool in found.items() if name not in own)


def _given_above(hall: Spawns, run_id: str) -> Iterator[Tool]:
    """Yield the functions that code gave to the runs above *run_id* and to itself, the root's first."""
    live = hall.home.keeper.live.get(run_id)
    parent = hall.journal.find(run_id).parent if live is None else live.state.made_by.parent
    if parent is not None:
        yield from _given_above(hall, parent)
    program = hall.home.keeper.made_of.get(run_id)
    yield from () if program is None else program.given


def _called(blueprint: str | Path | Blueprint | AgenticCall[Any]) -> str:
    if isinstance(blueprint, AgenticCall):
        return blueprint.function.name
    return blueprint.name if isinstance(blueprint, Blueprint) else str(blueprint)


def _rule_of(supervision: ChildSupervision) -> RestartRule | None:
    """Return how often the children of a stage may crash; one that is over is never started again."""
    if supervision.restart == "temporary":
        return RestartRule(0, _FOR_EVER_S)
    if supervision.max_restarts is None:
        return None
    return RestartRule(supervision.max_restarts, supervision.within_s or _WITHIN_S)
