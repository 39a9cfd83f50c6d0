"""Agents in supervisor trees that users write: a run as a child, and a tree that is started in a swarm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, final

from shoal.actors import ChildSpec, DynamicSupervisor, Reason, Supervisor
from shoal.blueprints import Blueprint
from shoal.errors import ChildNotFound, RestartsExhausted, SpawnRefused, SupervisorStopped
from shoal.runtime._attachment import SeedValue
from shoal.runtime._control import Cancel, steer
from shoal.runtime._hall import Hall
from shoal.runtime._program import Program
from shoal.runtime._run import RunActor
from shoal.runtime._spawn import Birth, give_birth
from shoal.runtime._state import RunState
from shoal.runtime.tools import as_tool

HALL: ContextVar[Hall] = ContextVar("shoal_hall")
"""What runs live in, for children that are started by a tree inside a swarm."""


def agent(
    child_id: str,
    /,
    *,
    blueprint: str | Path | Blueprint,
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
        blueprint: What it runs: a name, a path, or a `Blueprint`.
        task: Its task.
        seeds: Values by name for regions that take a caller's value.
        tools: Functions that it may call.
        workdir: Its working directory.
        model: `provider:model` that replaces every stage's.
        restart: `transient` restarts it after a crash; a run that ended, however, has not crashed.
        resume: What a restart does: `journal` goes on where the run was, `fresh` cancels that run and spawns another. A
            run that is over is always spawned anew.
        shutdown_s: Seconds it gets to stop.
        max_restarts: Budget of its own; `None` shares its supervisor's.
        within_s: Window of that budget.

    Raises:
        ChildSpecInvalid: The spec is wrong.
    """
    known: list[tuple[str, Program]] = []

    def make() -> RunActor:
        try:
            hall = HALL.get()
        except LookupError:
            raise SpawnRefused(
                f"the agent {child_id!r} has no swarm to run in; start its tree with `swarm.start`"
            ) from None

        async def begin() -> tuple[str, RunState | None]:
            if known and not hall.journal.find(known[0][0]).ended:
                run_id, program = known[0]
                if resume == "journal":
                    hall.keeper.made_of[run_id] = program
                    return run_id, None
                # Nobody would ever go on with it, and whatever it had started would work for nobody.
                await steer(hall, run_id, Cancel("it crashed, and its supervisor started the agent afresh"))
            bundle = hall.adopt(blueprint) if isinstance(blueprint, Blueprint) else hall.bundle(blueprint)
            program = await hall.program(bundle, [as_tool(tool) for tool in tools])
            deeper = program.blueprint.max_child_depth
            birth = Birth(
                hall.clock.new_id(),
                program,
                task,
                dict(seeds or {}),
                Path(workdir),
                deeper=hall.limits.max_child_depth if deeper is None else deeper,
                model=model,
            )
            state = await give_birth(hall, birth)
            known[:] = [(birth.run_id, program)]
            return birth.run_id, state

        return RunActor(hall, hall, begin, crash=hall.crash_of, stays=True)

    return ChildSpec(
        child_id, make, restart=restart, shutdown_s=shutdown_s, max_restarts=max_restarts, within_s=within_s
    )


@final
class Started:
    """A tree that was started in a swarm.

    Args:
        tree: The tree.
        critical: Its giving up ends the swarm.
        runs: The supervisor that it was started under.
        over: Called once the tree is over, with the error where it gave up.
    """

    def __init__(
        self,
        tree: Supervisor | DynamicSupervisor,
        *,
        critical: bool,
        runs: DynamicSupervisor,
        over: Callable[[Started, RestartsExhausted | None], None],
    ) -> None:
        self.tree = tree
        self.critical = critical
        self._runs = runs
        self._over = over

    def __repr__(self) -> str:
        return f"<Started {self.tree!r}>"

    @property
    def healthy(self) -> bool:
        """The tree has not given up."""
        return self.tree.status != "gave_up"

    async def wait(self) -> Reason:
        """Wait until the tree is over.

        Raises:
            RestartsExhausted: It gave up; with its history.
        """
        return await self.tree.wait()

    async def stop(self) -> None:
        """Stop the tree, its children in reverse order; one that is over stays so. Its runs can be resumed."""
        with suppress(ChildNotFound, SupervisorStopped):
            await self._runs.terminate_child(self.tree.name)

    async def watch(self) -> None:
        """Tell the swarm when the tree is over; runs beside it."""
        gave_up: RestartsExhausted | None = None
        try:
            await self.tree.wait()
        except RestartsExhausted as error:
            gave_up = error
        self._over(self, gave_up)
