"""Trees of agents and workers that a user starts in a swarm, beside its runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import final

import anyio

from shoal.actors import ChildSpec, DynamicSupervisor, Observer, Reason, SupervisionEvent, Supervisor
from shoal.errors import ChildNotFound, RestartsExhausted, SupervisorStopped

_RUNS = "/swarm/runs"
"""Path of the supervisor that trees are started under."""


def _is_within(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


@final
class Started:
    """A tree that was started in a swarm.

    Args:
        tree: The tree.
        critical: Its giving up ends the swarm.
        observer: Called with what happens in it; `None` for nobody.
        runs: The supervisor that it was started under.
        over: Called once the tree is over, with the error where it gave up.
    """

    def __init__(
        self,
        tree: Supervisor | DynamicSupervisor,
        *,
        critical: bool,
        observer: Observer | None,
        runs: DynamicSupervisor,
        over: Callable[[Started, RestartsExhausted | None], None],
    ) -> None:
        self.tree = tree
        self.critical = critical
        self._observer = observer
        self._runs = runs
        self._over = over

    def __repr__(self) -> str:
        return f"<Started {self.tree!r}>"

    @property
    def healthy(self) -> bool:
        """The tree has not given up."""
        return self.tree.status != "gave_up"

    def observe(self, event: SupervisionEvent) -> None:
        """Show its observer what happened in it."""
        if self._observer is not None and _is_within(event.supervisor, f"{_RUNS}/{self.tree.name}"):
            self._observer(event)

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


@final
class Trees:
    """The trees that were started in one swarm and are not over, or gave up.

    Args:
        runs: The supervisor that they are started under.
    """

    def __init__(self, runs: DynamicSupervisor) -> None:
        self._runs = runs
        self._starting: list[Started] = []
        self._started: list[Started] = []
        self.gave_up: RestartsExhausted | None = None
        """What the swarm ends with: a tree that it cannot do without gave up."""
        self.body: anyio.CancelScope | None = None
        """What is cancelled then."""

    def __repr__(self) -> str:
        return f"<Trees {[each.tree.name for each in self._started]}>"

    @property
    def healthy(self) -> bool:
        """None has given up."""
        return all(each.healthy for each in self._started)

    async def start(
        self, tree: Supervisor | DynamicSupervisor, *, critical: bool, observer: Observer | None
    ) -> Started:
        """Start a tree; returns when all of it is up.

        Raises:
            StartFailed: A child did not come up; those before it were stopped.
        """
        started = Started(tree, critical=critical, observer=observer, runs=self._runs, over=self._over)
        self._starting.append(started)
        try:
            await self._runs.start_child(ChildSpec(tree.name, tree, restart="temporary"))
        finally:
            self._starting.remove(started)
        self._started.append(started)
        await self._watch(started)
        return started

    def observe(self, event: SupervisionEvent) -> None:
        """Show the observers of the trees what happened in them."""
        for started in (*self._starting, *self._started):
            started.observe(event)

    async def bring_back(self) -> None:
        """Start again what went down because something below it was lost."""
        for started in tuple(self._started):  # one may be over again before the next is brought back
            tree = started.tree
            if tree.status == "down":
                await self._runs.start_child(ChildSpec(tree.name, tree, restart="temporary"))
                await self._watch(started)

    async def _watch(self, started: Started) -> None:
        await self._runs.start_child(ChildSpec(f"watch {started.tree.name}", started.watch, restart="temporary"))

    def _over(self, started: Started, gave_up: RestartsExhausted | None) -> None:
        if gave_up is None:
            self._started.remove(started)  # one that gave up stays, so that the swarm is not taken for healthy
        elif started.critical:
            self.gave_up = gave_up
            if self.body is not None:
                self.body.cancel()
