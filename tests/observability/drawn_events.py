"""Draws the events of whole trees of runs, such as the runtime could have journaled, crashes and all."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from spankit import BEGAN, Story, share

from shoal.providers import Text
from shoal.runtime import Event
from shoal.runtime.context import EntriesEvicted
from shoal.runtime.events import (
    ChildEnded,
    ChildSpawned,
    GateBlocked,
    InferenceFailed,
    InferenceRetried,
    LaneCompleted,
    LaneDegraded,
    LaneStarted,
    MessageReceived,
    Nudged,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    ToolCallCompleted,
    ToolCallStarted,
)

_OWNERS = ("task", "notes", "tools", "reply.text")


class Player:
    """Plays one run by drawing what happens next."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], number: int, parent: Player | None) -> None:
        self._draw = draw
        self.number = number
        self.run_id = str(uuid.UUID(int=(7 << 76) | (2 << 62) | number))
        self.story = Story(self.run_id, BEGAN + number)
        self.parent = parent
        self.children: list[Player] = []
        self._jobs: list[int] = []
        self._calls: list[tuple[int, int]] = []
        self._stage = 0
        root = self.run_id if parent is None else parent.root
        self.root: str = root
        above = None if parent is None else parent.run_id
        waited = parent is not None and bool(parent._calls)
        self._add(self._spawned(above, root, waited))

    def _spawned(self, parent: str | None, root: str, waited: bool) -> Callable[[], object]:
        return lambda: self.story.spawn(f"agent-{self.number}", parent=parent, root=root, waited=waited)

    def _add(self, add: Callable[[], object]) -> None:
        self.story.at += self._draw(st.sampled_from([0.0, 0.0, 1e-6, 0.5, -0.25]))
        add()

    def play(self) -> None:
        """Draw a few stages and, mostly, an end."""
        for _ in range(self._draw(st.integers(0, 3))):
            if self._visit():
                return
        if self._draw(st.integers(0, 4)):
            self._end()

    def _visit(self) -> bool:
        """Draw one stage; return whether the run is over, or stands still for ever, in it."""
        self._stage += 1
        self._add(lambda: self.story.enter(f"stage-{self._stage}", self._stage))
        for _ in range(self._draw(st.integers(0, 6))):
            self._draw(st.sampled_from(self._steps()))()
        if self._draw(st.booleans()):
            for source, index in self._calls:
                self.story.add(ToolCallCompleted(source, index, Text.of("late")))
            self._calls.clear()
            self._add(lambda: self.story.leave(f"stage-{self._stage}", "next"))
            self._draw(st.sampled_from([self._job_ends, self._job_begins, lambda: None]))()
            return False
        if self._draw(st.booleans()):
            self._end()
        return True

    def _steps(self) -> Sequence[Callable[[], None]]:
        steps = [self._turn, self._turn, self._job_begins, self._job_ends, self._call_ends, self._note, self._crash]
        return [*steps, self._child] if self.number < 4 else steps

    def _turn(self) -> None:
        story, job = self.story, self._draw(st.sampled_from([0, *self._jobs]))
        started = story.ask("titling" if job else "stage", job)
        if self._draw(st.booleans()):
            story.add(InferenceRetried("stage", started, 1, "ProviderBusy", "no", 0.1))
        match self._draw(st.sampled_from(["failed", "crashed", "answered", "answered"])):
            case "failed":
                story.add(InferenceFailed("stage", started, "ProviderBusy", "no"))
            case "crashed":
                self._crash()
            case _:
                costs = self._draw(st.lists(st.integers(0, 50), min_size=1, max_size=4))
                shares = tuple(share(owner, 5, f"0.{cost:02}") for owner, cost in zip(_OWNERS, costs, strict=False))
                bill = sum((one.cost or Decimal(0) for one in shares), Decimal(0))
                seq = story.answer(started, calls=("look", "write"), shares=shares, cost=bill)
                self._begin_calls(seq)

    def _begin_calls(self, seq: int) -> None:
        for index in range(self._draw(st.integers(0, 2))):
            self.story.add(ToolCallStarted(seq, index))
            self._calls.append((seq, index))

    def _call_ends(self) -> None:
        if self._calls:
            self.story.add(ToolCallCompleted(*self._calls.pop(), Text.of("x"), self._draw(st.booleans())))

    def _job_begins(self) -> None:
        lane = self._draw(st.sampled_from(["titling", "compaction", "refresh"]))
        self._jobs.append(self.story.add(LaneStarted(lane, "notes", (1,))))

    def _job_ends(self) -> None:
        if self._jobs:
            job = self._jobs.pop(self._draw(st.integers(0, len(self._jobs) - 1)))
            ended = self._draw(
                st.sampled_from([LaneCompleted("titling", job), LaneDegraded("titling", job, "", "timeout")])
            )
            self.story.add(ended)

    def _note(self) -> None:
        happened = [
            Nudged("gate", Text.of("go on")),
            MessageReceived(Text.of("hello")),
            GateBlocked("next", "require_regions", 1),
            EntriesEvicted("notes", (1, 2), 20, "budget"),
            RunPaused("for a while"),
            RunResumed("user"),
        ]
        self.story.add(self._draw(st.sampled_from(happened)))

    def _crash(self) -> None:
        self.story.add(
            self._draw(st.sampled_from([RunResumed("restart", "p"), RunRestarted("Traceback\nKeyError: 1", 1)]))
        )

    def _child(self) -> None:
        number = self.number * 10 + len(self.children) + 1
        source, index = self._calls[-1] if self._calls else (0, 0)
        run_id = str(uuid.UUID(int=(7 << 76) | (2 << 62) | number))
        self.story.add(ChildSpawned(run_id, f"agent-{number}", source, index, None, bool(source)))
        child = Player(self._draw, number, self)
        self.children.append(child)
        child.play()
        if isinstance(child.story.events[-1].payload, RunEnded) and self._draw(st.booleans()):
            self.story.add(ChildEnded(child.run_id, "complete", None, "", (), Decimal("0.5")))

    def _end(self) -> None:
        status = self._draw(st.sampled_from(["complete", "error", "cancelled"]))
        self._add(lambda: self.story.end(status, "because"))

    @property
    def stories(self) -> list[Story]:
        """Its events and those of everything below it, parents first."""
        return [self.story, *(story for child in self.children for story in child.stories)]


@st.composite
def trees(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[Story]:
    """Return the events of the runs of one tree, parents first."""
    root = Player(draw, 1, None)
    root.play()
    return root.stories


@st.composite
def merged(draw: Callable[[st.SearchStrategy[Any]], Any], stories: list[Story]) -> list[Event]:
    """Return the events of *stories* in one order in which they could have become durable."""
    left = {story.run_id: list(story.events) for story in stories}
    begun = {stories[0].run_id}
    order: list[Event] = []
    while ready := [run_id for run_id in sorted(begun) if _may_follow(left, run_id)]:
        event = left[draw(st.sampled_from(ready))].pop(0)
        order.append(event)
        if isinstance(event.payload, ChildSpawned):
            begun.add(event.payload.child)
    return order


def _may_follow(left: dict[str, list[Event]], run_id: str) -> bool:
    """Say whether the next event of a run may be the next of all: the end of a child comes behind its own events."""
    if not left[run_id]:
        return False
    following = left[run_id][0].payload
    return not (isinstance(following, ChildEnded) and left[following.child])
