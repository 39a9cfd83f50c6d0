"""Anthropic's cache, held against the examples and the table of the vendor's page on prompt caching."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from wirekit import Desk, assistant, image, message, png, result, text, tool, use, user

from shoal.testing import wire

MODEL = "claude-opus-4-8"  # keeps prefixes of 1,024 tokens or more
BIG = "x" * 4000  # 1,000 tokens
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def numbered(count: int, *marked: int) -> list[dict[str, Any]]:
    """*count* blocks of 200 tokens each; those with the given numbers, from 1 on, are marked."""
    made = [text(f"{number:04}" * 200) for number in range(1, count + 1)]
    for number in marked:
        made[number - 1]["cache_control"] = MARK
    return made


def counted(row: wire.Row) -> tuple[int, int, int, int]:
    return row.read, row.writes["1h"], row.writes["5m"], row.uncached


def sent(desk: Desk, body: dict[str, Any], **more: Any) -> tuple[int, int, int, int]:
    got = desk.anthropic(body, **more)
    assert got.exchange.row is not None, got.reply.body
    return counted(got.exchange.row)


def blocks(count: int, *marked: int, **more: Any) -> dict[str, Any]:
    return message(user(*numbered(count, *marked)), model=MODEL, **more)


# --- the vendor's example of growing conversations


def test_the_first_turn_writes_all_ten_blocks():
    assert sent(Desk(), blocks(10, 10)) == (0, 0, 2000, 0)


def test_a_turn_of_fifteen_blocks_reads_ten_and_writes_five():
    desk = Desk()
    desk.anthropic(blocks(10, 10))
    assert sent(desk, blocks(15, 15)) == (2000, 0, 1000, 0)


def test_a_turn_of_thirty_five_blocks_looks_back_twenty_and_finds_nothing():
    desk = Desk()
    desk.anthropic(blocks(15, 15))
    assert sent(desk, blocks(35, 35)) == (0, 0, 7000, 0)


def test_a_second_marker_on_block_fifteen_finds_it():
    desk = Desk()
    desk.anthropic(blocks(15, 15))
    assert sent(desk, blocks(35, 15, 35)) == (3000, 0, 4000, 0)


@pytest.mark.parametrize(("count", "read"), [(34, 3000), (35, 0)])
def test_the_look_back_counts_the_marked_block_itself(count: int, read: int):
    desk = Desk()
    desk.anthropic(blocks(15, 15))
    assert sent(desk, blocks(count, count))[0] == read


# --- what is written, and from when on it is read


def test_only_marked_places_are_written():
    desk = Desk()
    desk.anthropic(blocks(10, 10))
    assert sent(desk, blocks(8, 8)) == (0, 0, 1600, 0)


@pytest.mark.parametrize(("tokens", "written"), [(1023, 0), (1024, 1024)])
def test_a_prefix_under_the_minimum_is_not_cached_and_not_refused(tokens: int, written: int):
    body = message(user(text("x" * 4 * tokens, cache_control=MARK)), model=MODEL)
    assert sent(Desk(), body) == (0, 0, written, tokens - written)


def test_siblings_sent_before_the_first_byte_all_miss():
    desk = Desk()
    first = sent(desk, blocks(10, 10), ready_s=2.0)
    desk.clock.advance(1.9)
    second = sent(desk, blocks(10, 10), ready_s=4.0)
    desk.clock.advance(0.1)
    assert (first[0], second[0], sent(desk, blocks(10, 10))[0]) == (0, 0, 2000)


def test_an_entry_may_be_readable_at_once_by_choice():
    desk = Desk(settings=wire.Settings(cache=wire.CacheSwitches(readable_at_once=True)))
    desk.anthropic(blocks(10, 10), ready_s=60.0)
    assert sent(desk, blocks(10, 10))[0] == 2000


@pytest.mark.parametrize(("marker", "life_s"), [(MARK, 300.0), (HOUR, 3600.0)])
@pytest.mark.parametrize(("early_s", "read"), [(0.1, 1024), (0.0, 0)])
def test_a_lifetime_runs_from_the_start_of_the_request(
    marker: dict[str, str], life_s: float, early_s: float, read: int
):
    desk = Desk()
    body = message(user(text("x" * 4096, cache_control=marker)), model=MODEL)
    desk.anthropic(body, ready_s=50.0)
    desk.clock.advance(life_s - early_s)
    assert sent(desk, body)[0] == read


def test_an_entry_may_live_at_its_limit_by_choice():
    desk = Desk(settings=wire.Settings(cache=wire.CacheSwitches(alive_at_limit=True)))
    desk.anthropic(blocks(10, 10))
    desk.clock.advance(300.0)
    assert sent(desk, blocks(10, 10))[0] == 2000


def test_a_read_lets_the_entry_live_on():
    desk = Desk()
    for _ in range(5):
        row = sent(desk, blocks(10, 10))
        desk.clock.advance(299.0)
    assert row == (2000, 0, 0, 0)


@pytest.mark.parametrize(("refresh_path", "read"), [(True, 1200), (False, 0)])
def test_a_read_refreshes_the_entries_on_its_path_unless_told_not_to(refresh_path: bool, read: int):
    desk = Desk(settings=wire.Settings(cache=wire.CacheSwitches(refresh_path=refresh_path)))
    desk.anthropic(blocks(10, 6, 10))
    desk.clock.advance(200.0)
    desk.anthropic(blocks(10, 6, 10))
    desk.clock.advance(200.0)
    assert sent(desk, blocks(6, 6))[0] == read


def test_prices_of_two_lifetimes_split_at_the_last_long_marker():
    body = message(
        user(text(BIG, cache_control=MARK), text(BIG)),
        model=MODEL,
        tools=[tool()],
        system=[text(BIG, cache_control=HOUR), text(BIG, cache_control=HOUR)],
    )
    tool_tokens = Desk().anthropic(message(model=MODEL, tools=[tool()])).exchange.row.blocks[0].tokens  # type: ignore[union-attr]
    assert sent(Desk(), body) == (0, 2000 + tool_tokens, 1000, 1000)


def test_a_long_entry_that_is_read_is_not_paid_again():
    desk = Desk()
    system = [text(BIG * 2, cache_control=HOUR)]
    desk.anthropic(message(user(text("a")), model=MODEL, system=system))
    body = message(user(text(BIG, cache_control=MARK)), model=MODEL, system=system)
    assert sent(desk, body) == (2000, 0, 1000, 0)


def test_a_sibling_does_not_move_the_moment_from_which_an_entry_is_read():
    desk = Desk()
    desk.anthropic(blocks(10, 10), ready_s=1.0)
    desk.anthropic(blocks(10, 10), ready_s=9.0)
    desk.clock.advance(2.0)
    assert sent(desk, blocks(10, 10))[0] == 2000


# --- markers that nobody wrote


def test_the_top_level_marker_stands_on_the_last_block_that_can_carry_one():
    desk = Desk()
    body = message(user(BIG), assistant(BIG), user("x"), model=MODEL, cache_control=MARK)
    assert sent(desk, body) == (0, 0, 2001, 0)


def test_the_top_level_marker_walks_back_from_what_cannot_carry_one():
    made = wire.Script(wire.turn(wire.think("hm", redacted=True), stop="pause"))
    desk = Desk(made)
    ask = message(user(BIG * 2), model=MODEL, thinking={"type": "adaptive"})
    paused = desk.anthropic(ask).json["content"]
    body = {**ask, "messages": [user(BIG * 2), assistant(*paused)], "cache_control": MARK, "max_tokens": 0}
    assert sent(desk, body)[2] == 2000


def test_a_marker_inside_a_tool_result_marks_the_whole_result():
    body = message(user("hi"), assistant(use()), user(result(content=[text(BIG * 2, cache_control=MARK), text("x")])))
    assert sent(Desk(), body | {"model": MODEL})[2] == 2004


def test_warming_writes_and_says_nothing():
    desk = Desk(wire.Script())
    got = desk.anthropic(message(user(text(BIG * 2, cache_control=MARK)), model=MODEL, max_tokens=0))
    assert (got.json["content"], got.json["stop_reason"], got.json["usage"]["output_tokens"]) == ([], "max_tokens", 0)
    assert got.json["usage"]["cache_creation_input_tokens"] == 2000


# --- what makes it miss


def tiered(**more: Any) -> dict[str, Any]:
    system = more.pop("system", [text(BIG * 2, cache_control=MARK)])
    tools = more.pop("tools", [tool(description="d" * 8000, cache_control=MARK)])
    content = more.pop("content", [text(BIG, cache_control=MARK)])
    return message(user(*content), **{"model": MODEL, "tools": tools, "system": system, **more})


CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {}, "messages"),
    ("a later block", {"content": [text("y" * 4000, cache_control=MARK)]}, "system"),
    ("the system text", {"system": [text("y" * 8000, cache_control=MARK)]}, "tools"),
    ("speed", {"speed": "fast"}, "tools"),
    ("the tools", {"tools": [tool(description="e" * 8000, cache_control=MARK)]}, ""),
    ("the model", {"model": "claude-sonnet-5"}, ""),
    ("the choice of tools", {"tool_choice": {"type": "any"}}, "system"),
    ("parallel tools", {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "system"),
    ("the default choice", {"tool_choice": {"type": "auto"}}, "messages"),
    ("thinking", {"thinking": {"type": "adaptive"}}, "system"),
    ("the default thinking", {"thinking": {"type": "disabled"}}, "messages"),
    ("effort", {"output_config": {"effort": "low"}}, "system"),
    ("the default effort", {"output_config": {"effort": "high"}}, "messages"),
    ("an image", {"content": [text(BIG, cache_control=MARK), image(png())]}, "system"),
    ("max_tokens", {"max_tokens": 7}, "messages"),
]


@pytest.mark.parametrize(
    ("change", "tier"), [(made, tier) for _, made, tier in CHANGES], ids=[w for w, _, _ in CHANGES]
)
def test_a_change_loses_its_tier_and_those_behind_it(change: dict[str, Any], tier: str):
    desk = Desk()
    desk.anthropic(tiered())
    row = desk.anthropic(tiered(**change)).exchange.row
    assert row is not None
    assert (row.blocks[row.boundary - 1].tier if row.boundary else "") == tier


def test_with_one_marker_at_the_end_a_small_change_loses_everything():
    desk = Desk()
    body = message(user(text(BIG, cache_control=MARK)), model=MODEL, system=BIG, tools=[tool()])
    desk.anthropic(body)
    assert sent(desk, {**body, "tool_choice": {"type": "any"}})[0] == 0


@pytest.mark.parametrize(
    ("switches", "tier"),
    [(wire.CacheSwitches(thinking_in_tools=True), ""), (wire.CacheSwitches(thinking_in_system=True), "tools")],
)
def test_thinking_may_be_part_of_earlier_tiers_by_choice(switches: wire.CacheSwitches, tier: str):
    desk = Desk(settings=wire.Settings(cache=switches))
    desk.anthropic(tiered())
    row = desk.anthropic(tiered(thinking={"type": "adaptive"})).exchange.row
    assert row is not None
    assert (row.blocks[row.boundary - 1].tier if row.boundary else "") == tier


def test_the_order_of_keys_in_an_input_matters_and_markers_do_not():
    desk = Desk()
    called = use() | {"input": {"a": BIG * 2, "b": 1}}
    body = message(user("hi"), assistant(called), user(result(cache_control=MARK)), model=MODEL)
    desk.anthropic(body)
    moved = message(user("hi"), assistant(called), user(result(), text("x", cache_control=MARK)), model=MODEL)
    swapped = message(
        user("hi"), assistant(use() | {"input": {"b": 1, "a": BIG * 2}}), user(result(cache_control=MARK)), model=MODEL
    )
    read = sent(desk, moved)[0]
    assert (read > 1000, sent(desk, swapped)[0]) == (True, 0)


def test_workspaces_share_nothing():
    desk = Desk()
    desk.anthropic(blocks(10, 10))
    other = desk.send("/v1/messages", blocks(10, 10), {"x-api-key": "other", "anthropic-version": "2023-06-01"})
    assert other.exchange.row is not None
    assert other.exchange.row.read == 0


def test_a_cleared_system_message_is_shown_for_one_turn_only():
    desk = Desk()
    betas = "mid-conversation-system-clear-at-2026-08-21"
    reminder = {"role": "system", "content": BIG, "clear_at": "next_user_message"}
    during = desk.anthropic(message(user("hi"), reminder), betas=betas).exchange.row
    after = desk.anthropic(message(user("hi"), reminder, assistant("x"), user("y")), betas=betas).exchange.row
    assert during is not None
    assert after is not None
    assert (during.input, after.input) == (1001, 3)


def test_thinking_blocks_may_take_no_place_in_the_look_back_by_choice():
    thoughts = wire.turn(*[wire.think(str(number)) for number in range(25)], "so")
    reads: list[int] = []
    for counts in (True, False):
        switches = wire.CacheSwitches(thinking_counts=counts)
        desk = Desk(wire.Script(thoughts, last="ok"), settings=wire.Settings(cache=switches))
        start = message(user(text(BIG * 2, cache_control=MARK)), model=MODEL, thinking={"type": "adaptive"})
        content = desk.anthropic(start).json["content"]
        content[-1]["cache_control"] = MARK
        reads.append(sent(desk, {**start, "messages": [user(BIG * 2), assistant(*content), user("y")]})[0])
    assert reads == [0, 2000]


# --- what is told


def test_usage_tells_the_four_counters():
    desk = Desk()
    first, again = (desk.anthropic(blocks(11, 10)).json["usage"] for _ in range(2))
    assert first["cache_creation"] == {"ephemeral_5m_input_tokens": 2000, "ephemeral_1h_input_tokens": 0}
    assert (first["input_tokens"], first["cache_read_input_tokens"], first["cache_creation_input_tokens"]) == (
        200,
        0,
        2000,
    )
    assert (again["input_tokens"], again["cache_read_input_tokens"], again["cache_creation_input_tokens"]) == (
        200,
        2000,
        0,
    )


def diagnosed(change: dict[str, Any], previous: str | None = "last") -> Any:
    desk = Desk()
    first = desk.anthropic(tiered()).json["id"]
    asked = {"previous_message_id": first if previous == "last" else previous}
    return desk.anthropic(tiered(**change, diagnostics=asked)).json["diagnostics"]


@pytest.mark.parametrize(
    ("change", "kind", "missed"),
    [
        ({"model": "claude-sonnet-5"}, "model_changed", 5030),
        ({"tools": [tool(description="e" * 8000, cache_control=MARK)]}, "tools_changed", 5030),
        ({"system": [text("y" * 8000, cache_control=MARK)]}, "system_changed", 3000),
        ({"tool_choice": {"type": "any"}}, "messages_changed", 1000),
        ({"content": [text("y")]}, "messages_changed", 1000),
    ],
)
def test_a_miss_is_explained(change: dict[str, Any], kind: str, missed: int):
    assert diagnosed(change) == {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": missed}}


def test_an_unknown_message_is_said_to_be_unknown():
    assert diagnosed({}, "msg_gone") == {"cache_miss_reason": {"type": "previous_message_not_found"}}


@pytest.mark.parametrize("change", [{}, {"content": [text(BIG, cache_control=MARK), text("more")]}])
def test_appending_is_no_miss(change: dict[str, Any]):
    assert diagnosed(change) is None


def test_the_first_turn_has_nothing_to_compare():
    assert diagnosed({}, None) is None


# --- the ledger


def test_a_row_counts_each_block_by_itself():
    body = message(
        user(text("x" * 41), image(png(280, 280))), assistant(use(x=1)), user(result(content="abc")), model=MODEL
    )
    row = Desk().anthropic(body | {"system": "y" * 8}).exchange.row
    assert row is not None
    assert [(block.path, block.tier, block.tokens) for block in row.blocks] == [
        ("system", "system", 2),
        ("messages.0.content.0", "messages", 11),
        ("messages.0.content.1", "messages", 100),
        ("messages.1.content.0", "messages", 3),
        ("messages.2.content.0", "messages", 1),
    ]


def test_the_boundary_is_how_many_blocks_were_read():
    desk = Desk()
    desk.anthropic(blocks(10, 10))
    row = desk.anthropic(blocks(12, 12)).exchange.row
    assert row is not None
    assert row.boundary == 10


def test_the_oracle_reads_what_a_perfect_cache_would():
    desk = Desk()
    desk.anthropic(blocks(15))
    desk.clock.advance(3599.0)
    row = desk.anthropic(blocks(35)).exchange.row
    assert row is not None
    assert (row.read, row.oracle_read) == (0, 3000)


def test_the_oracle_does_not_read_what_no_cache_would_keep():
    desk = Desk()
    desk.anthropic(blocks(5))
    assert [row.oracle_read for row in [desk.anthropic(blocks(5)).exchange.row] if row] == [0]


def test_efficiency_is_what_was_read_of_what_could_have_been():
    desk = Desk()
    assert desk.ledger.hit_efficiency == 1.0
    desk.anthropic(blocks(10, 10))
    desk.anthropic(blocks(10, 10))
    desk.anthropic(blocks(10))
    assert desk.ledger.hit_efficiency == 0.5


def test_cost_is_the_sum_over_the_buckets():
    desk = Desk(wire.Script(last=wire.turn("x" * 400)))
    desk.anthropic(blocks(10, 10))
    desk.anthropic(blocks(11, 10))
    assert [row.cost_usd for row in desk.ledger] == [
        Decimal("6.25") * 2000 / 10**6 + Decimal(25) * 100 / 10**6,
        (Decimal("0.5") * 2000 + Decimal(5) * 200 + Decimal(25) * 100) / 10**6,
    ]
    assert desk.ledger.cost_usd == sum(row.cost_usd or 0 for row in desk.ledger)


def test_cost_is_unknown_where_a_price_is():
    desk = Desk()
    desk.anthropic(message(model="claude-sonnet-5"))
    assert desk.ledger.cost_usd is None


def test_a_long_prompt_costs_its_factor():
    desk = Desk(wire.Script(last=wire.turn()))
    desk.anthropic(message(user("x" * 400_004), model="claude-haiku-5-5"))
    assert desk.ledger.cost_usd == Decimal("0.10") * 5 * 100_001 / 10**6
