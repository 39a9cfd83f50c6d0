"""Keeps the runs that this process hosts: those that live, and those that sleep because they have only to wait.

A run that waits (for a person, for its children, for its user) leaves memory after an idle time; what stays is its
name. Whatever wants to reach it wakes it, or writes to it in its sleep, and nobody can tell the difference.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import final

import anyio
import anyio.to_thread

from shoal.actors import DynamicSupervisor
from shoal.errors import AskedSelf, ChildNotFound, JournalFailed, ShoalError, SpawnRefused, SupervisorStopped
from shoal.runtime._clock import Clock
from shoal.runtime._host import Host
from shoal.runtime._live import Live
from shoal.runtime._memory import MANY, give_back
from shoal.runtime._standings import Standings
from shoal.runtime.events import BudgetReached, RunPassivated
from shoal.runtime.program import Program
from shoal.runtime.state import RunState

_LONGEST_NAP_S = 3600.0
_QUIET_S = 1.0
"""Nobody has left memory for so long: whoever was to leave with the others has left."""


@final
class Keeper:
    """Which runs are kept here.

    Args:
        host: The services that runs share.
        runs: Their supervisor.
        standings: Where runs stand.
        house: Starts a life of a run that sleeps.
        abandon: Ends a run whose parent is over.
        stop_at_budget: Stops a run, and everything below it, whose budget is reached.
        load: Returns the state that a run's journal adds up to.
        failed: Takes note that something that nobody waits for could not be done to a run.
    """

    def __init__(
        self,
        host: Host,
        runs: DynamicSupervisor,
        standings: Standings,
        house: Callable[[str], Awaitable[None]],
        abandon: Callable[[str], Awaitable[None]],
        stop_at_budget: Callable[[str, BudgetReached], Awaitable[None]],
        load: Callable[[str], RunState],
        failed: Callable[[str, ShoalError], Awaitable[None]],
    ) -> None:
        self._host = host
        self._clock: Clock = host.clock
        self._runs = runs
        self._standings = standings
        self._house = house
        self._abandon = abandon
        self._stop_at_budget = stop_at_budget
        self._load = load
        self._failed = failed
        self.live: dict[str, Live] = {}
        """The runs that live here, by id."""
        self.made_of: dict[str, Program] = {}
        """What the runs are made of that are hosted here and not over."""
        self._wakes: dict[str, Callable[[], None]] = {}
        self._stays: dict[str, Callable[[], Awaitable[None]]] = {}
        """Runs that are children of supervisors of their own, and so never sleep: how each is stopped."""
        self._between: dict[str, anyio.Event] = {}
        """Runs whose actor has crashed and is about to be started again."""
        self._unseen: dict[str, int] = {}
        """Up to which seq runs were written to that have no actor, where that is on its way to the journal."""
        self._busy: dict[str, anyio.Event] = {}
        """Runs that are on their way in or out of memory."""
        self._roused: dict[str, None] = {}
        self._resumed: dict[str, str] = {}
        """Who has runs come back that another process left behind."""
        self._orphans: dict[str, None] = {}
        self._spent: dict[str, BudgetReached] = {}
        self._alarms: list[tuple[float, str]] = []
        self._set: dict[str, float] = {}
        self._bell = anyio.Event()
        self._gone = 0
        """How many runs have left memory since the system was given back what they took."""
        self.given_back = 0
        """How often it was."""
        self._dozing = False
        """Housekeeping sleeps until something happens, since nobody could become idle."""

    # --- lives

    def arrived(self, live: Live, wake: Callable[[], None], *, stop: Callable[[], Awaitable[None]] | None) -> None:
        """Take note of a life of a run; one that has a *stop* of its own, as another's child has, never sleeps."""
        self.back(live.run_id)
        self.live[live.run_id] = live
        self.made_of[live.run_id] = live.state.program
        self._wakes[live.run_id] = wake
        if stop is not None:
            self._stays[live.run_id] = stop
        if self._dozing:
            self._bell.set()

    def left(self, live: Live, *, stopped: bool = False) -> None:
        """Take note that a life of a run is over; *stopped* where whoever ran it did not crash and lets go of it."""
        let_go = live.state.ended is not None
        if self.live.get(live.run_id) is live:
            del self.live[live.run_id]
            del self._wakes[live.run_id]
            self._gone += 1
            if self._gone == MANY:
                self._bell.set()
            # Nothing here would ever bring it back: whoever kept it in memory was to.
            let_go = let_go or (stopped and live.run_id in self._stays)
            stayed = self._stays.pop(live.run_id, None)
            if not stopped and stayed is None and not let_go:
                # Until its supervisor has started it again nobody writes to it: two lives would use one seq.
                self._between[live.run_id] = anyio.Event()
        if let_go:
            self.made_of.pop(live.run_id, None)

    def back(self, run_id: str) -> None:
        """Take note that a run that crashed has been started again, or will not be."""
        between = self._between.pop(run_id, None)
        if between is not None:
            between.set()

    async def stop(self, run_id: str) -> None:
        """Stop the life of a run; one that does not live here, or is the caller itself, is left alone."""
        stop = self._stays.get(run_id)
        if stop is None and run_id not in self.live and run_id not in self._between:
            return
        if stop is None:
            with suppress(ChildNotFound, SupervisorStopped):  # it has just stopped by itself, or the swarm is closing
                await self._runs.terminate_child(run_id)
            return
        with suppress(AskedSelf):
            await stop()

    def wake(self, run_id: str) -> None:
        """Let a run take its next steps; one that sleeps is brought back."""
        wake = self._wakes.get(run_id)
        if wake is not None:
            wake()
        elif run_id in self.made_of and run_id not in self._between:
            self._roused[run_id] = None
            self._bell.set()

    def bring_up(self, run_id: str, program: Program, by: str) -> None:
        """Have a run that nobody hosts live here again, made of *program*; it comes by and by. *by* resumes it."""
        self.made_of[run_id] = program
        self._resumed[run_id] = by
        self.wake(run_id)

    def resumed_by(self, run_id: str) -> str | None:
        """Return who has *run_id* come back, once; `None` where it only slept here."""
        return self._resumed.pop(run_id, None)

    def bring_back(self) -> None:
        """Bring back every run that is kept here and does not live: its supervisor was stopped, and is there again."""
        for run_id in tuple(self._between):
            self.back(run_id)
        for run_id in self.made_of:
            if run_id not in self.live:
                self.wake(run_id)

    def orphan(self, run_id: str) -> None:
        """Have a run ended whose parent is over."""
        self._orphans[run_id] = None
        self._bell.set()

    def reach(self, run_id: str, reached: BudgetReached) -> None:
        """Have a run stopped whose budget is reached."""
        self._spent[run_id] = reached
        self._bell.set()

    @asynccontextmanager
    async def reached(self, run_id: str) -> AsyncGenerator[Live]:
        """Hold a run, living or asleep, so that something can be written to it; then it is durable.

        Of one that sleeps, or that nobody hosts, it is a life without an actor: it takes no step.
        """
        while run_id not in self.live and (busy := self._held_by(run_id)) is not None:
            await busy.wait()
        live = self.live.get(run_id)
        if live is not None:
            yield live
            await live.durable()
            return
        async with self.moving(run_id):
            await self._host.journal.barrier()
            live = Live(self._load(run_id), self._host)
            try:
                yield live
                await live.durable()
            finally:
                self._unseen.pop(run_id, None)
            self.left(live, stopped=True)

    @asynccontextmanager
    async def laid_down(self, run_id: str) -> AsyncGenerator[None]:
        """Keep a run that is paused, or that nobody hosts, without an actor while the block runs.

        Raises:
            SpawnRefused: It is at work, or a supervisor that its user wrote counts on its actor.
        """
        while True:
            live = self.live.get(run_id)
            if live is not None and live.idle_since is None and live.state.phase == "paused":
                await self._standings.of(run_id).wait()  # it is at the end of what it was in the middle of
                continue
            async with self.moving(run_id):
                live = self.live.get(run_id)
                if live is not None and (live.state.phase != "paused" or run_id in self._stays):
                    held = "is a child of a supervisor" if run_id in self._stays else "is at work"
                    raise SpawnRefused(f"run {run_id} {held} here; pause it, or end its process, and resume it then")
                if live is None or live.idle_since is not None:
                    if live is not None:
                        await self._lay_down(live)
                    yield
                    return

    def still(self, live: Live) -> bool:
        """Say whether *live*, which is `reached`, may be written to: no other life of its run has come meanwhile."""
        return self.live.get(live.run_id, live) is live

    def wrote(self, live: Live) -> None:
        """Take note that something was written to *live*, which is `reached`, and may not be durable yet."""
        if live.run_id not in self.live:
            self._unseen[live.run_id] = live.state.seq

    def unseen(self, run_id: str) -> int:
        """Return the seq up to which a life that is read back now has to come; 0 for any."""
        return self._unseen.get(run_id, 0)

    async def awake(self, run_id: str) -> None:
        """Bring a run back that sleeps here; one that lives, or is over, is left as it is."""
        async with self.moving(run_id):
            if run_id in self.made_of and run_id not in self.live:
                await self._house(run_id)

    @asynccontextmanager
    async def moving(self, run_id: str) -> AsyncGenerator[None]:
        """Keep everybody else off a run that is on its way in or out of memory, while the block runs."""
        while (busy := self._held_by(run_id)) is not None:
            await busy.wait()
        self._busy[run_id] = anyio.Event()
        try:
            yield
        finally:
            self._busy.pop(run_id).set()

    def keeps(self, run_id: str) -> bool:
        """Say whether a run that is not over lives or sleeps here, or is on its way."""
        return run_id in self.made_of or self._held_by(run_id) is not None

    def _held_by(self, run_id: str) -> anyio.Event | None:
        """Return what is set once a run may be reached that is on its way; `None` where it may be now."""
        return self._busy.get(run_id) or self._between.get(run_id)

    # --- alarms

    def alarm(self, run_id: str, at: float) -> None:
        """Wake *run_id* at *at* (unix seconds), or at the earlier time that is set already."""
        if at < self._set.get(run_id, float("inf")):
            self._set[run_id] = at
            heapq.heappush(self._alarms, (at, run_id))
            self._bell.set()

    def _ring(self) -> None:
        while self._alarms and self._alarms[0][0] <= self._clock.unix():
            at, run_id = heapq.heappop(self._alarms)
            if self._set.get(run_id) == at:
                del self._set[run_id]
                self.wake(run_id)

    # --- keeping house

    async def serve(self) -> None:
        """Bring back who is roused, ring alarms, and let sleep who has been idle, until cancelled."""
        while True:
            self._bell = anyio.Event()
            self._ring()
            while self._roused:
                run_id = next(iter(self._roused))
                del self._roused[run_id]
                await self._see_to(run_id, self.awake)
            while self._orphans:
                run_id = next(iter(self._orphans))
                del self._orphans[run_id]
                await self._see_to(run_id, self._abandon)
            while self._spent:
                await self._see_to(next(iter(self._spent)), self._stop_spending)
            await self._let_sleep()
            gone = self._gone
            with anyio.move_on_after(self._nap_s()) as nap:
                await self._bell.wait()
            if nap.cancelled_caught and gone == self._gone:
                await self.give_back()

    async def give_back(self) -> None:
        """Give the system the memory of the runs that have left, where those are many."""
        if self._gone >= MANY:
            self._gone = 0
            self.given_back += 1
            await anyio.to_thread.run_sync(give_back, limiter=self._host.threads)

    async def _stop_spending(self, run_id: str) -> None:
        await self._stop_at_budget(run_id, self._spent.pop(run_id))

    async def _see_to(self, run_id: str, see_to: Callable[[str], Awaitable[None]]) -> None:
        try:
            await see_to(run_id)
        except SupervisorStopped:
            return  # the swarm is closing; it stays in the journal
        except ShoalError as error:
            await self._failed(run_id, error)

    def _nap_s(self) -> float:
        due = [self._alarms[0][0] - self._clock.unix()] if self._alarms else []
        idle_s = self._host.limits.idle_s
        self._dozing = idle_s is not None and len(self.live) == len(self._stays) and not len(self._standings)
        if idle_s is not None and not self._dozing:
            due.append(max(idle_s / 4, 0.05))
        if self._gone >= MANY:
            due.append(_QUIET_S)
        return max(0.0, min(due, default=_LONGEST_NAP_S))

    async def _let_sleep(self) -> None:
        idle_s = self._host.limits.idle_s
        if idle_s is None:
            return
        before = self._clock.monotonic() - idle_s
        for live in [live for live in self.live.values() if self._sleepy(live, before)]:
            if self._sleepy(live, before):
                await self._passivate(live, before)
        self._standings.forget(before, besides=self.live)

    def _sleepy(self, live: Live, before: float) -> bool:
        since = live.idle_since
        return (
            since is not None
            and since <= before
            and not live.over
            and not live.state.jobs
            and live.run_id not in self._stays
        )

    async def _passivate(self, live: Live, before: float) -> None:
        run_id = live.run_id
        async with self.moving(run_id):
            try:
                live.emit(RunPassivated(round(self._clock.monotonic() - (live.idle_since or before), 3)))
                await live.durable()
            except JournalFailed:
                self.wake(run_id)  # its next step meets the same error, and says so
                return
            if self._sleepy(live, before):
                await self._lay_down(live)

    async def _lay_down(self, live: Live) -> None:
        """Let the actor of a run go that has only to wait; the run stays here."""
        live.gone = True
        self.left(live, stopped=True)
        with suppress(ChildNotFound, SupervisorStopped):
            await self._runs.terminate_child(live.run_id)
