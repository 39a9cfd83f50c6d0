"""Each event of a run once and in its order, for observers that were not there from the beginning.

A run that another process began, or that was resumed, is caught up with from the journal: what an observer missed is
replayed to it first. Nothing that is replayed happened just now, and the observer is told so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import final

from shoal.runtime import Event, Reader
from shoal.runtime.events import RunEnded, RunSpawned

MOST_OVER = 16_384
"""How many runs that are over are remembered; an event that comes late for an older one is looked up."""


@final
class Following:
    """Hands each event of each run on once, in order.

    Args:
        take: Gets an event, and whether it is replayed.
        history: The journal, where missed events are read; `None` leaves runs out that were not seen from the start.
    """

    def __init__(self, take: Callable[[Event, bool], None], history: Reader | None) -> None:
        self._take = take
        self.history = history
        self._seen: dict[str, int] = {}
        self._over: OrderedDict[str, None] = OrderedDict()
        self.left_out = 0
        """How many runs are not followed."""

    def __repr__(self) -> str:
        return f"<Following {len(self._seen)} runs, {self.left_out} left out>"

    def __call__(self, event: Event) -> None:
        """Hand *event* on, behind whatever was missed.

        Raises:
            JournalDamaged: What was missed cannot be read.
        """
        run_id, seq = event.run_id, event.seq
        if self._seen.get(run_id, 0) == seq - 1 or self._caught_up(run_id, seq):
            self._hand_on(event, False)  # noqa: FBT003 - at every event, where a keyword costs

    def _hand_on(self, event: Event, replayed: bool) -> None:  # noqa: FBT001 - see there
        self._seen[event.run_id] = event.seq
        self._take(event, replayed)
        if type(event.payload) is RunEnded:
            self._forget(event.run_id)

    def leave_out(self, run_id: str) -> None:
        """Follow a run no longer although it is not over."""
        self.left_out += 1
        self._forget(run_id)

    def _forget(self, run_id: str) -> None:
        self._seen.pop(run_id, None)
        self._over[run_id] = None
        if len(self._over) > MOST_OVER:
            self._over.popitem(last=False)

    def _caught_up(self, run_id: str, seq: int) -> bool:
        """Replay what was missed of *run_id* before *seq*; return whether event *seq* is the next one then."""
        if run_id in self._over or self._seen.get(run_id, 0) >= seq:
            return False
        if self.history is None:
            self.leave_out(run_id)
            return False
        self._replay(self.history, run_id, seq)
        return self._seen.get(run_id, 0) == seq - 1

    def _replay(self, history: Reader, run_id: str, before: int | None) -> None:
        for event in history.read(run_id, after=self._seen.get(run_id, 0)):
            if event.seq == before:
                return
            if isinstance(event.payload, RunSpawned) and event.payload.parent is not None:
                self._meet(history, event.payload.parent)
            self._hand_on(event, True)  # noqa: FBT003 - see above

    def _meet(self, history: Reader, parent: str) -> None:
        """Catch up with a parent first: it says where its children hang."""
        if parent not in self._seen and parent not in self._over:
            self._replay(history, parent, None)
