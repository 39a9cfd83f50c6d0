"""Hosting a tree of runs from its begin to its end: the part that `run` and `resume` share."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, final

import anyio
import anyio.to_thread

import shoal
from shoal._environment import wants_telemetry
from shoal._keeping import Keeping, keeping_from
from shoal._serving import default_model_from
from shoal.cli._desk import Desk
from shoal.cli._print import complain, is_terminal
from shoal.cli._progress import Progress, RunView
from shoal.cli._screen import Lines, LiveView, NoScreen, Screen
from shoal.errors import JournalFailed, RunIsPaused, ShoalError
from shoal.observability import export_trace
from shoal.providers import Provider
from shoal.runtime import Ledger, Outcome, Permissions, Question, Run
from shoal.runtime.journal import prune
from shoal.runtime.tools import kill_lines

T = TypeVar("T")

_DAY_S = 86_400.0
INTERRUPTED = 130
"""Exit status after Ctrl-C."""
_LOOK_S = 0.05

Person: TypeAlias = Literal["here", "elsewhere", "nobody"]
"""Who answers what runs ask, and lets go on what is paused."""

Begin: TypeAlias = Callable[[shoal.Swarm, Progress], Awaitable[Run]]
"""Spawns a run, or takes one up."""


@final
@dataclass(frozen=True, slots=True)
class Hosting:
    """How to host.

    Args:
        journal: The journal's file.
        providers: Who serves models.
        permissions: What the user allows.
        memory: The folder in which agents remember; `None` for none.
        telemetry: Spans are sent while the runs go on.
        as_json: Standard output is for other programs.
        person: Who is asked: somebody at this terminal, somebody who steers from elsewhere, or nobody.
    """

    journal: Path
    providers: tuple[Provider, ...]
    permissions: Permissions = field(default_factory=Permissions)
    memory: Path | None = None
    telemetry: bool = field(default_factory=wants_telemetry)
    as_json: bool = False
    person: Person = "nobody"


@final
@dataclass(frozen=True, slots=True)
class Ending:
    """How hosting ended.

    Args:
        progress: The tree of runs.
        outcome: How the run ended; `None` where it did not.
        ledger: What the tree used; `None` where the run did not end.
        trace: Its spans as OTLP JSON; `None` where the run did not end.
        stop: What kept it from ending: it is paused, or the journal failed; `None` where that was something else.
        questions: What it waits for, where it does not go on without an answer.
    """

    progress: Progress
    outcome: Outcome | None = None
    ledger: Ledger | None = None
    trace: bytes | None = None
    stop: RunIsPaused | JournalFailed | None = None
    questions: tuple[Question, ...] = ()

    @property
    def interrupted(self) -> bool:
        """Somebody pressed Ctrl-C, or the process was told to stop."""
        return self.outcome is None and self.stop is None and not self.questions


async def host(hosting: Hosting, begin: Begin) -> Ending:
    """Open a swarm, begin a run, show its progress, and wait until it is over, paused or interrupted.

    Raises:
        ShoalError: It could not begin.
    """
    keeping = keeping_from()  # first, so that what is wrong with it is told before anything runs
    progress = Progress()
    interrupts = Interrupts()
    ending = await beside(interrupts.serve, lambda: _hosted(hosting, begin, progress, interrupts))
    if keeping.keep_days is not None and not ending.interrupted:
        await anyio.to_thread.run_sync(_forget_old, hosting.journal, keeping)
    return ending


def _forget_old(journal: Path, keeping: Keeping) -> None:
    """Prune the journal as the user's settings say; that it could not be pruned is told, and hurts nothing."""
    assert keeping.keep_days is not None  # the caller looked
    try:
        prune(journal, before=time.time() - keeping.keep_days * _DAY_S, keep_failed=keeping.keep_failed)
    except JournalFailed as error:
        complain(str(error))


async def _hosted(hosting: Hosting, begin: Begin, progress: Progress, interrupts: Interrupts) -> Ending:
    swarm = shoal.Swarm(
        hosting.providers,
        journal=hosting.journal,
        observers=[progress.record],
        permissions=hosting.permissions,
        memory=hosting.memory,
        default_model=default_model_from(hosting.providers),
        telemetry="otlp" if hosting.telemetry else None,
    )
    ending = Ending(progress)
    # The scope stands inside the swarm's block: an interrupt ends the waiting, and the swarm stops its runs in order.
    async with swarm:
        with interrupts.scope:
            try:
                ending = await _followed(hosting, begin, swarm, progress)
            except JournalFailed as error:
                if progress.root is None:
                    raise
                ending = Ending(progress, stop=error)
        if ending.interrupted:
            complain("interrupted; the runs are being stopped, and once more leaves at once")
    return ending


async def _followed(hosting: Hosting, begin: Begin, swarm: shoal.Swarm, progress: Progress) -> Ending:
    screen, desk = _screen(hosting, swarm, progress), Desk()
    try:
        run = await beside(screen.serve, lambda: begin(swarm, progress))
        while True:
            halt = await beside(screen.serve, lambda: halted(hosting.person, swarm, run, progress))
            if isinstance(halt, Outcome):
                return Ending(progress, halt, swarm.ledger(run.run_id), export_trace(swarm.journal, run.run_id))
            screen.close()
            if hosting.person != "here":
                going = False
            elif isinstance(halt, RunIsPaused):
                going = await desk.let_go_on(run, halt, progress)
            else:
                going = await desk.settle(swarm, halt, progress)
            if not going:
                paused = halt if isinstance(halt, RunIsPaused) else None
                return Ending(progress, stop=paused, questions=tuple(swarm.questions(run.run_id)))
    finally:
        screen.close()


async def halted(person: Person, swarm: shoal.Swarm, run: Run, progress: Progress) -> Outcome | RunIsPaused | Question:
    """Wait until *run* is over, or needs somebody; return how it ended, or what is needed first.

    Raises:
        JournalFailed: The journal cannot be written.
    """
    while True:
        with anyio.CancelScope() as waiting:

            async def watch(scope: anyio.CancelScope = waiting) -> None:
                await _needed(person, swarm, progress)
                scope.cancel()

            return await beside(watch, lambda: run.result(wait_paused=True))
        questions = swarm.questions(run.run_id)
        if questions and person == "here":
            return questions[0]
        held = progress.held()
        if held and held[0].status == "paused":
            return _paused(run, held)
        if questions:
            return questions[0]


async def _needed(person: Person, swarm: shoal.Swarm, progress: Progress) -> None:
    """Return once somebody is needed: at the terminal for each question, else where nothing goes on without them."""
    if person == "elsewhere":
        await anyio.sleep_forever()
    while True:
        await progress.wait(lambda: bool(progress.held()) or (person == "here" and progress.asking))
        if person == "here" or _idle(swarm):
            return
        await anyio.sleep(_LOOK_S)  # a run that asks may have other calls that it is about to begin


def _idle(swarm: shoal.Swarm) -> bool:
    return all(live.idle_since is not None for live in swarm.hall.home.live.values())


def _paused(run: Run, held: Sequence[RunView]) -> RunIsPaused:
    first = held[0]
    others = sum(each.status == "paused" for each in held) - 1
    more = f" (so are {others} more)" if others else ""
    return RunIsPaused(
        f"{first.label} is paused{more}: {first.reason}", run_id=run.run_id, reason=first.reason, remedy=first.remedy
    )


async def beside(side: Callable[[], Coroutine[Any, Any, None]], work: Callable[[], Awaitable[T]]) -> T:
    """Return what *work* returns and run *side* meanwhile; an error of *work* is raised alone, in no group."""
    failed: ShoalError | None = None
    result: list[T] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(side)
        try:
            result.append(await work())
        except ShoalError as error:
            failed = error
        tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed
    return result[0]


# --- the terminal


def person_at(*, attended: bool | None, as_json: bool) -> Person:
    """Return who is asked, where `--attended` or `--unattended` was said, or neither (`None`)."""
    if attended is False:
        return "nobody"
    if not as_json and sys.stdin.isatty() and is_terminal() and _in_front():
        return "here"
    return "elsewhere" if attended else "nobody"


def _in_front() -> bool:
    """Say whether what is typed at the terminal is meant for this process: a job in the background must not read it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True  # the terminal has no jobs


@final
class Interrupts:
    """Waits for Ctrl-C: the first ends the waiting in good order, the second the process."""

    def __init__(self) -> None:
        self.scope = anyio.CancelScope()

    async def serve(self) -> None:
        """Listen until cancelled."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                if self.scope.cancel_called:
                    # Everything that was acknowledged is in the journal; nothing is lost by leaving now.
                    kill_lines()
                    os._exit(INTERRUPTED)
                self.scope.cancel()


def _screen(hosting: Hosting, swarm: shoal.Swarm, progress: Progress) -> Screen:
    def fill(run_id: str) -> Mapping[str, tuple[int, int]]:
        live = swarm.hall.home.live.get(run_id)
        window = None if live is None else live.state.window
        if window is None:
            return {}
        states = {name: window.states[name] for name in window.layout.regions}
        return {name: (state.charged, state.limits.budget) for name, state in states.items()}

    if hosting.as_json:
        return LiveView(progress, fill, stderr=True) if sys.stderr.isatty() else NoScreen()
    return LiveView(progress, fill) if is_terminal() else Lines(progress)
