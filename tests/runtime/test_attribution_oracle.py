"""Whose the tokens of a bill are, held against the emulator: it counts block by block and knows the boundary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Block, Message, Request, Segment, Text, ToolCall, ToolSet, Usage, shipped_profile
from shoal.providers._messages import MessagesEncoder
from shoal.runtime.context import Part, Share, attribute, estimate, estimate_text
from shoal.runtime.tools import Tool
from shoal.testing import wire
from shoal.testing.wire._engine import World
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._vendors import engine

MODEL = "claude-sonnet-5"
PROFILE = shipped_profile(MODEL)
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
BUCKETS = ("read", "long", "short", "uncached")
LOOK = Tool("look", "Look somewhere.", {"type": "object", "properties": {"where": {"type": "string"}}}, None)
TOOLS = ToolSet((LOOK.spec,), LOOK.tokens)
WORDS = "The pier is closed, and boats wait outside of the harbour until the wind turns. "


def said(size: int) -> Text:
    return Text.of((WORDS * (size // len(WORDS) + 1))[:size] or "x")


def turn(number: int, size: int) -> tuple[Message, ...]:
    call = ToolCall(f"c{number}", "look", Text.of('{"where":"' + "x" * (size % 90) + '"}'))
    return Message("assistant", (said(size % 300 + 1),), (call,)), Message("tool", (said(size),), call_id=f"c{number}")


@st.composite
def runs(draw: st.DrawFn) -> list[Request]:
    """Requests of one run whose conversation grows and whose blocks now and then change."""
    sizes = draw(st.lists(st.integers(1, 9000), min_size=1, max_size=6))
    blocks = [Block(f"r{n % 4}", (said(size),), estimate_text(said(size))) for n, size in enumerate(sizes)]
    messages = [Message("user", (said(draw(st.integers(1, 3000))),))]
    made: list[Request] = []
    for number in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            at = draw(st.integers(0, len(blocks) - 1))
            blocks[at] = Block(blocks[at].owner, (said(draw(st.integers(1, 9000))),), 0)
        tokens = sum(map(estimate, messages))
        segment = Segment("talk", tuple(messages), tokens)
        made.append(Request(MODEL, tuple(blocks), (segment,), tools=TOOLS, run_id="r"))
        messages += turn(number, draw(st.integers(1, 4000)))
    return made


def billed(requests: Sequence[Request]) -> list[wire.Row]:
    """What the emulator bills for *requests*, one after the other."""
    clock = wire.ManualClock()
    world = World(wire.Settings(), clock)
    server = engine(world, wire.Script(last="ok"))
    encoder = MessagesEncoder("anthropic", PROFILE)
    for request in requests:
        body = bytes(encoder.encode(request).body)
        exchange = world.journal.open(Incoming("POST", "/v1/messages", {}, HEADERS, body), clock())
        server.serve(exchange).started(clock())
        assert not exchange.refused, exchange.violations
        clock.advance(5.0)
    return list(world.ledger)


def usage(row: wire.Row) -> Usage:
    return Usage(row.uncached, row.read, row.writes["5m"], row.writes["1h"])


def owner_of(request: Request, path: str) -> str:
    section, _, place = path.partition(".")
    return request.system[int(place)].owner if section == "system" else {"tools": "tools"}.get(section, "talk")


def oracle(request: Request, row: wire.Row) -> Mapping[tuple[str, str], int]:
    """Tokens by owner and bucket, one token at a time."""
    lengths = (row.read, row.writes["1h"], row.writes["5m"], row.uncached)
    bucket = iter([name for name, length in zip(BUCKETS, lengths, strict=True) for _ in range(length)])
    tokens: Counter[tuple[str, str]] = Counter()
    for block in row.blocks:
        for _ in range(block.tokens):
            tokens[owner_of(request, block.path), next(bucket)] += 1
    return tokens


def split(shares: Sequence[Share]) -> Mapping[tuple[str, str], int]:
    tokens: Counter[tuple[str, str]] = Counter()
    for share in shares:
        buckets = (share.cache_read, share.cache_write_long, share.cache_write, share.uncached)
        tokens.update({(share.owner, name): count for name, count in zip(BUCKETS, buckets, strict=True) if count})
    return tokens


def exact_parts(request: Request, row: wire.Row) -> list[Part]:
    return [Part(owner_of(request, block.path), block.tokens) for block in row.blocks]


def estimated_parts(request: Request) -> list[Part]:
    """The parts as a window would have them."""
    blocks = [Part(block.owner, sum(map(estimate_text, block.texts))) for block in request.system]
    talk = [Part("talk", sum(map(estimate, segment.messages)), "messages") for segment in request.messages]
    return [Part("tools", request.tools.tokens, "tools"), *blocks, *talk]


def near(count: int, wanted: int) -> bool:
    return abs(count - wanted) <= max(8, 0.02 * wanted)


@given(requests=runs())
def test_with_an_exact_counter_every_share_is_the_emulators(requests: list[Request]):
    for request, row in zip(requests, billed(requests), strict=True):
        shares = attribute(exact_parts(request, row), usage(row), PROFILE.price)
        assert split(shares) == oracle(request, row)


@given(requests=runs())
def test_with_an_exact_counter_every_cost_is_the_emulators_to_the_last_decimal(requests: list[Request]):
    price = PROFILE.price
    assert price is not None
    rates = {
        "read": price.cache_read or 0,
        "long": price.cache_write_long or 0,
        "short": price.cache_write or 0,
        "uncached": price.input,
    }
    for request, row in zip(requests, billed(requests), strict=True):
        shares = attribute(exact_parts(request, row), usage(row), price)
        costs: dict[str, Decimal] = {}
        for (owner, bucket), tokens in oracle(request, row).items():
            costs[owner] = costs.get(owner, Decimal(0)) + tokens * rates[bucket] / 1_000_000
        assert {share.owner: share.cost for share in shares} == costs
        assert sum(costs.values()) == price.cost(usage(row))


@given(requests=runs())
def test_with_the_estimate_every_share_is_near_the_emulators(requests: list[Request]):
    for request, row in zip(requests, billed(requests), strict=True):
        frames = 3 * len(request.messages[0].messages)
        shares = attribute(estimated_parts(request), usage(row), None, overhead_tokens=frames)
        mine, theirs = totals(split(shares)), totals(oracle(request, row))
        assert all(near(mine[owner], theirs[owner]) for owner in {*mine, *theirs}), (mine, theirs)


def totals(tokens: Mapping[tuple[str, str], int]) -> Counter[str]:
    made: Counter[str] = Counter()
    for (owner, _), count in tokens.items():
        made[owner] += count
    return made


UNEVEN = Request(
    MODEL,
    (Block("r0", (said(20_000),), 5000), Block("r1", (said(100),), 25), Block("r2", (said(2000),), 500)),
    (Segment("talk", (Message("user", (said(600),)),), 150),),
    tools=TOOLS,
)


def test_an_even_split_is_far_from_the_emulators():
    [row] = billed([UNEVEN])
    owners = list(totals(oracle(UNEVEN, row)))
    even = dict.fromkeys(owners, row.input // len(owners))
    assert not any(near(even[owner], wanted) for owner, wanted in totals(oracle(UNEVEN, row)).items())


def test_a_split_by_order_alone_is_far_from_the_emulators():
    """What was read goes to the first owners, in turn, as if each had the same size."""
    _, row = billed([UNEVEN, UNEVEN])
    owners = list(totals(oracle(UNEVEN, row)))
    in_turn = [Part(owner, 1) for owner in owners]
    mine, theirs = split(attribute(in_turn, usage(row), None)), oracle(UNEVEN, row)
    assert not all(near(mine[key], theirs[key]) for key in {*mine, *theirs})
