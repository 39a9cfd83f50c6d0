"""What a tree of runs has come to so far: the one picture that the live view, the plain lines and the summary draw.

It is fed with events, so a run that lives, one that is taken up again and one of last week look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, final

import anyio

from shoal.providers import Usage
from shoal.runtime import Event
from shoal.runtime.events import (
    ChildSpawned,
    InferenceCompleted,
    InferenceStarted,
    LaneDegraded,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    RunTitled,
    StageEntered,
)

_MOVES = (RunPaused, RunResumed, RunRestarted, RunEnded, QuestionAsked, QuestionAnswered)
"""What lets `Progress.wait` look again."""


@final
class RunView:
    """One run as the command line shows it.

    Args:
        event: Its first event.
        spawned: What that event says.
    """

    def __init__(self, event: Event, spawned: RunSpawned) -> None:
        self.run_id = event.run_id
        self.name = spawned.name
        self.parent = spawned.parent
        self.item = spawned.item
        self.task = None if spawned.task is None else str(spawned.task)
        self.output_dir = spawned.output_dir
        self.copied = 0 if spawned.forked_from is None else spawned.forked_from[1]
        """How many of its events are another run's history, which was billed there."""
        self.title: str | None = None
        self.status = "running"
        self.reason = ""
        self.remedy = ""
        self.stage: str | None = None
        self.model = ""
        self.usage = Usage()
        self.cost: Decimal | None = Decimal(0)
        self.requests = 0
        self.began = event.at
        self.ended: float | None = None
        self.simulated = 0
        """How many of its replies no language model wrote."""
        self.replies = 0
        self.children: list[str] = []
        self.questions: set[int] = set()
        """Seqs of what it asks a person."""

    @property
    def over(self) -> bool:
        """It has ended."""
        return self.ended is not None

    @property
    def label(self) -> str:
        """What tells it from its siblings: its fan-out item, else its blueprint's name."""
        return self.name if self.item is None else f"{self.name} {self.item}"


@final
class Progress:
    """All runs of one tree. `record` is an observer of the journal.

    Args:
        changed: Called with each event and the run it belongs to, after the picture has changed; `None` for nobody.
    """

    def __init__(self, changed: Callable[[Event, RunView], None] | None = None) -> None:
        self.runs: dict[str, RunView] = {}
        self.root: RunView | None = None
        self.degraded = 0
        """Lane jobs that came to nothing."""
        self.changed = changed
        self._moved: anyio.Event | None = None

    def record(self, event: Event) -> None:
        """Take *event* into account; those of one run come in their order."""
        payload = event.payload
        if isinstance(payload, RunSpawned):
            self._spawned(event, payload)
        run = self.runs.get(event.run_id)
        if run is None:
            return
        self._take(run, event, payload)
        if self.changed is not None:
            self.changed(event, run)
        moved = self._moved
        if moved is not None and isinstance(payload, _MOVES):
            self._moved = None
            moved.set()

    def replay(self, events: Iterable[Event]) -> None:
        """Take events into account that happened long ago, and tell nobody."""
        changed, self.changed = self.changed, None
        for event in events:
            self.record(event)
        self.changed = changed

    def _spawned(self, event: Event, spawned: RunSpawned) -> None:
        run = RunView(event, spawned)
        self.runs[run.run_id] = run
        if spawned.parent is None:
            self.root = self.root or run
        elif spawned.parent in self.runs:
            siblings = self.runs[spawned.parent].children
            if run.run_id not in siblings:
                siblings.append(run.run_id)

    def _take(self, run: RunView, event: Event, payload: Any) -> None:
        match payload:
            case RunTitled(title):
                run.title = title
            case StageEntered(stage, _, provider, model):
                run.stage, run.model = stage, f"{provider}:{model}"
            case InferenceStarted() | InferenceCompleted() if event.seq <= run.copied:
                pass
            case InferenceStarted():
                run.requests += 1
            case InferenceCompleted():
                run.usage = run.usage + payload.billed
                run.cost = added(run.cost, payload.cost)
                run.replies += 1
                run.simulated += payload.simulated
            case RunPaused(reason, remedy):
                run.status, run.reason, run.remedy = "paused", reason, remedy
            case RunResumed() | RunRestarted():
                run.status = "running"
            case RunEnded(status, reason):
                # A crash's reason has its traceback below the first line; `shoal events` shows it whole.
                run.status, run.reason, run.ended = status, reason.partition("\n")[0], event.at
                run.questions.clear()
            case LaneDegraded():
                self.degraded += 1
            case QuestionAsked():
                run.questions.add(event.seq)
            case QuestionAnswered(question):
                run.questions.discard(question)
            case ChildSpawned(child):
                # A child's own first event may come before or after this one.
                if child not in run.children:
                    run.children.append(child)
            case _:
                pass

    # --- reading

    def descend(self, run: RunView, depth: int = 0) -> Iterator[tuple[RunView, int]]:
        """Yield *run* and all below it, parents first, with how deep each stands."""
        yield run, depth
        for child in run.children:
            if child in self.runs:
                yield from self.descend(self.runs[child], depth + 1)

    @property
    def usage(self) -> Usage:
        """What all runs were billed."""
        return sum((run.usage for run in self.runs.values()), Usage())

    @property
    def cost(self) -> Decimal | None:
        """What all runs cost in USD; `None` where a price is unknown."""
        total: Decimal | None = Decimal(0)
        for run in self.runs.values():
            total = added(total, run.cost)
        return total

    def subtree_cost(self, run: RunView) -> Decimal | None:
        """Return what *run* and all below it cost in USD; `None` where a price is unknown."""
        total: Decimal | None = Decimal(0)
        for each, _ in self.descend(run):
            total = added(total, each.cost)
        return total

    @property
    def simulated(self) -> bool:
        """Some of the replies were written without a language model."""
        return any(run.simulated for run in self.runs.values())

    def counts(self) -> dict[str, int]:
        """Return how many runs have each status, in order of first appearance."""
        counted: dict[str, int] = {}
        for run in self.runs.values():
            counted[run.status] = counted.get(run.status, 0) + 1
        return counted

    def held(self) -> list[RunView]:
        """Return the runs that wait for somebody, where nothing else goes on; the others are over or wait for a child.

        Those that are paused come first, and each waits for a person to let it go on, or to answer it.
        """
        held: list[RunView] = []
        for run in self.runs.values():
            if run.status == "paused" or run.questions:
                held.append(run)
            elif not run.over and not self._waits(run):
                return []
        return sorted(held, key=lambda run: run.status != "paused")

    @property
    def asking(self) -> bool:
        """Some run asks a person."""
        return any(run.questions for run in self.runs.values())

    async def wait(self, condition: Callable[[], bool]) -> None:
        """Return once *condition* holds, which looks at who is paused, over, or asks."""
        while not condition():
            if self._moved is None:
                self._moved = anyio.Event()
            await self._moved.wait()

    def _waits(self, run: RunView) -> bool:
        return any(child not in self.runs or not self.runs[child].over for child in run.children)


def added(known: Decimal | None, more: Decimal | None) -> Decimal | None:
    """Return the sum of two amounts; `None` where one of them is unknown."""
    return None if known is None or more is None else known + more
