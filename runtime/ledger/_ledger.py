"""The ledger: what each region, each stage and each stage transition used; the only sum of tokens and cost.

It is computed from events and from nothing else, so a run that lives, one that was resumed and one of last week give
the same numbers; its totals equal the sum of the journal's usages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, final

from shoal.runtime.context import Share
from shoal.runtime.events import (
    Event,
    InferenceCompleted,
    InferenceStarted,
    RunEnded,
    RunPaused,
    RunResumed,
    RunSpawned,
    StageEntered,
    StageLeft,
    ToolCallCompleted,
    TransitionChosen,
)
from shoal.runtime.ledger._rows import RegionMove, RegionRow, StageRow, Tally, TransitionRow
from shoal.runtime.ledger._shown import BEFORE_STAGES, as_csv, as_html, as_table, transitions_as_csv


@final
class Ledger:
    """What runs used: by stage and region, by transition, and in all. Feed it events in order; see `ledger_of`."""

    def __init__(self) -> None:
        self.total = Tally()
        self.stages: dict[str, StageRow] = {}
        self.transitions: list[TransitionRow] = []
        self._places: dict[str, _Place] = {}

    def __repr__(self) -> str:
        cost = "unknown cost" if self.total.cost is None else f"{self.total.cost:f} USD"
        return f"<Ledger {self.total.usage.input} in, {self.total.usage.output} out, {cost}, {len(self.stages)} stages>"

    def record(self, event: Event) -> None:
        """Take *event* into account; events of one run come in their order."""
        place = self._places.setdefault(event.run_id, _Place())
        if isinstance(event.payload, RunSpawned) and event.payload.forked_from is not None:
            place.copied = event.payload.forked_from[1]
        if event.seq <= place.copied:  # another run's history: it was counted there
            if isinstance(event.payload, StageEntered):
                place.stage, place.inside = event.payload.stage, True
            place.heard = event.at
            return
        match event.payload:
            case StageEntered(stage):
                place.stage, place.inside, place.since = stage, True, event.at
                self._stage(stage).visits += 1
            case StageLeft() | RunEnded():
                self._stop(place, event.at)
                place.inside = False
            case RunPaused():
                self._stop(place, event.at)
            case RunResumed():
                # Where a process died nobody stopped the clock: what was last heard of it did.
                self._stop(place, place.heard)
                place.since = event.at if place.inside else None
            case TransitionChosen():
                self._choose(place, event.payload)
            case InferenceStarted(purpose):
                if purpose == "stage":
                    self._stage(place.stage).chars.append(event.payload.approx_context_chars)
            case InferenceCompleted():
                self._bill(place, event.payload)
            case ToolCallCompleted():
                self._stage(place.stage).tool_calls += 1
            case _:
                pass
        place.heard = event.at

    def limit(self, stage: str, region: str, tokens: int) -> None:
        """Take note that *region* may hold so many *tokens* in *stage*, where it was billed there."""
        row = self.stages[stage].regions.get(region) if stage in self.stages else None
        if row is not None:
            row.budget_tokens = max(row.budget_tokens or 0, tokens)

    def _stop(self, place: _Place, at: float) -> None:
        if place.since is not None:
            self._stage(place.stage).seconds += at - place.since
            place.since = None

    def _stage(self, name: str) -> StageRow:
        return self.stages.setdefault(name, StageRow(stage=name))

    def _choose(self, place: _Place, payload: TransitionChosen) -> None:
        row = TransitionRow(payload.source, payload.target, payload.condition, cached_before=place.cached)
        row.cost = place.routing_cost
        place.routing_cost = Decimal(0)
        place.transition = row
        self.transitions.append(row)

    def _bill(self, place: _Place, payload: InferenceCompleted) -> None:
        usage = payload.billed
        row = self._stage(place.stage)
        for tally in (self.total, row, row.by_purpose.setdefault(payload.purpose, Tally())):
            tally.add(usage, payload.cost)
        for share in payload.attribution:
            self._share(row, share)
        transition = place.transition
        if payload.purpose == "routing":
            place.routing_cost = _sum(place.routing_cost, payload.cost)
        elif payload.purpose == "compaction" and transition is not None:
            transition.cost = _sum(transition.cost, payload.cost)
        elif payload.purpose == "stage":
            sent = {share.owner: share for share in payload.attribution if share.input}
            if transition is not None:
                transition.cached_after = usage.cache_read
                transition.uncached_after = usage.input - usage.cache_read
                transition.regions = _moved(place.sent, sent)
                place.transition = None
            place.cached = usage.input - usage.uncached
            place.sent = sent

    def _share(self, row: StageRow, share: Share) -> None:
        region = row.regions.setdefault(share.owner, RegionRow())
        region.add(share.usage, share.cost)
        region.high_water_tokens = max(region.high_water_tokens, share.input)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {
            "total": self.total.plain(),
            "stages": [row.plain() for row in self.stages.values()],
            "transitions": [row.plain() for row in self.transitions],
        }

    def table(self) -> str:
        """Return it as text: a row a stage and, under it, a row a region."""
        return as_table(self.stages.values(), self.total)

    def csv(self) -> str:
        """Return it as CSV: a row a stage, a row a region of a stage, and a row for all.

        The row of a stage has an empty `region`, and that of all an empty `stage` too: rows with a region add up to
        the bill.
        """
        return as_csv(self.stages.values(), self.total)

    def transitions_csv(self) -> str:
        """Return the transitions as CSV: a row each, and a row a region of each; the former has an empty `region`."""
        return transitions_as_csv(self.transitions)

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it."""
        return as_html(self.stages.values(), self.total)


@dataclass(slots=True)
class _Place:
    """Where one run stands while its events go by."""

    stage: str = BEFORE_STAGES
    copied: int = 0
    inside: bool = False
    since: float | None = None
    heard: float = 0.0
    cached: int = 0
    sent: dict[str, Share] = field(default_factory=dict[str, Share])
    routing_cost: Decimal | None = Decimal(0)
    transition: TransitionRow | None = None


_NOT_SENT = Share("")


def _moved(before: dict[str, Share], after: dict[str, Share]) -> dict[str, RegionMove]:
    """Return what became of each owner between two requests."""
    moves: dict[str, RegionMove] = {}
    for owner in (*before, *after):
        was, is_now = before.get(owner, _NOT_SENT), after.get(owner, _NOT_SENT)
        moves[owner] = RegionMove(was.input, is_now.input, was.input - was.uncached, is_now.cache_read)
    return moves


def _sum(known: Decimal | None, more: Decimal | None) -> Decimal | None:
    return None if known is None or more is None else known + more


def ledger_of(events: Iterable[Event]) -> Ledger:
    """Return the ledger of *events*; those of one run in their order, runs may be mixed."""
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    return ledger
