"""Ledgers with what no bill says: the budget that each region had in each stage."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.errors import DefinitionMissing
from shoal.runtime.context import LayoutChanged
from shoal.runtime.events import Event, InferenceStarted, RunSpawned, StageEntered
from shoal.runtime.journal import Reader
from shoal.runtime.ledger import Ledger
from shoal.runtime.program import recorded
from shoal.runtime.state import RunState


def account_of(reader: Reader, run_ids: Iterable[str]) -> Ledger:
    """Return the ledger of the runs *run_ids*, budgets of regions included; those stand in no event of their own.

    Each run is folded, at some 100,000 events a second; where what it is made of cannot be had its budgets are unknown.

    Raises:
        JournalDamaged: A row is torn or corrupted.
    """
    ledger = Ledger()
    budgets: dict[tuple[str, str], int] = {}
    for run_id in run_ids:
        follower: _Follower | None = _Follower(reader, run_id, budgets)
        for event in reader.read(run_id):
            ledger.record(event)
            if follower is not None:
                try:
                    follower.take(event)
                except DefinitionMissing:
                    follower = None
    for (stage, region), tokens in budgets.items():
        ledger.limit(stage, region, tokens)
    return ledger


class _Follower:
    """Keeps up the state of one run, and takes note of its budgets.

    Args:
        reader: The journal.
        run_id: The run.
        budgets: Where they go: the largest by stage and region, in tokens.
    """

    def __init__(self, reader: Reader, run_id: str, budgets: dict[tuple[str, str], int]) -> None:
        self._reader = reader
        self._run_id = run_id
        self._budgets = budgets
        self._state: RunState | None = None
        self._stage = ""
        self._known = False

    def take(self, event: Event) -> None:
        """Take the next event.

        Raises:
            DefinitionMissing: What the run is made of cannot be had.
        """
        payload = event.payload
        if self._state is None:
            assert isinstance(payload, RunSpawned)  # the first event of every run
            program = recorded(self._reader.definition(payload.definition))
            self._state = RunState(self._run_id, program, definition=self._reader.definition)
        self._state.apply(event)
        if isinstance(payload, StageEntered):
            self._stage, self._known = payload.stage, False
        elif isinstance(payload, LayoutChanged):
            self._known = False
        elif isinstance(payload, InferenceStarted) and payload.purpose == "stage" and not self._known:
            self._known = True
            self._look(self._state)

    def _look(self, state: RunState) -> None:
        for region, held in state.view.states.items():
            key = (self._stage, region)
            self._budgets[key] = max(self._budgets.get(key, 0), held.limits.budget)
