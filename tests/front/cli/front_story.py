"""Events of a tree of runs, written by hand."""

from __future__ import annotations

from decimal import Decimal

from shoal.cli._progress import Progress
from shoal.providers import Text
from shoal.runtime import Event
from shoal.runtime.events import InferenceCompleted, Payload, RunSpawned


class Story:
    """Writes events, each with the next seq of its run."""

    def __init__(self) -> None:
        self.progress = Progress()
        self._seqs: dict[str, int] = {}

    def tell(self, run_id: str, *payloads: Payload) -> Progress:
        for payload in payloads:
            self._seqs[run_id] = self._seqs.get(run_id, 0) + 1
            self.progress.record(Event(run_id, self._seqs[run_id], 100.0 + self._seqs[run_id], payload))
        return self.progress


def spawned(name: str = "lead", parent: str | None = None, item: str | None = None) -> RunSpawned:
    return RunSpawned(name, "d", Text.of("a task"), (), "/", parent, "root", 0 if parent is None else 1, item)


def replied(cost: str | None = "0.5", *, simulated: bool = False) -> InferenceCompleted:
    price = None if cost is None else Decimal(cost)
    return InferenceCompleted("stage", 1, Text.of("said"), (), (10, 5, 0, 0, 3, 0), price, (), simulated=simulated)
