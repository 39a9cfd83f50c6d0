"""What inferences cost, by region, as attributes of spans.

`shoal.runtime.Ledger` is the sum that reports are made of; this is the part of it that fits a span, kept up at the pace
of a turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeAlias, final

from shoal.observability import names
from shoal.observability._spans import MOST_REGIONS, SpanEvent, Value
from shoal.runtime.events import InferenceCompleted

_REPLY = frozenset(("reply.text", "reply.reasoning"))
_ZERO = Decimal(0)
_MOST_LISTED = 128

Used: TypeAlias = tuple[str, int, int, int, Decimal | None]
"""What a region used: its name, tokens sent, those read from and written to a cache, and USD (`None`: unknown)."""


class Stretch(NamedTuple):
    """What a region had in one request.

    Args:
        tokens: All of it.
        read: Of it read from a cache.
        cached: Of it read from a cache or written to one.
    """

    tokens: int
    read: int
    cached: int


NOTHING = Stretch(0, 0, 0)


def sent(regions: Iterable[Used]) -> Mapping[str, Stretch]:
    """Return what each of *regions* had in a request, by name."""
    return {used[0]: Stretch(used[1], used[2], used[2] + used[3]) for used in regions}


@final
class Bill:
    """What one inference used, in all and by region.

    Args:
        completed: The inference.
    """

    __slots__ = ("completed", "input", "output", "read", "reasoning", "regions", "reply_cost", "written")

    def __init__(self, completed: InferenceCompleted) -> None:
        self.completed = completed
        uncached, self.read, written, written_long, self.output, self.reasoning = completed.usage
        self.written = written + written_long
        self.input = uncached + self.read + self.written
        self.reply_cost: Decimal | None = _ZERO
        self.regions = regions = list[Used]()
        for share in completed.attribution:
            owner, cost = share.owner, share.cost
            if owner in _REPLY:
                self.reply_cost = _sum(self.reply_cost, cost)
            else:
                read, written = share.cache_read, share.cache_write + share.cache_write_long
                regions.append((owner, share.uncached + read + written, read, written, cost))

    def attributes(self, made: dict[str, Value]) -> None:
        """Put it into the attributes *made* of the inference's span."""
        cost = self.completed.cost
        made[names.INPUT_TOKENS] = self.input
        made[names.OUTPUT_TOKENS] = self.output
        if self.read:
            made[names.CACHE_READ_TOKENS] = self.read
        if self.written:
            made[names.CACHE_WRITE_TOKENS] = made[names.CACHE_CREATION_TOKENS] = self.written
        if self.reasoning:
            made[names.REASONING_TOKENS] = self.reasoning
        if cost is not None:
            made[names.COST_USD] = made[names.OPERATION_COST] = float(cost)
        if self.reply_cost:
            made[names.REPLY_COST_USD] = float(self.reply_cost)
        _put(made, self.regions if len(self.regions) <= MOST_REGIONS else top(self.regions))

    def table(self, at_ns: int) -> tuple[SpanEvent, ...]:
        """Return all its regions as a span event, where the attributes do not show them all."""
        return _table(self.regions, at_ns)


@final
class Tally:
    """What the inferences of a stage or a run used."""

    __slots__ = (
        "calls",
        "cost",
        "input",
        "output",
        "read",
        "reasoning",
        "regions",
        "reply_cost",
        "simulated",
        "written",
    )

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
        self.regions: dict[str, Used] = {}

    def add(self, bill: Bill) -> None:
        """Add one inference."""
        self.calls += 1
        self.input += bill.input
        self.read += bill.read
        self.written += bill.written
        self.output += bill.output
        self.reasoning += bill.reasoning
        cost, reply = bill.completed.cost, bill.reply_cost
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        self.reply_cost = None if self.reply_cost is None or reply is None else self.reply_cost + reply
        self.simulated = self.simulated or bill.completed.simulated
        self._add_regions(bill.regions)

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
        self._add_regions(other.regions.values())

    def _add_regions(self, more: Iterable[Used]) -> None:
        known = self.regions
        for used in more:
            region, tokens, read, written, cost = used
            before = known.get(region)
            if before is None:
                known[region] = used
            else:
                _, had_tokens, had_read, had_written, had = before
                both = None if had is None or cost is None else had + cost
                known[region] = (region, had_tokens + tokens, had_read + read, had_written + written, both)

    def attributes(self) -> dict[str, Value]:
        """Return its cost, in all and by region, as attributes."""
        made: dict[str, Value] = {names.COST_BAND: band(self.cost), names.INFERENCES: self.calls}
        if self.cost is not None:
            made[names.COST_USD] = float(self.cost)
        if self.reply_cost:
            made[names.REPLY_COST_USD] = float(self.reply_cost)
        if self.simulated:
            made[names.SIMULATED] = True
        regions = top(self.regions.values())
        if regions:
            made[names.TOP_REGION] = regions[0][0]
            made.update(_arrays(regions))
        _put(made, regions)
        return made

    def table(self, at_ns: int) -> tuple[SpanEvent, ...]:
        """Return all its regions as a span event, where the attributes do not show them all."""
        return _table(tuple(self.regions.values()), at_ns)


def top(regions: Iterable[Used], most: int = MOST_REGIONS) -> list[Used]:
    """Return the *most* regions that cost most, dearest first; those of equal cost by tokens, then first come."""
    return sorted(regions, key=lambda used: (-(used[4] or _ZERO), -used[1]))[:most]


def _put(made: dict[str, Value], regions: Iterable[Used]) -> None:
    for region, tokens, read, written, cost in regions:
        of_tokens, of_read, of_written, of_cost = names.region_attributes(region)
        made[of_tokens] = tokens
        if read:
            made[of_read] = read
        if written:
            made[of_written] = written
        if cost is not None:
            made[of_cost] = float(cost)


def _table(regions: Sequence[Used], at_ns: int) -> tuple[SpanEvent, ...]:
    if len(regions) <= MOST_REGIONS:
        return ()
    return (SpanEvent(names.E_REGIONS, at_ns, _arrays(top(regions, _MOST_LISTED))),)


def _arrays(regions: Sequence[Used]) -> dict[str, Value]:
    """Return *regions* as parallel arrays; costs are left out where one is unknown."""
    made: dict[str, Value] = {
        names.REGIONS: tuple([used[0] for used in regions]),
        names.REGIONS_TOKENS: tuple([used[1] for used in regions]),
    }
    costs = [used[4] for used in regions if used[4] is not None]
    if len(costs) == len(regions):
        made[names.REGIONS_COST_USD] = tuple([float(cost) for cost in costs])
    return made


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
