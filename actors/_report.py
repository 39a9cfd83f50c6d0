"""What a supervisor shows of itself: its children, its counts, and the tree as text."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from shoal.actors._events import SupervisionEvent
from shoal.actors._life import Nested
from shoal.actors._reason import Reason
from shoal.actors._ref import Ref
from shoal.actors._spec import Restart

ChildKind = Literal["actor", "worker", "supervisor"]
ChildState = Literal[
    "starting", "running", "stopping", "restarting", "down", "stopped", "finished", "ignored", "gave_up", "orphan"
]

HISTORY = 200


@final
@dataclass(frozen=True, slots=True)
class ChildInfo:
    """One child as it is now.

    Args:
        id: Its id.
        kind: `actor`, `worker` (a function) or `supervisor`. An actor that never started is taken for a worker.
        restart: Its restart type.
        state: `starting`, `running`, `stopping`; `restarting` (between two tries); and without a process `down` (waits
            for its turn), `stopped` (by `terminate_child`), `finished`, `ignored` (had nothing to do), `gave_up` (spent
            its own budget); `orphan` (killed, and still runs).
        restarts: How often it was started again since its supervisor started.
        ref: Its handle; `None` for all but actors.
        supervisor: Itself, where it is a supervisor; else `None`.
        reason: Why it last ended or failed to start; `None` where it did not yet.
        up_s: Seconds since it came up; `None` where it is not up.
        retry_in_s: Seconds until it is started again; `None` where no delay is running.
    """

    id: str
    kind: ChildKind
    restart: Restart
    state: ChildState
    restarts: int = 0
    ref: Ref | None = None
    supervisor: Nested | None = None
    reason: Reason | None = None
    up_s: float | None = None
    retry_in_s: float | None = None


class WhichChild(NamedTuple):
    """One entry of `which_children`."""

    id: str
    child: Ref | Nested | Literal["running", "restarting"] | None
    """Its handle where it runs (`running` for a function, which has none); `None` without a process."""
    type: Literal["worker", "supervisor"]


class Counts(NamedTuple):
    """What `count_children` returns."""

    specs: int
    active: int
    supervisors: int
    workers: int


@final
class Book:
    """What is kept of a supervisor from one of its lives to the next: its history, orphans and nested supervisors."""

    def __init__(self, limit: int = HISTORY) -> None:
        self.history: deque[SupervisionEvent] = deque(maxlen=limit)
        self.orphans: dict[object, ChildInfo] = {}
        # Which child each nested supervisor was started as, in this life or an earlier one.
        self.nested: dict[Nested, str] = {}

    def __repr__(self) -> str:
        return f"<Book of {len(self.history)} events, {len(self.orphans)} orphans>"


def describe(child: ChildInfo) -> str:
    """Return one line about *child*."""
    parts = [child.id, child.kind, child.restart, child.state]
    if child.retry_in_s is not None:
        parts.append(f"in {child.retry_in_s:.3g} s")
    if child.restarts:
        parts.append(plural(child.restarts, "restart"))
    if child.reason is not None:
        parts.append(f"last end {child.reason}")
    return "  ".join(parts)


def plural(count: int, thing: str) -> str:
    """Return *count* of *thing* in words."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def draw(head: str, branches: Iterable[tuple[str, str]]) -> str:
    """Return a tree as text: *head*, and below it each branch as its first line and its own tree (n pairs)."""
    lines = [head]
    pairs = list(branches)
    for place, (line, below) in enumerate(pairs):
        last = place == len(pairs) - 1
        lines.append(("└─ " if last else "├─ ") + line)
        lines += [("   " if last else "│  ") + part for part in below.splitlines()]
    return "\n".join(lines)
