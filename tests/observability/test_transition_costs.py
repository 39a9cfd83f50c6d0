"""What a change of stage costs in a whole run, held against the model of the cache and the emulator's own counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from shoal.blueprints import Blueprint, CallerSeed, ModelChoice, ModelSettings, Nudge, Region, Stage
from shoal.observability import Projection
from shoal.providers import anthropic
from shoal.providers.cache_model import CacheUse, MarkerCache, Row, row_of
from shoal.runtime import Event, MemoryJournal, Swarm, TransitionRow, ledger_of, tool, virtual
from shoal.runtime.events import InferenceCompleted
from shoal.testing import wire

pytestmark = pytest.mark.anyio

MODEL, OTHER = "claude-sonnet-5", "claude-sonnet-4-6"
QUIET = Nudge(enabled=False)
REGIONS = (
    Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"), volatility="stable"),
    Region("corpus", kind="pinned", max_tokens=9_000, seed=CallerSeed("corpus"), volatility="stable"),
    Region("stage_instructions", kind="pinned", max_tokens=3_000),
    Region("conversation", kind="sliding_window", max_tokens=9_000, max_items=None),
)
SAME = Stage("second", system_prompt="Work. " * 300, available_tools=("look",), nudge=QUIET)


@tool(reads=True)
async def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: nothing but water. " * 100


@tool(reads=True)
async def listen() -> str:
    """Listen."""
    return "Gulls."


def first(*tools: str) -> Stage:
    return Stage("first", system_prompt="Work. " * 300, available_tools=tools or ("look",), nudge=QUIET)


CHANGES: Mapping[str, tuple[Stage, Stage]] = {
    "nothing": (first(), SAME),
    "the instructions": (
        first(),
        Stage("second", system_prompt="Tell. " * 200, available_tools=("look",), nudge=QUIET),
    ),
    "the tools": (first("look", "listen"), SAME),
    "the model": (
        first(),
        Stage(
            "second",
            system_prompt="Work. " * 300,
            available_tools=("look",),
            nudge=QUIET,
            model=ModelSettings((ModelChoice("anthropic", OTHER),)),
        ),
    ),
}


@dataclass
class Played:
    """A run of two stages, as its events and its vendor saw it."""

    events: list[Event]
    server: wire.InProcess

    @property
    def transition(self) -> TransitionRow:
        return ledger_of(self.events).transitions[0]

    @property
    def rows(self) -> list[tuple[Row, CacheUse]]:
        """The requests of the stages, with what the model of the cache says of each."""
        cache = MarkerCache(min_tokens=1024)
        made: list[tuple[Row, CacheUse]] = []
        for exchange in self.server.journal:
            row = row_of("messages", exchange.raw)
            assert exchange.first_byte_s is not None
            use = cache.use(row, start_s=exchange.received_s, first_byte_s=exchange.first_byte_s)
            if b"## corpus" in exchange.raw:
                made.append((row, use))
        return made

    @property
    def around(self) -> tuple[tuple[Row, CacheUse], tuple[Row, CacheUse]]:
        """The last request of the first stage, and the first of the second."""
        return self.rows[2], self.rows[3]


async def played(change: str) -> Played:
    """Look twice and stop, then tell."""
    turns = iter([*[wire.turn(wire.call("look", where=f"{n}")) for n in range(2)], "Done.", "Told."])

    def says(ask: wire.Ask) -> wire.Turn:
        if "## corpus" not in ask.system:
            return wire.turn("A title")
        said = next(turns)
        return said if isinstance(said, wire.Turn) else wire.turn(said)

    server = wire.InProcess(says)
    blueprint = Blueprint("two", CHANGES[change], regions=REGIONS)
    async with Swarm([anthropic("k", model=MODEL, http=server)], MemoryJournal(), clock=virtual()) as swarm:
        seeds = {"corpus": "The sea is wide. " * 1000}
        given = [made for made in (look, listen) if made.tool.name in CHANGES[change][0].available_tools]
        run = await swarm.spawn(blueprint, task="Look out.", seeds=seeds, tools=given)
        await run.result()
        events = list(swarm.journal.read(run.run_id))
    assert not server.violations
    return Played(events, server)


@pytest.mark.parametrize("change", CHANGES)
async def test_what_a_transition_lost_is_what_the_model_of_the_cache_says(change: str):
    run = await played(change)
    (_, before), (_, after) = run.around
    row = run.transition
    assert row.cached_before == before.read + before.write
    assert (row.cached_after, row.uncached_after) == (after.read, after.write + after.uncached)
    assert row.cache_tokens_lost == max(0, before.read + before.write - after.read)


async def test_each_kind_of_change_has_a_number_of_its_own():
    lost = {change: (await played(change)).transition.cache_tokens_lost for change in CHANGES}
    assert lost["nothing"] == 0
    assert 0 < lost["the instructions"] < lost["the model"] < lost["the tools"]


@pytest.mark.parametrize("change", CHANGES)
async def test_the_span_of_a_transition_says_the_same(change: str):
    run = await played(change)
    projection = Projection()
    spans = [span for event in run.events for span in projection.feed(event)]
    [move] = [span for span in spans if span.name == "transition first → second"]
    row, said = run.transition, move.attributes
    assert said["shoal.transition.cached_before"] == row.cached_before
    assert said["shoal.transition.cached_after"] == row.cached_after
    assert said["shoal.transition.cache_tokens_lost"] == row.cache_tokens_lost
    lost = dict(zip(said["shoal.transition.regions"], said["shoal.transition.regions.cache_tokens_lost"], strict=True))  # type: ignore[arg-type] # tuples
    assert lost == {name: region.cache_tokens_lost for name, region in row.regions.items()}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_each_region_lost_is_where_the_model_of_the_cache_lost_it(change: str):
    run = await played(change)
    (sent, before), (sent_after, after) = run.around
    cached, read = by_owner(sent, before.read + before.write), by_owner(sent_after, after.read)
    for owner, region in run.transition.regions.items():
        assert region.cached_before == pytest.approx(cached[owner], rel=0.02, abs=8)
        assert region.cached_after == pytest.approx(read[owner], rel=0.02, abs=8)
    assert sum(region.cached_before for region in run.transition.regions.values()) == before.read + before.write


@pytest.mark.parametrize("change", CHANGES)
async def test_what_each_region_is_billed_is_near_what_the_emulator_counts(change: str):
    run = await played(change)
    bills = [event.payload for event in run.events if isinstance(event.payload, InferenceCompleted)]
    stages = [bill for bill in bills if bill.purpose == "stage"]
    for bill, (sent, use) in zip(stages, run.rows, strict=True):
        assert bill.billed.input == sent.tokens == use.read + use.write + use.uncached
        counted = by_owner(sent, sent.tokens)
        for share in bill.attribution:
            if not share.owner.startswith("reply."):
                assert share.input == pytest.approx(counted[share.owner], rel=0.02, abs=8)


def by_owner(row: Row, tokens: int) -> Counter[str]:
    """Whose the first *tokens* of a request are."""
    owned: Counter[str] = Counter()
    for piece in row.pieces:
        take = min(tokens, piece.tokens)
        tokens -= take
        heading = re.search(rb"## (\w+)", piece.data)
        own = {"tools": "tools", "messages": "conversation"}.get(piece.section)
        owned[own or (heading.group(1).decode() if heading else "?")] += take
    return owned
