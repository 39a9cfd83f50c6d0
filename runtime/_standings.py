"""Where runs stand, for those who wait for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import final

import anyio
import msgspec

from shoal.errors import JournalFailed
from shoal.providers import Text, Usage
from shoal.runtime._handle import Outcome, outcome_of
from shoal.runtime.events import ChildEnded, RunEnded, RunPaused
from shoal.runtime.journal import Journal, RunRow
from shoal.runtime.state import RunState


@final
class Standing:
    """Where one run stands."""

    __slots__ = ("broken", "moved", "outcome", "paused", "settled_at", "subtree")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        self.paused: RunPaused | None = None
        self.broken: JournalFailed | None = None
        self.subtree: tuple[Usage, Decimal | None] = (Usage(), Decimal(0))
        """What it and its children used, once it is over."""
        self.settled_at = 0.0
        """When its outcome was noted, in monotonic seconds."""
        self.moved: anyio.Event | None = None

    def pulse(self) -> None:
        """Wake whoever waits."""
        if self.moved is not None:
            self.moved.set()
            self.moved = None

    async def wait(self) -> None:
        """Return at the next change."""
        if self.moved is None:
            self.moved = anyio.Event()
        await self.moved.wait()

    def check(self, run_id: str) -> None:
        """See that the run may still come to an end.

        Raises:
            JournalFailed: It cannot go on, or a child of it cannot, because its journal cannot be written.
        """
        if self.broken is not None:
            raise type(self.broken)(str(self.broken), run_id=run_id) from self.broken

    def settle(self, state: RunState, now: float) -> None:
        """Note how a run ended whose events add up to *state*; *now* is monotonic seconds."""
        assert state.ended is not None  # the caller looked
        self.outcome = outcome_of(state, state.ended)
        self.settled_at = now
        usage, cost = state.usage, state.cost
        for child in state.children.values():
            if child.ended is not None:
                usage = usage + Usage(*child.ended.usage)
                cost = None if cost is None or child.ended.cost is None else cost + child.ended.cost
        self.subtree = (usage, cost)

    def write_off(self, run_id: str, ended: RunEnded, now: float) -> None:
        """Note the end of a run that cannot be read back: what it said and used is not known."""
        self.outcome = Outcome(run_id, ended.status, None, ended.reason, dict(ended.flags))
        self.settled_at = now
        self.paused = None

    def as_child(self) -> ChildEnded | None:
        """Return its end as its parent notes it; `None` while it has not ended."""
        outcome = self.outcome
        if outcome is None:
            return None
        usage, cost = self.subtree
        output = None if outcome.output is None else Text.of(outcome.output)
        return ChildEnded(outcome.run_id, outcome.status, output, outcome.reason, msgspec.structs.astuple(usage), cost)


@final
class Standings:
    """Where the runs stand that somebody asked for, or that lived here a short while ago."""

    def __init__(self) -> None:
        self._by_run: dict[str, Standing] = {}

    def __len__(self) -> int:
        return len(self._by_run)

    def of(self, run_id: str) -> Standing:
        """Return where *run_id* stands; made when first asked for."""
        standing = self._by_run.get(run_id)
        if standing is None:
            standing = self._by_run[run_id] = Standing()
        return standing

    def pulse(self) -> None:
        """Wake whoever waits for any of them."""
        for standing in tuple(self._by_run.values()):
            standing.pulse()

    def forget(self, before: float, *, besides: Mapping[str, object]) -> None:
        """Forget what the journal says as well: runs that ended before *before* (monotonic seconds), or sleep.

        Args:
            before: Ends up to here are forgotten.
            besides: Runs to keep.
        """
        old = [
            run_id
            for run_id, standing in self._by_run.items()
            if run_id not in besides
            and standing.moved is None
            and standing.settled_at <= before
            and standing.broken is None
        ]
        for run_id in old:
            del self._by_run[run_id]


def open_runs(journal: Journal, root: str) -> Sequence[RunRow]:
    """Return the runs of a tree that are not over, in the order in which they were spawned: parents first."""
    return [row for row in journal.runs(root=root) if not row.ended]
