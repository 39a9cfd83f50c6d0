"""The caches of vendors, held against the examples and rules of their own pages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from shoal.providers import ModelProfile, shipped_profile
from shoal.providers._caches import LIFETIMES
from shoal.providers.cache_model import (
    AutomaticCache,
    Cache,
    CacheUse,
    MarkerCache,
    PointCache,
    Row,
    SlotCache,
    cache_for,
    common_tokens,
    row_of,
    stepped,
    units,
)

MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
BIG = "x" * 4000  # 1,000 tokens


def text(said: str = "hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


def numbered(count: int, *marked: int, changed: int = 0) -> dict[str, Any]:
    """A request of *count* blocks of 200 tokens; those of the given numbers, from 1 on, are marked."""
    made = [text(f"{-n if n == changed else n:05}"[:4] * 200) for n in range(1, count + 1)]
    for number in marked:
        made[number - 1]["cache_control"] = MARK
    return {"model": "m", "messages": [{"role": "user", "content": made}]}


def used(
    cache: Cache, body: dict[str, Any], at_s: float = 0.0, *, first_byte_s: float | None = None, api: Any = "messages"
) -> CacheUse:
    row = row_of(api, json.dumps(body).encode())
    return cache.use(row, start_s=at_s, first_byte_s=at_s if first_byte_s is None else first_byte_s)


# --- Anthropic: the page's example of a conversation that grows


def test_the_first_turn_writes_all_ten_blocks():
    assert used(MarkerCache(), numbered(10, 10)) == CacheUse(0, 2000, 0)


def test_a_turn_of_fifteen_blocks_reads_ten_and_writes_five():
    cache = MarkerCache()
    used(cache, numbered(10, 10))
    assert used(cache, numbered(15, 15)) == CacheUse(2000, 1000, 0)


def test_a_turn_of_thirty_five_blocks_looks_back_twenty_and_finds_nothing():
    cache = MarkerCache()
    used(cache, numbered(15, 15))
    assert used(cache, numbered(35, 35)) == CacheUse(0, 7000, 0)


def test_a_second_marker_on_block_fifteen_finds_it():
    cache = MarkerCache()
    used(cache, numbered(15, 15))
    assert used(cache, numbered(35, 15, 35)) == CacheUse(3000, 4000, 0)


@pytest.mark.parametrize(("count", "read"), [(34, 3000), (35, 0)])
def test_the_look_back_counts_the_marked_block_itself(count: int, read: int):
    cache = MarkerCache()
    used(cache, numbered(15, 15))
    assert used(cache, numbered(count, count)).read == read


def test_a_block_that_is_no_place_of_its_own_is_not_counted():
    cache = MarkerCache()
    row = row_of("messages", numbered(35, 35))
    hidden = tuple([msgspec.structs.replace(piece, counts=at != 20) for at, piece in enumerate(row.pieces)])
    used(cache, numbered(15, 15))
    assert cache.use(Row(row.model, hidden, row.tiers), start_s=0.0, first_byte_s=0.0).read == 3000


def test_a_changed_block_loses_what_stands_behind_it():
    cache = MarkerCache()
    used(cache, numbered(10, 6, 10))
    assert used(cache, numbered(10, 6, 10, changed=8)) == CacheUse(1200, 800, 0)


# --- Anthropic: writing, lifetimes, prices


def test_only_marked_places_are_written():
    cache = MarkerCache()
    used(cache, numbered(10, 10))
    assert used(cache, numbered(8, 8)) == CacheUse(0, 1600, 0)


@pytest.mark.parametrize(("tokens", "written"), [(1023, 0), (1024, 1024)])
def test_a_prefix_under_the_minimum_is_not_cached(tokens: int, written: int):
    body = {"model": "m", "messages": [{"role": "user", "content": [text("x" * 4 * tokens, cache_control=MARK)]}]}
    assert used(MarkerCache(min_tokens=1024), body) == CacheUse(0, written, tokens - written)


def test_an_entry_is_readable_from_the_first_byte_of_its_request():
    cache = MarkerCache()
    assert used(cache, numbered(10, 10), 0.0, first_byte_s=2.0).read == 0
    assert used(cache, numbered(10, 10), 1.9, first_byte_s=4.0).read == 0
    assert used(cache, numbered(10, 10), 2.0).read == 2000


@pytest.mark.parametrize(("marker", "life_s"), [(MARK, 300.0), (HOUR, 3600.0)])
def test_a_lifetime_runs_from_the_start_of_the_request(marker: dict[str, str], life_s: float):
    body = {"model": "m", "messages": [{"role": "user", "content": [text(BIG * 2, cache_control=marker)]}]}
    for at_s, read in ((life_s - 0.1, 2000), (life_s, 0)):
        cache = MarkerCache()
        used(cache, body, 0.0, first_byte_s=50.0)
        assert used(cache, body, at_s).read == read


def test_a_read_lets_entries_on_its_path_live_on():
    cache = MarkerCache()
    for at_s in (0.0, 200.0):
        used(cache, numbered(10, 6, 10), at_s)
    assert used(cache, numbered(6, 6), 400.0).read == 1200


def test_two_lifetimes_are_billed_up_to_the_last_long_marker_and_behind_it():
    body = {
        "model": "m",
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "system": [text(BIG, cache_control=HOUR), text(BIG, cache_control=HOUR)],
        "messages": [{"role": "user", "content": [text(BIG, cache_control=MARK), text(BIG)]}],
    }
    tool_tokens = row_of("messages", body).upto()[0]
    assert used(MarkerCache(), body) == CacheUse(0, 1000, 1000, 2000 + tool_tokens)
    assert used(MarkerCache(), body).usage.cache_write_long == 2000 + tool_tokens


def test_a_sibling_does_not_move_the_moment_from_which_an_entry_is_read():
    cache = MarkerCache()
    used(cache, numbered(10, 10), 0.0, first_byte_s=1.0)
    used(cache, numbered(10, 10), 0.0, first_byte_s=9.0)
    assert used(cache, numbered(10, 10), 2.0).read == 2000


def test_the_marker_of_the_whole_request_stands_on_the_last_block_that_takes_one():
    thought = {"type": "thinking", "thinking": BIG, "signature": "s"}
    body = {
        "model": "m",
        "cache_control": MARK,
        "messages": [{"role": "user", "content": BIG * 2}, {"role": "assistant", "content": [thought]}],
    }
    assert used(MarkerCache(), body) == CacheUse(0, 2000, 1000)
    marked = numbered(10, 10) | {"cache_control": HOUR}
    assert used(MarkerCache(), marked).write == 2000


def test_a_marker_inside_a_result_marks_the_whole_result():
    inner = {"type": "tool_result", "tool_use_id": "t", "content": [text(BIG * 2, cache_control=MARK), text("x")]}
    body = {"model": "m", "messages": [{"role": "user", "content": [inner]}]}
    assert used(MarkerCache(), body).write == 2001


# --- Anthropic: the page's table of what loses what

TIERED = {
    "model": "m",
    "tools": [{"name": "f", "description": "d" * 4800, "input_schema": {}, "cache_control": MARK}],
    "system": [text(BIG, cache_control=MARK)],
    "messages": [{"role": "user", "content": [text(BIG, cache_control=MARK)]}],
}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, 3),
        ({"model": "n"}, 0),
        ({"tools": [{"name": "g", "input_schema": {}}]}, 0),
        ({"system": [text("y" * 4000, cache_control=MARK)]}, 1),
        ({"speed": "fast"}, 1),
        ({"tool_choice": {"type": "none"}}, 2),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, 2),
        ({"tool_choice": {"type": "auto"}}, 3),
        ({"thinking": {"type": "adaptive"}}, 2),
        ({"output_config": {"effort": "low"}}, 2),
        ({"messages": [{"role": "user", "content": [text("y" * 4000, cache_control=MARK)]}]}, 2),
        ({"messages": [{"role": "assistant", "content": [text(BIG, cache_control=MARK)]}]}, 2),
        ({"max_tokens": 7, "temperature": 0.5}, 3),
    ],
)
def test_a_change_loses_its_tier_and_those_behind_it(change: dict[str, Any], kept: int):
    cache = MarkerCache()
    used(cache, TIERED)
    upto = [0, *row_of("messages", TIERED).upto()]
    assert used(cache, TIERED | change).read == upto[kept]


def test_an_image_loses_the_messages_alone():
    cache = MarkerCache()
    used(cache, TIERED)
    shown = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    content = [*TIERED["messages"][0]["content"], shown]
    kept = row_of("messages", TIERED).upto()[1]
    assert used(cache, TIERED | {"messages": [{"role": "user", "content": content}]}).read == kept


# --- OpenAI up to GPT-5.5


@pytest.mark.parametrize(
    ("common", "read"), [(0, 0), (1023, 0), (1024, 1024), (1151, 1024), (1152, 1152), (5000, 4992)]
)
def test_the_automatic_cache_reads_in_steps_of_128_from_1024_on(common: int, read: int):
    assert stepped(common, 10_000) == read


def chat(*texts: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": said} for said in texts], **more}


def test_the_automatic_cache_writes_for_nothing_and_reads_the_longest_prefix():
    cache = AutomaticCache(stepped, lifetime_s=600.0)
    assert used(cache, chat(BIG + "y" * 4000), api="chat") == CacheUse(0, 0, 2000)
    assert used(cache, chat(BIG + "y" * 1000 + "z" * 3000), 1.0, api="chat") == CacheUse(1152, 0, 848)


def test_a_cache_key_keeps_requests_apart():
    cache = AutomaticCache(stepped, lifetime_s=600.0)
    used(cache, chat(BIG * 2, prompt_cache_key="a"), api="chat")
    assert used(cache, chat(BIG * 2, prompt_cache_key="b"), 1.0, api="chat").read == 0


def test_the_automatic_cache_forgets_after_its_lifetime_and_the_oldest_first():
    cache = AutomaticCache(stepped, lifetime_s=600.0, most=1)
    used(cache, chat(BIG * 2), api="chat")
    assert used(cache, chat(BIG * 2), 600.0, api="chat").read == 0
    used(cache, chat("other"), 601.0, api="chat")
    assert used(cache, chat(BIG * 2), 602.0, api="chat").read == 0
    assert repr(cache) == "<AutomaticCache of 1 requests>"


# --- OpenAI from GPT-5.6 on

POINT = {"prompt_cache_breakpoint": {"mode": "explicit"}}


def pointed(*texts: tuple[str, bool], **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": [text(said, **(POINT if at else {}))]} for said, at in texts]
    return {"model": "m", "messages": messages, **more}


def test_the_end_is_written_by_itself_and_found_at_the_end_of_its_message():
    cache = PointCache()
    assert used(cache, pointed((BIG, False), (BIG, False)), api="chat") == CacheUse(0, 2000, 0)
    grown = pointed((BIG, False), (BIG, False), ("more", False))
    assert used(cache, grown, 1.0, api="chat") == CacheUse(2000, 1, 0)


def test_explicit_mode_writes_at_markers_alone():
    explicit = {"prompt_cache_options": {"mode": "explicit"}}
    assert used(PointCache(), pointed((BIG * 2, False), **explicit), api="chat") == CacheUse(0, 0, 2000)
    body = pointed((BIG * 2, True), (BIG, False), **explicit)
    assert used(PointCache(), body, api="chat") == CacheUse(0, 2000, 1000)


@pytest.mark.parametrize(("explicit", "oldest"), [(True, 2), (False, 3)])
def test_only_the_latest_breakpoints_are_written(explicit: bool, oldest: int):
    options = {"prompt_cache_options": {"mode": "explicit"}} if explicit else {}
    texts = [(f"{n:04}" * 1000, True) for n in range(6)]
    for kept in range(6):
        cache = PointCache()
        used(cache, pointed(*texts, ("end", False), **options), api="chat")
        start = pointed(*texts[: kept + 1], ("else", False), **options)
        assert (used(cache, start, 1.0, api="chat").read > 0) is (kept >= oldest)


def test_the_look_back_ends_at_eighty_breakpoints():
    for more, read in ((79, 1000), (80, 0)):
        cache = PointCache(min_tokens=1000)
        used(cache, pointed((BIG, False)), api="chat")
        assert used(cache, pointed((BIG, False), *[("x", False)] * more), 1.0, api="chat").read == read
    assert repr(cache) == "<PointCache of 2 entries>"


def test_a_longer_lifetime_is_billed_apart():
    body = pointed((BIG * 2, False), prompt_cache_options={"ttl": "12h"})
    assert used(PointCache(), body, api="chat") == CacheUse(0, 0, 0, 2000)
    long = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    content = [{"role": "user", "content": [text(BIG * 2, **long)]}, {"role": "user", "content": BIG}]
    assert used(PointCache(), {"model": "m", "messages": content}, api="chat") == CacheUse(0, 1000, 0, 2000)
    assert LIFETIMES["12h"] == 12 * 3600


def test_another_effort_loses_everything():
    cache = PointCache()
    used(cache, pointed((BIG * 2, False)), api="chat")
    assert used(cache, pointed((BIG * 2, False), reasoning_effort="low"), 1.0, api="chat").read == 0


# --- Gemini, and servers that cache in units


def test_the_implicit_cache_reads_from_its_minimum_on():
    body = {"contents": [{"role": "user", "parts": [{"text": BIG * 5}]}]}
    cache = cache_for(replace(ModelProfile("g"), cache="prefix", min_cacheable_tokens=4096), "google")
    used(cache, body, api="gemini")
    assert used(cache, body, 1.0, api="gemini") == CacheUse(5000, 0, 0)
    short = {"contents": [{"role": "user", "parts": [{"text": BIG * 4 + "y" * 4000}]}]}
    assert used(cache, short, 2.0, api="gemini").read == 0


def test_vllm_reads_full_blocks_of_sixteen_and_never_the_last_token():
    read = units(16, leaves_last=True)
    assert [read(n, 160) for n in (15, 16, 159, 160)] == [0, 16, 144, 144]
    assert read(0, 0) == 0


def test_vllm_reads_what_a_sibling_is_still_computing():
    cache = cache_for(ModelProfile("m"), "vllm")
    used(cache, chat(BIG), 0.0, first_byte_s=9.0, api="chat")
    assert used(cache, chat(BIG), 1.0, api="chat").read == 992


def test_deepseek_reads_units_of_sixty_four():
    cache = cache_for(replace(ModelProfile("m"), cache="prefix"), "deepseek")
    used(cache, chat(BIG), api="chat")
    assert used(cache, chat(BIG), 1.0, api="chat").read == 960


def test_llama_cpp_reads_all_but_the_last_token_of_its_slot():
    cache = cache_for(ModelProfile("m"), "llama.cpp")
    used(cache, chat(BIG), api="chat")
    assert used(cache, chat(BIG), 1.0, api="chat") == CacheUse(999, 0, 1)
    assert used(cache, chat("other " * 1000), 2.0, api="chat").read == 0
    assert repr(cache) == "<SlotCache of 1 slots>"


def test_llama_cpp_reads_what_it_said_itself():
    cache = SlotCache()
    first = row_of("chat", chat(BIG))
    reply = row_of("chat", {"model": "m", "messages": [{"role": "assistant", "content": BIG}]})
    cache.use(first, start_s=0.0, first_byte_s=0.0, said=reply.pieces)
    grown = chat(BIG)
    grown["messages"] += [{"role": "assistant", "content": BIG}, {"role": "user", "content": "x"}]
    assert used(cache, grown, 1.0, api="chat").read == 2000


def test_two_slots_hold_two_conversations_and_a_third_evicts_the_older():
    cache = SlotCache(slots=2, memory=False)
    for at_s, said in enumerate(("a", "b", "a", "b", "c", "a")):
        use = used(cache, chat(said * 4000), at_s, api="chat")
        assert (use.read > 0) is (at_s in (2, 3))


def test_what_a_slot_gave_up_comes_back_from_memory():
    cache = SlotCache()
    reads = [used(cache, chat(said * 4000), n, api="chat").read for n, said in enumerate("abab")]
    assert reads == [0, 0, 999, 999]


def test_a_slot_that_would_lose_most_of_what_it_holds_gives_it_up_first():
    cache = SlotCache()
    short, long = chat("a" * 400 + "c" * 40), chat("a" * 400 + "b" * 4000)
    assert [used(cache, body, n, api="chat").read for n, body in enumerate([long, short, long])] == [0, 100, 1099]


def test_memory_holds_each_beginning_once():
    cache = SlotCache()
    for n in range(1, 9):
        used(cache, chat("a" * 400 * n), n, api="chat")
        used(cache, chat("b" * 4000), n, api="chat")
    assert cache._memory is not None
    assert len(cache._memory) == 1


def test_little_of_what_lies_in_memory_is_not_worth_bringing_back():
    cache = SlotCache()
    for n, said in enumerate(("a" * 400 + "b" * 4000, "c" * 4000)):
        used(cache, chat(said), n, api="chat")
    assert used(cache, chat("a" * 400 + "d" * 400), 3.0, api="chat").read == 0


def test_what_memory_holds_already_is_not_stored_again():
    cache = SlotCache(slots=2)
    for n, said in enumerate(("a" * 4000, "b" * 4000, "c" * 4000, "d" * 4000, "a" * 4000 + "e", "f" * 4000)):
        used(cache, chat(said), n, api="chat")
    for n, said in enumerate(("a" * 2000, "g" * 4000, "h" * 4000), 6):
        used(cache, chat(said), n, api="chat")
    assert cache._memory is not None
    beginnings = [kept.pieces[-1].data[:1] for kept in cache._memory]
    assert len(beginnings) == len(set(beginnings))


def test_memory_is_bounded():
    cache = SlotCache()
    for n in range(SlotCache.MOST + 9):
        used(cache, chat(f"{n:04d}" * 100), n, api="chat")
    assert cache._memory is not None
    assert len(cache._memory) == SlotCache.MOST


# --- which cache is whose


@pytest.mark.parametrize(
    ("model", "server", "kind"),
    [
        ("claude-opus-5-5", "anthropic", MarkerCache),
        ("claude-opus-5-5", "openrouter", MarkerCache),
        ("gpt-6.1-sol", "openai", PointCache),
        ("gpt-5.5", "openai", AutomaticCache),
        ("unknown", "generic", AutomaticCache),
    ],
)
def test_a_model_has_its_vendors_cache(model: str, server: str, kind: type):
    made = cache_for(shipped_profile(model), server)
    assert type(made) is kind


def test_a_model_that_caches_nothing_reads_nothing():
    cache = cache_for(ModelProfile("m"), "generic")
    used(cache, chat(BIG * 2), api="chat")
    assert used(cache, chat(BIG * 2), 1.0, api="chat") == CacheUse(0, 0, 2000)


# --- reading bodies


def test_everything_a_body_of_messages_holds_is_a_block():
    body = {
        "model": "m",
        "tools": [{"name": "f", "input_schema": {}}],
        "system": "be kind",
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hmm", "signature": "s"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t", "content": "four"},
                    {"type": "document", "source": {}},
                    {"type": "image", "source": {}},
                    {"type": "future"},
                ],
            },
        ],
    }
    row = row_of("messages", body)
    assert [piece.tokens for piece in row.pieces] == [8, 2, 2, 1, 2, 1, 2000, 1600, 5]
    assert row.tokens == row.upto()[-1]
    assert len({*row.chain()}) == len(row.pieces)


def test_everything_a_response_is_asked_with_is_a_block():
    body = {
        "model": "m",
        "instructions": "be kind",
        "tools": [{"type": "function", "name": "f"}],
        "text": {"format": {"type": "json_schema", "name": "n"}},
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "four", **POINT}]},
            {"role": "user", "content": "hello"},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "four"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", **POINT}]},
            {"type": "compaction", "x": 1},
        ],
    }
    row = row_of("responses", body)
    assert [piece.section for piece in row.pieces[:3]] == ["tools", "format", "instructions"]
    assert [piece.tokens for piece in row.pieces[3:]] == [1, 2, 1, 2, 1, 1600, 7]
    assert [piece.marker for piece in row.pieces if piece.marker] == ["30m"]
    assert sum(piece.ends for piece in row.pieces) == 7
    assert row_of("responses", {"model": "m", "input": "four"}).tokens == 1


def test_everything_a_chat_is_asked_with_is_a_block():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = {
        "model": "m",
        "response_format": {"type": "json_schema", "json_schema": {}},
        "messages": [
            {"role": "user", "content": [text("four"), {"type": "image_url", "image_url": {}}, {"type": "file"}]},
            {"role": "assistant", "content": None, "reasoning_content": "hmm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "four"},
        ],
    }
    row = row_of("chat", body)
    assert [piece.tokens for piece in row.pieces[1:]] == [1, 1600, 2000, 1, 2, 1]
    assert [piece.ends for piece in row.pieces] == [False, False, False, True, False, True, True]


def test_everything_gemini_is_asked_with_is_a_block():
    body = {
        "systemInstruction": {"parts": [{"text": "four"}]},
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "generationConfig": {"responseJsonSchema": {"type": "object"}},
        "contents": [
            {"parts": [{"text": "four"}, {"inlineData": {"mimeType": "image/png", "data": ""}}, {}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]},
            {"role": "user", "parts": [{"fileData": {"fileUri": "u"}}]},
        ],
    }
    row = row_of("gemini", body, model="g")
    assert row.model == "g"
    assert [piece.tokens for piece in row.pieces] == [1, 3, 5, 1, 1600, 1, 2, 5, 4]


def test_requests_to_two_models_have_nothing_in_common():
    assert common_tokens(row_of("chat", chat(BIG)), row_of("chat", chat(BIG) | {"model": "n"})) == 0
