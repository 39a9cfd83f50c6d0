"""Hosting a tree of runs from its begin to its end: the part that `run` and `resume` share."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, final

import anyio

import shoal
from shoal._environment import wants_telemetry
from shoal.cli._print import complain, is_terminal, say
from shoal.cli._progress import Progress
from shoal.cli._screen import Lines, LiveView, NoScreen, Screen
from shoal.errors import JournalFailed, RunIsPaused, ShoalError
from shoal.observability import export_trace
from shoal.providers import Provider
from shoal.runtime import Ledger, Outcome, Permissions, Run

T = TypeVar("T")

INTERRUPTED = 130
"""Exit status after Ctrl-C."""

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
        telemetry: Spans are sent while the runs go on.
        as_json: Standard output is for other programs.
    """

    journal: Path
    providers: tuple[Provider, ...]
    permissions: Permissions = field(default_factory=Permissions)
    telemetry: bool = field(default_factory=wants_telemetry)
    as_json: bool = False


@final
@dataclass(frozen=True, slots=True)
class Ending:
    """How hosting ended.

    Args:
        progress: The tree of runs.
        outcome: How the run ended; `None` where it did not.
        ledger: What the tree used; `None` where the run did not end.
        trace: Its spans as OTLP JSON; `None` where the run did not end.
        stop: What kept it from ending: it is paused, or the journal failed; `None` where it ended or was interrupted.
    """

    progress: Progress
    outcome: Outcome | None = None
    ledger: Ledger | None = None
    trace: bytes | None = None
    stop: RunIsPaused | JournalFailed | None = None

    @property
    def interrupted(self) -> bool:
        """Somebody pressed Ctrl-C, or the process was told to stop."""
        return self.outcome is None and self.stop is None


async def host(hosting: Hosting, begin: Begin) -> Ending:
    """Open a swarm, begin a run, show its progress, and wait until it is over, paused or interrupted.

    Raises:
        ShoalError: It could not begin.
    """
    progress = Progress()
    interrupts = Interrupts()
    return await beside(interrupts.serve, lambda: _hosted(hosting, begin, progress, interrupts))


async def _hosted(hosting: Hosting, begin: Begin, progress: Progress, interrupts: Interrupts) -> Ending:
    swarm = shoal.Swarm(
        hosting.providers,
        journal=hosting.journal,
        observers=[progress.record],
        permissions=hosting.permissions,
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
    screen = _screen(hosting, swarm, progress)
    try:
        run = await beside(screen.serve, lambda: begin(swarm, progress))
        while True:
            try:
                outcome = await beside(screen.serve, lambda: settled(run, progress))
                return Ending(progress, outcome, swarm.ledger(run.run_id), export_trace(swarm.journal, run.run_id))
            except RunIsPaused as paused:
                screen.close()
                if not await _let_go_on(hosting, paused):
                    return Ending(progress, stop=paused)
                await run.resume()
    finally:
        screen.close()


async def settled(run: Run, progress: Progress) -> Outcome:
    """Wait for the end of *run* and return how it ended.

    Raises:
        RunIsPaused: It is paused, or all that it waits for is.
        JournalFailed: The journal cannot be written.
    """
    with anyio.CancelScope() as waiting:

        async def watch() -> None:
            await progress.wait_paused()
            waiting.cancel()

        return await beside(watch, lambda: run.result(wait_paused=True))
    paused = progress.paused()
    first = paused[0]
    more = f" (so are {len(paused) - 1} more)" if len(paused) > 1 else ""
    raise RunIsPaused(
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


# --- the person in front of it


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
                    os._exit(INTERRUPTED)
                self.scope.cancel()


def _screen(hosting: Hosting, swarm: shoal.Swarm, progress: Progress) -> Screen:
    def fill(run_id: str) -> Mapping[str, tuple[int, int]]:
        live = swarm.hall.live.get(run_id)
        window = None if live is None else live.state.window
        if window is None:
            return {}
        states = {name: window.states[name] for name in window.layout.regions}
        return {name: (state.charged, state.limits.budget) for name, state in states.items()}

    if hosting.as_json:
        return LiveView(progress, fill, stderr=True) if sys.stderr.isatty() else NoScreen()
    return LiveView(progress, fill) if is_terminal() else Lines(progress)


async def _let_go_on(hosting: Hosting, paused: RunIsPaused) -> bool:
    """Ask whether a paused run is to go on; nobody is asked where nobody is there."""
    if hosting.as_json or not (sys.stdin.isatty() and is_terminal()):
        return False
    complain(str(paused), paused.remedy)
    say("Press Enter once that is done and the run goes on; Ctrl-C leaves it paused.")
    await anyio.wait_readable(sys.stdin)
    return bool(sys.stdin.readline())
