"""Where runs stand: which live here and which sleep, how each ended, and who is told of it."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Container, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import final

import anyio

from shoal.actors import DynamicSupervisor
from shoal.errors import (
    ChildNotFound,
    DefinitionMissing,
    JournalDamaged,
    JournalFailed,
    RunInterrupted,
    RunIsPaused,
    ShoalError,
    SupervisorStopped,
)
from shoal.errors import RunEnded as RunIsOver
from shoal.runtime._budget import Purses
from shoal.runtime._claims import Claims
from shoal.runtime._control import LOOK_S, Cancel, Reach, steer
from shoal.runtime._handle import Outcome, left_behind
from shoal.runtime._host import Host
from shoal.runtime._keeper import Keeper
from shoal.runtime._keys import tree_of
from shoal.runtime._live import Live
from shoal.runtime._mending import UNREADABLE
from shoal.runtime._programs import Programs
from shoal.runtime._standings import Standing, Standings, open_runs
from shoal.runtime.events import BudgetReached, ChildEnded, Event, RunEnded, RunPaused, RunSpawned
from shoal.runtime.journal import Journal, RunRow
from shoal.runtime.program import Program
from shoal.runtime.state import RunState


@final
class Home:
    """Where the runs of one swarm stand.

    Args:
        host: The services that they share.
        runs: Their supervisor.
        programs: What they are made of.
        house: Starts a life of a run that sleeps.
    """

    def __init__(
        self, host: Host, runs: DynamicSupervisor, programs: Programs, house: Callable[[str], Awaitable[None]]
    ) -> None:
        self.journal = host.journal
        self.clock = host.clock
        self._programs = programs
        self._runs = runs
        self.standings = Standings()
        self.keeper = Keeper(
            host, runs, self.standings, house, self._abandon, self._stop_at_budget, self.load, self._failed
        )
        self.claims = Claims(self.journal, self.clock, self.keeper.made_of)
        self.purses = Purses(self.journal, self.clock, self.state, self.keeper.reach)
        self._crashes: dict[str, str] = {}
        """What the last life of a run crashed with, until its next one asks."""
        self.closed = False
        """Nothing happens here any more, so what waits for a run would wait for ever."""
        self._at_close: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Home of {len(self.live)} runs>"

    @property
    def live(self) -> Mapping[str, Live]:
        """The runs that live here, by id."""
        return self.keeper.live

    def load(self, run_id: str) -> RunState:
        """Return the state that the run's journal adds up to."""
        return read_back(
            self.journal, run_id, partial(self._programs.made, self.keeper.made_of.get(run_id)), self.journal.part
        )

    def state(self, run_id: str) -> RunState:
        """Return the state of a run: the live one, or what its journal adds up to."""
        live = self.live.get(run_id)
        return self.load(run_id) if live is None else live.state

    # --- the end of the swarm

    def close(self) -> None:
        """Tell whoever waits for a run that nothing happens here any more: the runs have stopped."""
        self.closed = True
        self.standings.pulse()
        for wake in tuple(self._at_close):
            wake()

    @contextmanager
    def closing(self, wake: Callable[[], None]) -> Generator[None]:
        """Call *wake* when the swarm closes, while the block runs."""
        self._at_close.append(wake)
        try:
            yield
        finally:
            self._at_close.remove(wake)

    # --- lives

    def arrived(self, live: Live, wake: Callable[[], None], *, stop: Callable[[], Awaitable[None]] | None) -> None:
        """Take note of a life of a run; one that has a *stop* of its own never leaves memory before its end."""
        self.keeper.arrived(live, wake, stop=stop)
        self.standings.of(live.run_id).paused = live.state.paused
        self.purses.moved(live)

    def crash_of(self, run_id: str) -> str | None:
        """Return what the last life of a run crashed with, once; `None` where it did not."""
        return self._crashes.pop(run_id, None)

    def left(self, live: Live, crash: str | None) -> None:
        """Take note that a life of a run is over."""
        self.keeper.left(live, stopped=crash is None)
        if live.state.ended is not None:
            self.purses.forget(live)
        elif live.run_id not in self.keeper.made_of:  # a tree that it was an agent of was stopped
            self.standings.of(live.run_id).pulse()
        if crash is not None:
            self._crashes[live.run_id] = crash

    def moved(self, live: Live) -> None:
        """Take note that a run waits, or is over."""
        standing = self.standings.of(live.run_id)
        state = live.state
        self.purses.moved(live)
        standing.paused = state.paused if state.phase == "paused" else None
        if state.ended is not None:
            standing.settle(state, self.clock.monotonic())
            self._tell_parent(live)
            for child in state.children.values():
                if child.open:
                    self.keeper.orphan(child.spawned.child)
        elif state.next_due is not None:
            self.keeper.alarm(live.run_id, state.next_due)
        standing.pulse()

    def broke(self, run_id: str, error: JournalFailed) -> None:
        """Take note that a run cannot go on because its journal cannot be written."""
        self.keeper.back(run_id)
        above: str | None = run_id
        while above is not None:  # what waits for it would wait for ever
            standing = self.standings.of(above)
            standing.broken = error
            standing.pulse()
            self.keeper.wake(above)
            live = self.live.get(above)
            above = None if live is None else live.state.made_by.parent

    async def _failed(self, run_id: str, error: ShoalError) -> None:
        """Take note that a run could not be brought back, or told what it has to know, while nobody waits for that."""
        damage = error.__cause__
        if isinstance(damage, JournalDamaged):
            await self.write_off(run_id, str(damage))
        else:
            self.broke(run_id, error if isinstance(error, JournalFailed) else JournalFailed(str(error)))

    async def write_off(self, run_id: str, why: str) -> None:
        """End a run as `error` that cannot be read back, and tell its parent: the others are as well as they were.

        Args:
            run_id: The run.
            why: Why it cannot.

        Raises:
            JournalFailed: The journal cannot be written.
        """
        await self.journal.barrier()
        row = self.journal.find(run_id)
        ended = RunEnded("error", why, flags={UNREADABLE: 1})
        self.journal.append(Event(run_id, row.events + 1, self.clock.stamp(), ended))
        await self.journal.barrier()
        self.keeper.made_of.pop(run_id, None)
        self.keeper.back(run_id)
        standing = self.standings.of(run_id)
        standing.write_off(run_id, ended, self.clock.monotonic())
        standing.pulse()
        for child in open_runs(self.journal, row.root):
            if child.parent == run_id and not child.detached:
                self.keeper.orphan(child.run_id)
        if row.parent is not None:
            self._tell(row.parent, run_id)

    # --- ends

    def settled(self, run_id: str) -> Standing:
        """Return where a run stands, read from the journal where it does not live here."""
        standing = self.standings.of(run_id)
        elsewhere = not self.keeper.keeps(run_id)  # then nobody tells of it
        if standing.outcome is None and run_id not in self.live and (standing.paused is None or elsewhere):
            row = self.journal.find(run_id)
            if row.ended:
                self._settle(standing, run_id)
            elif row.status != "paused":
                standing.paused = None
            elif standing.paused is None:
                standing.paused = self.load(run_id).paused
        return standing

    def others(self) -> frozenset[str]:
        """Return the names of the other processes that live."""
        shared = self.journal.shared
        return frozenset() if shared is None else shared.others(now=self.clock.unix())

    def adrift(self, row: RunRow, others: Callable[[], Container[str | None]] | None = None) -> bool:
        """Say whether a run goes on nowhere: it is neither over nor paused, and no process hosts it.

        Args:
            row: What the register says of it.
            others: Returns the other processes that lived before and after the register was read, for whoever asks of
                many runs; `None` asks anew.
        """
        if row.status != "running" or self.keeper.keeps(row.run_id) or self._is_expected(row):
            return False
        if others is not None:
            return row.host not in others()
        if row.host in self.others():
            return False
        again = self.journal.find(row.run_id)  # its host may have ended it and left between the two looks
        return (again.status, again.host) == (row.status, row.host)

    def _is_expected(self, row: RunRow) -> bool:
        """Say whether a run is an agent's whose tree is up here: it may be between two starts."""
        tree = tree_of(row.key)
        with suppress(ChildNotFound, SupervisorStopped):
            return tree is not None and self._runs.get_childspec(tree).id == tree
        return False

    async def outcome(self, run_id: str, *, wait_paused: bool) -> Outcome:
        """Return how a run ended, once it has, wherever it lives.

        Args:
            run_id: The run.
            wait_paused: Also wait while it is paused, or while no process hosts it.

        Raises:
            RunIsPaused: It waits for somebody.
            RunInterrupted: No process hosts it, or the swarm closed before it was over.
            JournalFailed: Its journal cannot be written.
        """
        while True:
            # The journal may be closed with the swarm.
            standing = self.standings.of(run_id) if self.closed else self.settled(run_id)
            if standing.outcome is not None:
                return standing.outcome
            standing.check(run_id)
            if standing.paused is not None and not wait_paused:
                raise _is_paused(run_id, standing.paused)
            if self.closed:
                raise left_behind(run_id)
            kept = self.keeper.keeps(run_id)  # then the register need not be asked
            if not (kept or wait_paused) and self.adrift(self.journal.find(run_id)):
                raise RunInterrupted(
                    f"run {run_id} was interrupted: it is not over, and no process hosts it; take it up with "
                    f"`await swarm.resume_tree({run_id!r})`, or `shoal resume {run_id}`",
                    run_id=run_id,
                )
            # What another process does to it nobody tells: that is looked for.
            with anyio.move_on_after(math.inf if run_id in self.keeper.made_of else LOOK_S):
                await standing.wait()

    def _settle(self, standing: Standing, run_id: str) -> None:
        last, now = self.journal.newest(run_id, RunEnded), self.clock.monotonic()
        if last is not None and isinstance(last.payload, RunEnded) and UNREADABLE in last.payload.flags:
            standing.write_off(run_id, last.payload, now)
        else:
            standing.settle(self.load(run_id), now)

    def ended(self, child: str) -> ChildEnded | None:
        """Return how *child* ended; `None` where it has not."""
        try:
            return self.settled(child).as_child()
        except JournalDamaged as damage:  # it is over, and what it said is lost: its parent goes on without
            return ChildEnded(child, "error", None, f"its record cannot be read: {damage}")

    async def over(self, run_id: str) -> ChildEnded:
        """Return how a run ended, once it has.

        Raises:
            JournalFailed: Its journal cannot be written.
        """
        while True:
            standing = self.settled(run_id)
            ended = standing.as_child()
            if ended is not None:
                return ended
            standing.check(run_id)
            await standing.wait()

    # --- telling others

    def _tell_parent(self, child: Live) -> None:
        """Tell the parent of a run that has ended; one that sleeps asks when it comes back."""
        parent = child.state.made_by.parent
        if parent is not None:
            self._tell(parent, child.run_id)

    def _tell(self, run_id: str, child: str) -> None:
        """Tell a run that its *child* has ended."""
        parent = self.live.get(run_id)
        ended = self.standings.of(child).as_child()
        if parent is not None and not parent.over and ended is not None:
            known = parent.state.children.get(child)
            if known is not None and known.ended is None:
                try:
                    parent.emit(ended)
                except JournalFailed as error:
                    self.broke(run_id, error)
        self.keeper.wake(run_id)

    async def _stop_at_budget(self, run_id: str, reached: BudgetReached) -> None:
        finishes = self.state(run_id).budget.on_budget == "finish"
        reach = Reach(run_id, reached.limit, reached.most, reached.spent, reached.needed, finishes)
        with suppress(RunIsOver):
            await steer(self, run_id, reach)
        self.purses.told(run_id)

    async def _abandon(self, run_id: str) -> None:
        with suppress(RunIsOver):
            await steer(self, run_id, Cancel("its parent ended"))


def read_back(
    journal: Journal, run_id: str, program_of: Callable[[str], Program], load: Callable[[str], bytes]
) -> RunState:
    """Return the state that the run's journal adds up to.

    Args:
        journal: The journal.
        run_id: The run.
        program_of: Returns what a digest stands for in its history.
        load: Returns the bytes of a stored part by its digest.

    Raises:
        DefinitionMissing: The journal has no such run, or what it is made of cannot be had.
        JournalDamaged: An event cannot be read.
    """
    events = journal.read(run_id)
    first = next(events, None)
    if first is None:
        raise DefinitionMissing(f"the journal holds no event of run {run_id}")
    assert isinstance(first.payload, RunSpawned)  # the first event of every run
    program = program_of(first.payload.definition)
    state = RunState(run_id, program, definition=journal.definition, load=load, program_of=program_of)
    state.apply(first)
    for event in events:
        state.apply(event)
    return state


def _is_paused(run_id: str, paused: RunPaused) -> RunIsPaused:
    return RunIsPaused(
        f"run {run_id} is paused: {paused.reason}. {paused.remedy}".strip(),
        run_id=run_id,
        reason=paused.reason,
        remedy=paused.remedy,
        numbers=paused.numbers,
    )
