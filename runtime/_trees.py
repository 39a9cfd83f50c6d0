"""Agents in supervisor trees that users write: a run as a child."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, final

from shoal.actors import ChildSpec
from shoal.blueprints import Blueprint
from shoal.errors import ChildSpecInvalid, SpawnRefused
from shoal.runtime._attachment import Attachment, SeedValue
from shoal.runtime._births import birth_of, program_of
from shoal.runtime._control import Cancel, steer
from shoal.runtime._function import AgenticCall
from shoal.runtime._hall import Hall
from shoal.runtime._keys import place_of
from shoal.runtime._orders import SpawnRequest
from shoal.runtime._resuming import RESTART, cancel_orphans, definitions, write_off
from shoal.runtime._run import Begun, RunActor
from shoal.runtime._spawn import give_birth
from shoal.runtime._standings import open_runs
from shoal.runtime.tools import as_tool

HALL: ContextVar[Hall] = ContextVar("shoal_hall")
"""What runs live in, for children that are started by a tree inside a swarm."""


def agent(
    child_id: str,
    /,
    *,
    blueprint: str | Path | Blueprint | AgenticCall[Any],
    task: str | None = None,
    seeds: Mapping[str, SeedValue] | None = None,
    tools: Sequence[Any] = (),
    workdir: str | Path = ".",
    model: str | None = None,
    restart: Literal["permanent", "transient", "temporary"] = "transient",
    resume: Literal["journal", "fresh"] = "journal",
    shutdown_s: float = 5.0,
    max_restarts: int | None = None,
    within_s: float | None = None,
) -> ChildSpec:
    """Return the child spec of a run, for a tree that `swarm.start` starts.

    Args:
        child_id: Its id in its supervisor.
        blueprint: What it runs: a name, a path, a `Blueprint`, or an agentic function with its arguments (`bound`).
        task: Its task.
        seeds: Values by name for regions that take a caller's value.
        tools: Functions that it may call.
        workdir: Its working directory.
        model: `provider:model` that replaces every stage's.
        restart: `transient` restarts it after a crash; a run that ended, however, has not crashed.
        resume: What a restart does, of the process too: `journal` goes on where the run was, `fresh` cancels that run
            and spawns another. A run that is over is always spawned anew. A later process knows the run by its tree and
            place in it, and by blueprint, task, seeds, working directory and model.
        shutdown_s: Seconds it gets to stop.
        max_restarts: Budget of its own; `None` shares its supervisor's.
        within_s: Window of that budget.

    Raises:
        ChildSpecInvalid: The spec is wrong.
    """
    if resume not in ("journal", "fresh"):
        raise ChildSpecInvalid(f"agent {child_id!r}: `resume` is {resume!r}; take `journal` or `fresh`", child=child_id)
    wanted = SpawnRequest(
        blueprint, task=task, seeds=dict(seeds or {}), tools=tools, workdir=workdir, model=model, unattended=False
    )
    return ChildSpec(
        child_id,
        _Agent(child_id, wanted, afresh=resume == "fresh").actor,
        restart=restart,
        shutdown_s=shutdown_s,
        max_restarts=max_restarts,
        within_s=within_s,
    )


@final
class _Agent:
    """An agent of a tree: one run after the other, of which the newest may be gone on with.

    Its runs are spawned under keys that say where it stands and what it was asked, so that a later process finds them.

    Args:
        child_id: Its id in its supervisor.
        wanted: What it runs.
        afresh: A restart cancels its run and spawns another.
    """

    def __init__(self, child_id: str, wanted: SpawnRequest[Any], *, afresh: bool) -> None:
        self._id = child_id
        self._wanted = wanted
        self._afresh = afresh
        self._run_id: str | None = None
        self._known_to: weakref.ref[Hall] | None = None
        """The hall that it is a run of: a tree may be started again in another swarm, on another journal."""
        self._runs = 0
        """How many runs it has had, in earlier processes too."""

    def actor(self) -> RunActor:
        """Return the actor of its next life."""
        try:
            hall = HALL.get()
        except LookupError:
            raise SpawnRefused(
                f"the agent {self._id!r} has no swarm to run in; start its tree with `swarm.start`"
            ) from None

        async def begin() -> Begun:
            return await self._begin(hall, actor.me.path)

        actor = RunActor(hall, begin, stays=True)
        return actor

    async def _begin(self, hall: Hall, path: str) -> Begun:
        place = place_of(path, _digest(self._wanted))
        if self._run_id is not None and self._known_to is not None and self._known_to() is hall:
            again = await self._go_on(hall, self._run_id, "it crashed", None)
        else:
            self._run_id, self._known_to = None, weakref.ref(hall)
            again = await self._left_behind(hall, place)
        return again or await self._spawn(hall, place)

    async def _left_behind(self, hall: Hall, place: str) -> Begun | None:
        """Go on with what an earlier process of the same tree left behind; `None` where that is nothing."""
        await hall.journal.barrier()
        rows = hall.journal.keyed(place)
        self._runs = max((int(str(row.key)[len(place) :]) for row in rows), default=0)
        others = hall.home.others()
        left = next((row.run_id for row in rows if not row.ended and row.host not in others), None)
        return None if left is None else await self._go_on(hall, left, "its process died", RESTART)

    async def _go_on(self, hall: Hall, run_id: str, why: str, by: str | None) -> Begun | None:
        """Go on with a run that is not over, or end it where it is to begin afresh; then `None`."""
        if hall.journal.find(run_id).ended:
            return None
        if run_id in hall.home.live:
            raise SpawnRefused(f"the agent {self._id!r} goes on already, as run {run_id}; wait for that one's end")
        if self._afresh:
            # Nobody would ever go on with it, and whatever it had started would work for nobody.
            await steer(hall.home, run_id, Cancel(f"{why}, and its supervisor started the agent afresh"))
            return None
        self._run_id = run_id
        if run_id not in hall.home.keeper.made_of:
            if isinstance(self._wanted.blueprint, AgenticCall):
                hall.programs.enlist(self._wanted.blueprint.function)
            await self._take_up(hall, run_id)
        return Begun(run_id, resumed_by=by)

    async def _take_up(self, hall: Hall, run_id: str) -> None:
        """Have a run that nobody hosts, and all below it, live here."""
        asleep = [row for row in open_runs(hall.journal, run_id) if row.run_id not in hall.home.keeper.made_of]
        with hall.home.claims.held([row.run_id for row in asleep]):
            given = [as_tool(tool) for tool in self._wanted.tools]
            programs, lost = definitions(hall, asleep, run_id, given)
            hall.home.keeper.made_of[run_id] = programs.pop(run_id)
            await write_off(hall, lost)
            await cancel_orphans(hall, asleep)
            # By and by: while this tree starts, the supervisor of its children waits for just that.
            for child, program in programs.items():
                hall.home.keeper.bring_up(child, program, RESTART)

    async def _spawn(self, hall: Hall, place: str) -> Begun:
        program = await program_of(hall.programs, self._wanted)
        while True:
            self._runs += 1
            key = f"{place}{self._runs:06d}"
            async with hall.keys.held(key, hall.clock.new_id()) as run_id:
                if not isinstance(run_id, str):
                    continue  # another process that has the same tree was faster
                wanted = replace(self._wanted, key=key)
                birth = birth_of(wanted, program, run_id, limits=hall.limits, default_model=hall.default_model)
                state = await give_birth(hall, birth)
            self._run_id = run_id
            return Begun(run_id, state)


def _digest(wanted: SpawnRequest[Any]) -> str:
    """Return what stands for what an agent is asked: whoever asks another thing under the same name is another."""
    blueprint = wanted.blueprint
    if isinstance(blueprint, AgenticCall):
        name = f"{blueprint.function.source.qualname} {blueprint.arguments}"
    else:
        name = blueprint.name if isinstance(blueprint, Blueprint) else str(blueprint)
    said = [name, wanted.task, str(Path(wanted.workdir).resolve()), wanted.model]
    whole = hashlib.sha256(repr(said).encode())
    for seed, value in sorted(wanted.seeds.items()):
        whole.update(repr(seed).encode())
        for each in [value] if isinstance(value, str | bytes | Attachment) else value:
            whole.update(repr((each.name, each.data) if isinstance(each, Attachment) else each).encode())
    return whole.hexdigest()[:12]
