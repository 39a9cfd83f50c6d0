"""The caches of OpenAI and of open servers, by the numbers that their vendors give."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from test_chat_rules import answer, calling, chat, function, made, say
from wirekit import OPENAI, Desk

from shoal.testing import wire
from shoal.testing.wire._openai._caches import BreakpointCache, Machines, PrefixCache, SlotCache, stepped, units
from shoal.testing.wire._openai._front import Front
from shoal.testing.wire._openai._local import LocalServer

OLD, NEW = "gpt-5.4", "gpt-6.1-sol"
BIG = "x" * 8000  # 2,000 tokens
K = 4096  # bytes in 1,024 tokens


def row(desk: Desk, body: dict[str, Any], headers: dict[str, str] = OPENAI, **more: Any) -> wire.Row:
    got = desk.send("/v1/chat/completions", body, headers, **more)
    assert got.exchange.row is not None, got.reply.body
    return got.exchange.row


def part(text: str, ttl: str | None = None, *, marked: bool = True) -> dict[str, Any]:
    point = {"prompt_cache_breakpoint": {"mode": "explicit", **({"ttl": ttl} if ttl else {})}} if marked else {}
    return {"type": "text", "text": text, **point}


# --- up to GPT-5.5: by itself, in steps, free of charge


@pytest.mark.parametrize(
    ("tokens", "read"), [(0, 0), (1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (3000, 2944)]
)
def test_a_prefix_is_read_in_steps_of_128_from_1024_on(tokens: int, read: int):
    assert stepped(tokens) == read


def test_the_longest_common_prefix_is_read_to_the_step():
    desk = Desk()
    row(desk, chat(say(BIG), model=OLD))
    again = row(desk, chat(say(BIG + "y" * 800), model=OLD))
    assert (again.read, again.writes, again.uncached) == (1920, {}, 280)


def test_a_change_in_the_middle_ends_the_prefix_there():
    desk = Desk()
    row(desk, chat(say("a" * K), say("b" * K), model=OLD))
    assert row(desk, chat(say("a" * K), say("b" * 2048 + "c" * 2048), model=OLD)).read == 1024 + 512


@pytest.mark.parametrize(
    "change",
    [
        {"tools": [function("g")]}, {"model": "gpt-6.1-sol"}, {"prompt_cache_key": "other"},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
    ],
)  # fmt: skip
def test_what_stands_in_front_is_part_of_the_prefix(change: dict[str, Any]):
    desk = Desk()
    body = chat(say(BIG), model=OLD, tools=[function()])
    row(desk, body)
    assert row(desk, {**body, **change}).read == 0


def test_who_says_it_is_part_of_the_prefix():
    desk = Desk()
    row(desk, chat(say(BIG), model=OLD))
    assert row(desk, chat(say(BIG, "developer"), model=OLD)).read == 0


@pytest.mark.parametrize(("after_s", "read"), [(599.0, 1920), (600.0, 0)])
def test_a_prefix_is_kept_for_ten_minutes_of_idling(after_s: float, read: int):
    desk = Desk()
    row(desk, chat(say(BIG), model=OLD))
    desk.clock.advance(after_s)
    assert row(desk, chat(say(BIG), model=OLD)).read == read


def test_siblings_sent_at_once_all_miss():
    desk = Desk()
    first = row(desk, chat(say(BIG), model=OLD), ready_s=2.0)
    desk.clock.advance(1.0)
    second = row(desk, chat(say(BIG), model=OLD), ready_s=3.0)
    desk.clock.advance(1.0)
    assert (first.read, second.read, row(desk, chat(say(BIG), model=OLD)).read) == (0, 0, 1920)


def test_beyond_fifteen_a_minute_another_machine_starts_cold():
    desk = Desk()
    reads = [row(desk, chat(say(BIG), model=OLD)).read for _ in range(17)]
    desk.clock.advance(61.0)
    assert reads == [0] + [1920] * 14 + [0, 1920]
    assert row(desk, chat(say(BIG), model=OLD)).read == 1920


def test_machines_are_counted_by_the_start_of_the_prompt():
    desk = Desk()
    for number in range(15):
        row(desk, chat(say(str(number) * 100 + BIG), model=OLD))
    assert row(desk, chat(say("0" * 100 + BIG), model=OLD)).read > 0


def test_there_may_be_one_machine_for_all():
    desk = Desk(settings=wire.Settings(cache=wire.CacheSwitches(openai_machine_rpm=None)))
    assert [row(desk, chat(say(BIG), model=OLD)).read for _ in range(40)][-1] == 1920


# --- from GPT-5.6 on: at breakpoints, to the token, for money


def test_the_end_of_the_prompt_is_written_and_read_to_the_token():
    desk = Desk()
    body = chat(say(BIG), model=NEW)
    first, again = row(desk, body), row(desk, chat(say(BIG), say("so", "assistant"), say("y" * 41), model=NEW))
    assert (first.read, first.writes, first.uncached) == (0, {"30m": 2000, "12h": 0}, 0)
    assert (again.read, again.writes, again.uncached) == (2000, {"30m": 12, "12h": 0}, 0)


def test_usage_counts_writes_inside_of_the_prompt():
    got = Desk().send("/v1/chat/completions", chat(say(BIG), model=NEW), OPENAI)
    assert got.json["usage"]["prompt_tokens"] == 2000
    assert got.json["usage"]["prompt_tokens_details"] == {
        "cached_tokens": 0,
        "cache_write_tokens": 2000,
        "audio_tokens": 0,
    }


def test_writes_cost_their_price():
    desk = Desk(wire.Script(last=wire.turn()))
    assert row(desk, chat(say(BIG), model=NEW)).cost_usd == Decimal("2.5") * 2000 / 10**6


def test_explicit_mode_writes_nothing_of_its_own():
    options = {"mode": "explicit"}
    desk = Desk()
    plain = row(desk, chat(say(BIG), model=NEW, prompt_cache_options=options))
    marked = row(desk, chat(say([part(BIG), part("rest", marked=False)]), model=NEW, prompt_cache_options=options))
    assert (plain.writes, marked.writes) == ({"30m": 0, "12h": 0}, {"30m": 2000, "12h": 0})


def test_a_prefix_that_differs_behind_a_breakpoint_is_read_up_to_it():
    desk = Desk()
    row(desk, chat(say([part(BIG), part("a" * K, marked=False)]), model=NEW))
    assert row(desk, chat(say([part(BIG), part("b" * K, marked=False)]), model=NEW)).read == 2000


@pytest.mark.parametrize(("mode", "oldest_written"), [("implicit", 2), ("explicit", 1)])
def test_only_the_latest_breakpoints_are_written(mode: str, oldest_written: int):
    options = {"mode": mode}
    parts = [part(str(number) * K) for number in range(5)]
    reads: list[int] = []
    for count in range(1, 6):
        desk = Desk()
        row(desk, chat(say(parts), model=NEW, prompt_cache_options=options))
        again = chat(say([*parts[:count], part("z")]), model=NEW, prompt_cache_options=options)
        reads.append(row(desk, again).read // 1024)
    assert reads == [count if count > oldest_written else 0 for count in range(1, 6)]


def test_lifetimes_are_paid_apart():
    first = row(Desk(), chat(say([part(BIG, "12h"), part("y" * 4000)]), model=NEW))
    assert first.writes == {"30m": 1000, "12h": 2000}


@pytest.mark.parametrize(("ttl", "life_s"), [(None, 1800.0), ("30m", 1800.0)])
@pytest.mark.parametrize(("early_s", "read"), [(1.0, 2000), (0.0, 0)])
def test_an_entry_lives_its_time(ttl: str | None, life_s: float, early_s: float, read: int):
    options = {"prompt_cache_options": {"ttl": ttl}} if ttl else {}
    desk = Desk()
    row(desk, chat(say(BIG), model=NEW, **options))
    desk.clock.advance(life_s - early_s)
    assert row(desk, chat(say(BIG), model=NEW, **options)).read == read


def test_reading_lets_an_entry_live_on():
    desk = Desk()
    reads: list[int] = []
    for _ in range(4):
        reads.append(row(desk, chat(say(BIG), model=NEW)).read)
        desk.clock.advance(1700.0)
    assert reads == [0, 2000, 2000, 2000]


def test_a_breakpoint_under_the_minimum_writes_nothing():
    assert row(Desk(), chat(say("x" * (K - 4)), model=NEW)).writes == {"30m": 0, "12h": 0}


def test_the_look_back_ends_at_eighty_breakpoints():
    desk = Desk()
    row(desk, chat(say(BIG), model=NEW))
    turns = [say(str(number)) for number in range(80)]
    reads = [row(desk, chat(say(BIG), *turns[:count], model=NEW)).read > 0 for count in (80, 79)]
    assert reads == [False, True]


@pytest.mark.parametrize(
    "change",
    [
        {"reasoning_effort": "high"}, {"verbosity": "low"}, {"service_tier": "flex"}, {"prompt_cache_key": "k"},
        {"tools": [function()]},
    ],
)  # fmt: skip
def test_changes_that_miss(change: dict[str, Any]):
    desk = Desk()
    row(desk, chat(say(BIG), model=NEW))
    assert row(desk, chat(say(BIG), model=NEW, **change)).read == 0


def test_an_entry_may_be_readable_at_once_by_choice():
    desk = Desk(settings=wire.Settings(cache=wire.CacheSwitches(readable_at_once=True)))
    for model in (OLD, NEW):
        row(desk, chat(say(BIG), model=model), ready_s=60.0)
        assert row(desk, chat(say(BIG), model=model)).read >= 1920


def test_a_sibling_does_not_move_the_moment_from_which_an_entry_is_read():
    desk = Desk()
    row(desk, chat(say(BIG), model=NEW), ready_s=1.0)
    row(desk, chat(say(BIG), model=NEW), ready_s=9.0)
    desk.clock.advance(2.0)
    assert row(desk, chat(say(BIG), model=NEW)).read == 2000


def test_calls_and_results_are_blocks_of_their_own():
    body = chat(
        say("hi"), calling(made(arguments='{"x":1}'), content="so"), answer(), say(None, "assistant", refusal="no")
    )
    assert [(block.path, block.tokens) for block in row(Desk(), body).blocks] == [
        ("messages[0].content", 1),
        ("messages[1].content", 1),
        ("messages[1].tool_calls[0]", 3),
        ("messages[2].content", 1),
        ("messages[3].refusal", 1),
    ]


# --- the oracle


@pytest.mark.parametrize(("model", "best"), [(OLD, 1920), (NEW, 2000)])
def test_the_oracle_knows_what_the_vendor_could_read(model: str, best: int):
    desk = Desk()
    row(desk, chat(say(BIG), say("a"), model=model))
    desk.clock.advance(3600.0)
    again = row(desk, chat(say(BIG), say("b"), model=model))
    assert (again.read, again.oracle_read) == (0, best)


def test_the_oracle_reads_nothing_under_the_minimum():
    desk = Desk()
    for model in (OLD, NEW):
        row(desk, chat(say("x" * 400), model=model))
        assert row(desk, chat(say("x" * 400), model=model)).oracle_read == 0


# --- open servers


def server(name: Any, **switches: Any) -> Desk:
    return Desk(settings=wire.Settings(server=name, cache=wire.CacheSwitches(**switches)))


@pytest.mark.parametrize(
    ("size", "leaves_last", "common", "total", "read"),
    [(64, False, 200, 300, 192), (16, True, 200, 200, 192), (16, True, 160, 160, 144), (16, True, 0, 0, 0)],
)
def test_units_are_read_whole(size: int, leaves_last: bool, common: int, total: int, read: int):
    assert units(size, leaves_last=leaves_last)(common, total) == read


def test_deepseek_reads_units_of_64_from_the_start():
    desk = server("deepseek")
    row(desk, chat(say("x" * 1000), model="m"))
    again = row(desk, chat(say("x" * 1000 + "y"), model="m"))
    assert (again.read, again.oracle_read) == (192, 192)


def test_vllm_reads_blocks_of_16_at_once_and_never_all():
    desk = server("vllm")
    row(desk, chat(say("x" * 640), model="m"), ready_s=99.0)
    assert row(desk, chat(say("x" * 640), model="m")).read == 144


def test_a_server_without_a_cache_reads_nothing():
    desk = server("ollama")
    for _ in range(2):
        last = row(desk, chat(say("x" * 640), model="m"))
    assert (last.read, last.oracle_read) == (0, 0)


def test_llama_reads_all_but_the_last_token():
    desk = server("llama.cpp")
    row(desk, chat(say("x" * 1532), model="m"))
    again = row(desk, chat(say("x" * 1532), model="m"))
    assert (again.read, again.oracle_read) == (382, 382)


def test_llama_remembers_what_it_said():
    desk = server("llama.cpp")
    got = desk.send("/v1/chat/completions", chat(say("x" * 400), model="m"))
    reply = got.json["choices"][0]["message"]
    assert row(desk, chat(say("x" * 400), reply, say("more"), model="m")).read == 101


def test_a_change_inside_of_a_prompt_is_read_up_to_it():
    desk = server("llama.cpp")
    row(desk, chat(say("x" * 400), say("y" * 400), model="m"))
    assert row(desk, chat(say("x" * 400), say("y" * 40 + "z" * 360), model="m")).read == 110


def test_llama_alternates_between_as_many_conversations_as_it_has_slots():
    desk = server("llama.cpp", slots=2, slot_memory=0)
    words = ["ant " * 100, "bee " * 100, "cat " * 100]
    reads = [row(desk, chat(say(words[number]), model="m")).read for number in (0, 1, 0, 1, 2, 0)]
    assert reads == [0, 0, 99, 99, 0, 0]


def test_llama_brings_back_what_a_slot_gave_up():
    desk = server("llama.cpp")
    words = ["ant " * 100, "bee " * 100]
    reads = [row(desk, chat(say(words[number]), model="m")).read for number in (0, 1, 0, 1)]
    assert reads == [0, 0, 99, 99]


def test_llama_forgets_what_it_stored_first():
    desk = server("llama.cpp", slot_memory=2)
    texts = ["ant " * 100, "bee " * 100, "ant " * 200, "bee " * 100, "cow " * 100, "dog " * 100, "ant " * 200]
    reads = [row(desk, chat(say(text), model="m")).read for text in texts]
    assert reads == [0, 0, 100, 99, 0, 0, 0]


def test_llama_stores_a_beginning_once():
    desk = server("llama.cpp", slot_memory=2)
    for text in ("ant " * 100, "bee " * 100, "ant " * 100, "bee " * 100, "ant " * 100):
        row(desk, chat(say(text), model="m"))
    assert row(desk, chat(say("bee " * 100), model="m")).read == 99


def test_llama_leaves_in_memory_what_little_of_is_used():
    desk = server("llama.cpp")
    for text in ("x" * 400 + "y" * 4000, "z" * 4000):
        row(desk, chat(say(text), model="m"))
    assert row(desk, chat(say("x" * 400 + "w" * 400), model="m")).read == 0


def test_a_slot_takes_an_empty_prompt():
    desk = server("llama.cpp")
    assert row(desk, {"messages": []}).read == 0


def test_a_gateway_caches_at_the_vendors_markers():
    desk = server("openrouter")
    marked = [{"type": "text", "text": BIG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    first = row(desk, chat(say(marked), model="anthropic/m"))
    again = row(desk, chat(say(marked), say("y"), model="anthropic/m"))
    assert (first.writes, again.read, again.oracle_read) == ({"5m": 0, "1h": 2000}, 2000, 2000)


def test_a_gateways_shorter_markers_are_the_default():
    parts = [{"type": "text", "text": BIG, "cache_control": {"type": "ephemeral"}}]
    assert row(server("openrouter"), chat(say(parts), model="anthropic/m")).writes == {"5m": 2000, "1h": 0}


def test_caches_show_what_they_are():
    desk = server("openai")
    front = Front(desk.world)
    shown: list[object] = [
        BreakpointCache(),
        Machines(1),
        SlotCache(1),
        PrefixCache(1.0, min),
        front,
        LocalServer(front),
    ]
    shown += desk.engine.dialects
    assert all(repr(thing).startswith("<") for thing in shown)
