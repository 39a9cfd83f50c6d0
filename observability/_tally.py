"""What inferences cost, by region, as attributes of spans.

`shoal.runtime.Ledger` is the sum that reports are made of; this is the part of it that fits a span, kept up at the pace
of a turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import final

from shoal.observability import names
from shoal.observability._spans import MOST_REGIONS, SpanEvent, Value
from shoal.runtime.context import Share
from shoal.runtime.events import InferenceCompleted

_REPLY = ("reply.text", "reply.reasoning")
_ZERO = Decimal(0)
_MOST_LISTED = 128


@final
class Row:
    """What one region used: tokens sent, those read from and written to a cache, and USD (`None` where unknown)."""

    __slots__ = ("cost", "read", "region", "tokens", "written")

    def __init__(self, region: str) -> None:
        self.region = region
        self.tokens = 0
        self.read = 0
        self.written = 0
        self.cost: Decimal | None = _ZERO

    def add(self, tokens: int, read: int, written: int, cost: Decimal | None) -> None:
        """Add what it used once more."""
        self.tokens += tokens
        self.read += read
        self.written += written
        self.cost = _sum(self.cost, cost)


@final
class Tally:
    """What the inferences of a stage or a run used."""

    __slots__ = ("calls", "cost", "input", "output", "read", "reasoning", "reply_cost", "rows", "simulated", "written")

    def __init__(self) -> None:
        self.calls = 0
        self.input = 0
        self.read = 0
        self.written = 0
        self.output = 0
        self.reasoning = 0
        self.cost: Decimal | None = _ZERO
        self.reply_cost: Decimal | None = _ZERO
        self.simulated = False
        self.rows: dict[str, Row] = {}

    def bill(self, completed: InferenceCompleted) -> None:
        """Add one inference."""
        usage = completed.billed
        self.calls += 1
        self.input += usage.input
        self.read += usage.cache_read
        self.written += usage.cache_write + usage.cache_write_long
        self.output += usage.output
        self.reasoning += usage.reasoning
        self.cost = _sum(self.cost, completed.cost)
        self.simulated = self.simulated or completed.simulated
        for share in completed.attribution:
            if share.owner in _REPLY:
                self.reply_cost = _sum(self.reply_cost, share.cost)
            else:
                written = share.cache_write + share.cache_write_long
                self._row(share.owner).add(share.input, share.cache_read, written, share.cost)

    def merge(self, other: Tally) -> None:
        """Add everything that *other* holds."""
        self.calls += other.calls
        self.input += other.input
        self.read += other.read
        self.written += other.written
        self.output += other.output
        self.reasoning += other.reasoning
        self.cost = _sum(self.cost, other.cost)
        self.reply_cost = _sum(self.reply_cost, other.reply_cost)
        self.simulated = self.simulated or other.simulated
        for row in other.rows.values():
            self._row(row.region).add(row.tokens, row.read, row.written, row.cost)

    def _row(self, region: str) -> Row:
        row = self.rows.get(region)
        if row is None:
            row = self.rows[region] = Row(region)
        return row

    def attributes(self) -> dict[str, Value]:
        """Return its cost, in all and by region, as attributes."""
        made: dict[str, Value] = {names.COST_BAND: band(self.cost), names.INFERENCES: self.calls}
        if self.cost is not None:
            made[names.COST_USD] = float(self.cost)
        if self.reply_cost:
            made[names.REPLY_COST_USD] = float(self.reply_cost)
        if self.simulated:
            made[names.SIMULATED] = True
        rows = top(list(self.rows.values()))
        if rows:
            made[names.TOP_REGION] = rows[0].region
            made.update(arrays(rows))
        for row in rows:
            _region(made, row.region, row.tokens, row.read, row.written, row.cost)
        return made

    def table(self, at_ns: int) -> tuple[SpanEvent, ...]:
        """Return the whole table of regions as a span event, where the attributes do not show all of it."""
        if len(self.rows) <= MOST_REGIONS:
            return ()
        return (SpanEvent(names.E_REGIONS, at_ns, arrays(top(list(self.rows.values()), _MOST_LISTED))),)


def arrays(rows: Sequence[Row]) -> dict[str, Value]:
    """Return *rows* as parallel arrays; costs are left out where one is unknown."""
    made: dict[str, Value] = {
        names.REGIONS: tuple([row.region for row in rows]),
        names.REGIONS_TOKENS: tuple([row.tokens for row in rows]),
    }
    costs = [row.cost for row in rows if row.cost is not None]
    if len(costs) == len(rows):
        made[names.REGIONS_COST_USD] = tuple([float(cost) for cost in costs])
    return made


def top(rows: list[Row], most: int = MOST_REGIONS) -> list[Row]:
    """Return the *most* rows that cost most, dearest first; those of equal cost by tokens, then first come."""
    return sorted(rows, key=_rank)[:most]


def _rank(row: Row) -> tuple[Decimal, int]:
    return -(row.cost or _ZERO), -row.tokens


def bill(made: dict[str, Value], completed: InferenceCompleted) -> None:
    """Put what one inference used into its span's attributes *made*."""
    usage = completed.billed
    made[names.INPUT_TOKENS] = usage.input
    made[names.OUTPUT_TOKENS] = usage.output
    written = usage.cache_write + usage.cache_write_long
    if usage.cache_read:
        made[names.CACHE_READ_TOKENS] = usage.cache_read
    if written:
        made[names.CACHE_WRITE_TOKENS] = made[names.CACHE_CREATION_TOKENS] = written
    if usage.reasoning:
        made[names.REASONING_TOKENS] = usage.reasoning
    if completed.cost is not None:
        made[names.COST_USD] = made[names.OPERATION_COST] = float(completed.cost)
    reply: Decimal | None = _ZERO
    shares: list[Share] = []
    for share in completed.attribution:
        if share.owner in _REPLY:
            reply = _sum(reply, share.cost)
        else:
            shares.append(share)
    if reply:
        made[names.REPLY_COST_USD] = float(reply)
    if len(shares) > MOST_REGIONS:
        shares = sorted(shares, key=_share_rank)[:MOST_REGIONS]
    for share in shares:
        written = share.cache_write + share.cache_write_long
        _region(made, share.owner, share.input, share.cache_read, written, share.cost)


def _share_rank(share: Share) -> tuple[Decimal, int]:
    return -(share.cost or _ZERO), -share.input


def whole_bill(completed: InferenceCompleted, at_ns: int) -> tuple[SpanEvent, ...]:
    """Return one inference's table of regions as a span event, where the attributes do not show all of it."""
    if len(completed.attribution) <= MOST_REGIONS:
        return ()
    tally = Tally()
    tally.bill(completed)
    return tally.table(at_ns)


def sent(completed: InferenceCompleted) -> Mapping[str, int]:
    """Return the tokens that each region had in the request, by name."""
    return {share.owner: share.input for share in completed.attribution if share.owner not in _REPLY}


def _region(made: dict[str, Value], region: str, tokens: int, read: int, written: int, cost: Decimal | None) -> None:
    of_tokens, of_read, of_written, of_cost = names.region_attributes(region)
    made[of_tokens] = tokens
    if read:
        made[of_read] = read
    if written:
        made[of_written] = written
    if cost is not None:
        made[of_cost] = float(cost)


def band(cost: Decimal | None) -> str:
    """Return the power of ten that *cost* reaches, such as `1e-2`: a tag that can be searched by equality.

    `0` stands for nothing at all, `unknown` for a price that is not known.
    """
    if cost is None:
        return "unknown"
    if not cost:
        return "0"
    power = cost.adjusted()
    return f"1e{power}" if power else "1"


def _sum(known: Decimal | None, more: Decimal | None) -> Decimal | None:
    return None if known is None or more is None else known + more
