"""A run as an actor: it asks what comes next, does it, and asks again, until it waits or is over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast, final

from shoal.actors import Actor, Ignore, Reason
from shoal.errors import JournalDamaged, JournalFailed
from shoal.runtime._agentic import run_function
from shoal.runtime._calls import run_calls
from shoal.runtime._edges import ask_again, end, enter_next, finish, hold, leave
from shoal.runtime._fan_out import advance_fan_out
from shoal.runtime._hooks import run_hook
from shoal.runtime._host import Host
from shoal.runtime._infer import infer, route
from shoal.runtime._live import Late, Live
from shoal.runtime._mending import cancel_strays, mended, own_up
from shoal.runtime._people import ask_point, direct, expire, hear
from shoal.runtime._results import write_results
from shoal.runtime._side import order_title, refresh, take_up_job
from shoal.runtime.events import RunPaused, RunRestarted, RunResumed
from shoal.runtime.state import RunState
from shoal.runtime.walk import (
    Action,
    Ask,
    AskPoint,
    Direct,
    EnterNext,
    Finish,
    Hear,
    Hold,
    Infer,
    Leave,
    Pause,
    Refresh,
    Route,
    RunCalls,
    RunFanOut,
    RunFunction,
    RunHook,
    Wait,
    WaitForJobs,
    WriteResults,
    decide,
)

MOST_CRASHES = 2
"""A run that crashed this often without getting on ends instead of looping."""


@final
@dataclass(frozen=True, slots=True)
class Go:
    """Take the next steps."""


@final
@dataclass(frozen=True, slots=True)
class Begun:
    """How a life of a run begins.

    Args:
        run_id: The run.
        fresh: Its state where it was just spawned; `None` to load it.
        resumed_by: Who resumed it, where a process takes it up again; `None` otherwise.
    """

    run_id: str
    fresh: RunState | None = None
    resumed_by: str | None = None


@final
class RunActor(Actor):
    """One life of a run.

    Args:
        host: The services it shares with other runs.
        begin: Says which run it is, and how it begins.
        stays: It stays in memory while it waits, since others hold on to its actor.
    """

    def __init__(
        self,
        host: Host,
        begin: Callable[[], Awaitable[Begun]],
        *,
        stays: bool = False,
    ) -> None:
        self._host = host
        self._home = host.home
        self._begin = begin
        self._stays = stays
        self._going = False
        self._mended = False
        """Its record was damaged, and its children are still to be looked through."""

    async def on_start(self) -> None:
        """Take up the run where its events leave it."""
        begun = await self._begin()
        try:
            if begun.fresh is not None:
                self.live = Live(begun.fresh, self._host)
                order_title(self.live)
            else:
                await self._load(begun.run_id, begun.resumed_by)
        except JournalFailed as error:
            # Another try would fail as this one did, without end.
            self._home.broke(begun.run_id, error)
            raise Ignore from error
        self._home.arrived(self.live, self._wake, stop=self.me.stop if self._stays else None)
        self._wake()

    async def _load(self, run_id: str, resumed_by: str | None) -> None:
        """Take up a run that has lived before."""
        # What the life before appended may still be on its way; without it two events would have one seq.
        await self._host.journal.barrier()
        crash = self._home.crash_of(run_id)
        try:
            state, damage = self._read_back(run_id)
            while state.seq < self._home.keeper.unseen(run_id):  # somebody steered it while it had no life
                await self._host.journal.barrier()
                state, damage = self._read_back(run_id)
            self.live = Live(state, self._host)
            self._mended = damage is not None
            self._take_up(state, crash, damage, resumed_by)
        except JournalFailed:
            raise
        except Exception as exc:
            if crash is None:
                raise  # whoever takes it up is told
            # Nobody is there to be told, and each further try would fail at once, without end.
            why = f"it crashed and cannot be taken up again ({type(exc).__name__}: {exc}); it crashed with"
            await self._home.write_off(run_id, f"{why}\n{crash}")
            raise Ignore from exc

    def _read_back(self, run_id: str) -> tuple[RunState, JournalDamaged | None]:
        """Return the state that the run's journal adds up to, and what was found damaged of it."""
        try:
            return self._home.load(run_id), None
        except JournalDamaged as found:
            return mended(self._home, run_id, found), found

    def _take_up(
        self, state: RunState, crash: str | None, damage: JournalDamaged | None, resumed_by: str | None
    ) -> None:
        live = self.live
        if crash is not None:
            live.emit(RunRestarted(crash, len(state.restarts) + 1))
            if len(state.restarts) >= MOST_CRASHES and state.phase != "ended":
                crashes = [error.strip() for _, error in state.restarts]
                last = crashes[-1].rpartition("\n")[2]
                differ = dict.fromkeys(crashes)
                alike = ", in the same way each time" if len(differ) == 1 else ""
                why = f"it crashed {MOST_CRASHES} times without getting on, with {last}{alike}"
                end(live, "error", "\n\n".join((why, *differ)))
            elif state.phase != "ended" and _too_often(state):
                rule = state.made_by.restarts
                assert rule is not None  # see `_too_often`
                last = crash.strip()
                line = last.rpartition("\n")[2]
                why = f"it crashed more than {rule.most} times within {rule.within_s:g} s, last with {line}"
                end(live, "error", f"{why}\n\n{last}")
        elif resumed_by is not None and state.phase == "running":
            live.emit(RunResumed(resumed_by))
        if state.phase == "ended":
            return
        if damage is not None:
            own_up(live, damage)
        for job in tuple(state.jobs):
            take_up_job(live, job)
        for child, known in tuple(state.children.items()):
            ended = self._home.ended(child) if known.ended is None else None
            if ended is not None:  # while this run was not here to be told
                live.emit(ended)

    def _wake(self) -> None:
        self.live.pulse()
        if not self._going:
            self._going = True
            self.live.idle_since = None
            self.me.send_nowait(Go())

    async def receive(self, message: Any) -> None:
        """Take steps until the run waits or is over."""
        live = self.live
        self._going = False
        try:
            if self._mended:  # not while it starts: its supervisor waits for that
                self._mended = False
                await cancel_strays(self._home, live.state)
            while True:
                if live.state.questions or live.state.timers:
                    expire(live)
                action = decide(live.state, self._host.limits)
                if not isinstance(action, Wait) and await perform(live, action):
                    continue
                seq = live.state.seq
                await live.durable()
                if live.state.seq == seq:
                    break
        except (JournalFailed, Late, ExceptionGroup) as error:
            failed = _journal_failure(error)
            if failed is not None:
                self._home.broke(live.run_id, failed)
            elif not _is_late(error):
                raise
            self.stop()
            return
        if not self._going:
            live.idle_since = self._host.clock.monotonic()
        self._home.moved(live)
        if live.state.phase == "ended":
            self.stop()

    async def on_stop(self, reason: Reason) -> None:
        """Leave nothing behind: what lanes still do for this life finds nobody to answer."""
        self.live.gone = True
        self.live.settled()  # whoever waits for a job of this life is not left waiting
        self._host.drop_jobs(self.live.run_id)
        self._home.left(self.live, None if reason.clean else reason.traceback())


def _too_often(state: RunState) -> bool:
    """Say whether a run has crashed more often than whoever spawned it allows."""
    rule = state.made_by.restarts
    return rule is not None and sum(at > state.last_at - rule.within_s for at in state.crashes) > rule.most


def _is_late(error: Exception) -> bool:
    """Say whether *error* says only that something came back to a life that is over."""
    if isinstance(error, ExceptionGroup):
        return cast("ExceptionGroup[Exception]", error).split(Late)[1] is None
    return isinstance(error, Late)


def _journal_failure(error: Exception) -> JournalFailed | None:
    """Return the failure of the journal that *error* is, or that a group of errors holds; `None` for none."""
    if isinstance(error, ExceptionGroup):
        group = cast("ExceptionGroup[Exception]", error)
        found = (_journal_failure(each) for each in group.exceptions)
        return next((each for each in found if each is not None), None)
    return error if isinstance(error, JournalFailed) else None


async def perform(live: Live, action: Action) -> bool:
    """Do *action*, which `decide` gave; say whether the run goes on at once, or waits to be woken."""
    match action:
        case Infer():
            await infer(live)
        case RunFunction():
            await run_function(live)
        case RunCalls():
            await run_calls(live)
        case WriteResults():
            await write_results(live)
        case RunFanOut(index):
            return await advance_fan_out(live, index)
        case Refresh(regions):
            await refresh(live, regions)
        case Route(edges):
            await route(live, edges)
        case Ask():
            await ask_again(live, action)
        case Hold():
            await hold(live, action)
        case Leave():
            await leave(live, action)
        case AskPoint(point, edit):
            await ask_point(live, point, edit=edit)
        case Direct(answer, text):
            await direct(live, answer, text)
        case Hear(point):
            await hear(live, point)
        case EnterNext(target):
            await enter_next(live, target)
        case WaitForJobs():
            await live.next_settled()
        case RunHook(hook, status, reason):
            await run_hook(live, hook, status, reason)
        case Pause(reason, remedy, numbers):
            live.emit(RunPaused(reason, remedy, dict(numbers)))
        case Finish():
            finish(live, action)
        case Wait():
            raise AssertionError("there is nothing to do")
    return True
