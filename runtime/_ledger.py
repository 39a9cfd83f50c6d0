"""The ledger: what each region, each stage and each stage transition used; the only sum of tokens and cost.

It is computed from events and from nothing else, so a run that lives, one that was resumed and one of last week give
the same numbers; its totals equal the sum of the journal's usages.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from html import escape
from typing import Any, final

from shoal.providers import Usage
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

BEFORE_STAGES = "-"
"""Name of the row of what happened outside any stage."""


NO_USAGE = Usage()


@dataclass(slots=True)
class Tally:
    """Tokens in disjoint buckets, and their cost in USD (`None` once any part of it is unknown).

    Args:
        usage: What was billed.
        cost: USD.
        calls: How many inferences it comes from.
    """

    usage: Usage = NO_USAGE
    cost: Decimal | None = Decimal(0)
    calls: int = 0

    def add(self, usage: Usage, cost: Decimal | None, calls: int = 1) -> None:
        """Add one inference's worth."""
        self.usage = self.usage + usage
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.calls += calls

    @property
    def cache_hit_ratio(self) -> float | None:
        """Share of the input that was read from a cache; `None` where nothing was sent."""
        return self.usage.cache_read / self.usage.input if self.usage.input else None

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        hit = self.cache_hit_ratio
        return {
            "calls": self.calls,
            "usage": plain_usage(self.usage),
            "cost_usd": None if self.cost is None else format(self.cost, "f"),
            "cache_hit_ratio": None if hit is None else round(hit, 4),
        }


@final
@dataclass(slots=True)
class RegionRow(Tally):
    """What one region used in one stage.

    Args:
        high_water_tokens: The most it cost in one request.
        budget_tokens: The most it may hold, the largest value of the stage; `None` for what is no region, and where it
            is not known.
    """

    high_water_tokens: int = 0
    budget_tokens: int | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            **Tally.plain(self),
            "high_water_tokens": self.high_water_tokens,
            "budget_tokens": self.budget_tokens,
        }


@final
@dataclass(slots=True)
class StageRow(Tally):
    """What one stage used, over all its visits.

    Args:
        stage: Its name.
        visits: How often it was entered.
        tool_calls: Tool calls that came to an end in it.
        seconds: Time spent in it, without pauses.
        regions: What each owner used, by name, in order of first appearance.
        chars: Characters of each request of the stage, oldest first: a line that keeps climbing sheds nothing.
        by_purpose: Inferences by what they were for.
    """

    stage: str = ""
    visits: int = 0
    tool_calls: int = 0
    seconds: float = 0.0
    regions: dict[str, RegionRow] = field(default_factory=dict[str, RegionRow])
    chars: list[int] = field(default_factory=list[int])
    by_purpose: dict[str, Tally] = field(default_factory=dict[str, Tally])

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "stage": self.stage,
            "visits": self.visits,
            "tool_calls": self.tool_calls,
            "seconds": round(self.seconds, 6),
            **Tally.plain(self),
            "purposes": {purpose: tally.plain() for purpose, tally in self.by_purpose.items()},
            "approx_context_chars": list(self.chars),
            "regions": [{"region": name, **row.plain()} for name, row in self.regions.items()],
        }


@final
@dataclass(frozen=True, slots=True)
class RegionMove:
    """What one transition did to one region.

    Args:
        tokens_before: What it cost in the last request before it.
        tokens_after: What it cost in the first request after it.
        cached_before: What the last request before it read from a cache or wrote to one.
        cached_after: What the first request after it read from a cache.
    """

    tokens_before: int
    tokens_after: int
    cached_before: int
    cached_after: int

    @property
    def cache_tokens_lost(self) -> int:
        """Tokens of it that were cached before the transition and are not after it."""
        return max(0, self.cached_before - self.cached_after)

    def plain(self) -> dict[str, int]:
        """Return it as plain values."""
        return {
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "cached_before": self.cached_before,
            "cached_after": self.cached_after,
            "cache_tokens_lost": self.cache_tokens_lost,
        }


@final
@dataclass(slots=True)
class TransitionRow:
    """What one transition did.

    Args:
        source: The stage that was left.
        target: The stage that was entered; `None` for the end of the run.
        condition: The edge's condition.
        cost: USD of the routing call and of the summaries that the edge ordered; `None` where unknown.
        uncached_after: Input that the first request after it had to send uncached or written.
        cached_after: Input that the first request after it read from a cache.
        cached_before: Input that the last request before it read from a cache or wrote to one.
        regions: What it did to each region that was sent before it or after it, in order of first appearance; empty
            where no request came after it.
    """

    source: str
    target: str | None
    condition: str
    cost: Decimal | None = Decimal(0)
    uncached_after: int = 0
    cached_after: int = 0
    cached_before: int = 0
    regions: dict[str, RegionMove] = field(default_factory=dict[str, RegionMove])

    @property
    def cache_tokens_lost(self) -> int:
        """Tokens that were cached before it and are not after it."""
        return max(0, self.cached_before - self.cached_after)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "from": self.source,
            "to": self.target,
            "condition": self.condition,
            "cost_usd": None if self.cost is None else format(self.cost, "f"),
            "cache_tokens_lost": self.cache_tokens_lost,
            "cached_before": self.cached_before,
            "cached_after": self.cached_after,
            "uncached_after": self.uncached_after,
            "regions": [{"region": name, **move.plain()} for name, move in self.regions.items()],
        }


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
        rows = [_HEADS, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if not i else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )

    def _rows(self) -> Iterator[Sequence[str]]:
        for stage in self.stages.values():
            yield _cells(stage.stage, stage)
            for name, row in stage.regions.items():
                peak, budget = str(row.high_water_tokens or ""), str(row.budget_tokens or "")
                yield _cells(f"  {name}", row, peak, budget)
        yield _cells("total", self.total)

    def csv(self) -> str:
        """Return it as CSV: a row a stage, a row a region of a stage, and a row for all.

        The row of a stage has an empty `region`, and that of all an empty `stage` too: rows with a region add up to
        the bill.
        """
        rows = [_csv_row("", "", self.total)]
        for stage in self.stages.values():
            more = {"visits": stage.visits, "tool_calls": stage.tool_calls, "seconds": round(stage.seconds, 6)}
            rows.append(_csv_row(stage.stage, "", stage, **more))
            rows += [
                _csv_row(
                    stage.stage, name, row, high_water_tokens=row.high_water_tokens, budget_tokens=row.budget_tokens
                )
                for name, row in stage.regions.items()
            ]
        return _csv(_COLUMNS, rows)

    def transitions_csv(self) -> str:
        """Return the transitions as CSV: a row each, and a row a region of each; the former has an empty `region`."""
        rows: list[dict[str, Any]] = []
        for number, transition in enumerate(self.transitions, start=1):
            plain = transition.plain()
            where: dict[str, object] = {name: _harmless(plain[name] or "") for name in ("from", "to", "condition")}
            where["transition"] = number
            rows.append({**plain, **where})
            rows += [{**move, **where, "region": _harmless(move["region"])} for move in plain["regions"]]
        return _csv(_MOVE_COLUMNS, rows)

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it."""
        head = "".join(f"<th>{escape(name)}</th>" for name in _HEADS)
        rows = "".join(f"<tr>{''.join(_html_cells(row))}</tr>" for row in self._rows())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


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


_HEADS = ("stage / region", "calls", "in", "cached", "written", "out", "cost USD", "peak", "budget")


def _cells(name: str, tally: Tally, peak: str = "", budget: str = "") -> Sequence[str]:
    usage = tally.usage
    written = usage.cache_write + usage.cache_write_long
    cost = "?" if tally.cost is None else format(tally.cost.normalize() + 0, "f")
    return (
        name,
        str(tally.calls),
        str(usage.input),
        str(usage.cache_read),
        str(written),
        str(usage.output),
        cost,
        peak,
        budget,
    )


def _html_cells(row: Sequence[str]) -> Iterator[str]:
    name, *figures = row
    inset = len(name) - len(name.lstrip())
    yield f'<td style="text-align: left; padding-left: {inset + 0.5}em">{escape(name.strip())}</td>'
    yield from (f"<td>{escape(figure)}</td>" for figure in figures)


_COLUMNS = (
    "stage",
    "region",
    "visits",
    "calls",
    "input",
    "uncached",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
    "cost_usd",
    "cache_hit_ratio",
    "high_water_tokens",
    "budget_tokens",
    "tool_calls",
    "seconds",
)
_MOVE_COLUMNS = (
    "transition",
    "from",
    "to",
    "condition",
    "region",
    "tokens_before",
    "tokens_after",
    "cached_before",
    "cached_after",
    "uncached_after",
    "cache_tokens_lost",
    "cost_usd",
)


def _csv_row(stage: str, region: str, tally: Tally, **more: object) -> dict[str, object]:
    usage = {"input": tally.usage.input, **plain_usage(tally.usage)}
    return {"stage": _harmless(stage), "region": _harmless(region), **usage, **Tally.plain(tally), **more}


def _harmless(name: str) -> str:
    """Return *name* so that no spreadsheet takes it for a formula: a blueprint may come from a stranger.

    Source: OWASP, "CSV Injection".
    """
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) and name != BEFORE_STAGES else name


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return *rows* as CSV (RFC 4180 but for line ends); what is unknown or has no meaning is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def plain_usage(usage: Usage) -> dict[str, int]:
    """Return *usage* as plain values; writes of every lifetime are one number."""
    return {
        "uncached": usage.uncached,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write + usage.cache_write_long,
        "output": usage.output,
        "reasoning": usage.reasoning,
    }


def ledger_of(events: Iterable[Event]) -> Ledger:
    """Return the ledger of *events*; those of one run in their order, runs may be mixed."""
    ledger = Ledger()
    for event in events:
        ledger.record(event)
    return ledger
