"""The caches that we compute with, held against those of the emulator, which shares nothing with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers._cache_rows import Api
from shoal.providers.cache_model import AutomaticCache, Cache, CacheUse, MarkerCache, PointCache, row_of, stepped, units
from shoal.testing import wire
from shoal.testing.wire._engine import World
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._vendors import engine

LATENCY_S = 2.0
GAPS = st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.0, 200.0, 299.0, 301.0, 1000.0, 1799.0, 1801.0, 3601.0])
SAID = [*[letter * 800 for letter in "abcd"], "abab" * 1200, "other" * 160]  # 200 tokens each, and one of 1,200
HEADERS = {"x-api-key": "k", "authorization": "Bearer k", "anthropic-version": "2023-06-01", "x-goog-api-key": "k"}

Sent = tuple[float, dict[str, Any]]


def emulated(path: str, sent: list[Sent], **settings: Any) -> list[CacheUse]:
    """What the emulator bills for requests that come after gaps, each answered from two seconds later on."""
    clock = wire.ManualClock()
    made = wire.Settings(cache=wire.CacheSwitches(openai_machine_rpm=None), **settings)
    world = World(made, clock)
    server = engine(world, wire.Script(last="ok"))
    started: list[tuple[float, Callable[[float], None]]] = []
    for gap_s, body in sent:
        clock.advance(gap_s)
        while started and started[0][0] <= clock():
            ready_s, start = started.pop(0)
            start(ready_s)
        raw = json.dumps(body).encode()
        exchange = world.journal.open(Incoming("POST", path, {}, HEADERS, raw), clock())
        answer = server.serve(exchange)
        assert not exchange.refused, exchange.violations
        started.append((clock() + LATENCY_S, answer.started))
    return [
        CacheUse(
            row.read,
            sum(tokens for ttl, tokens in row.writes.items() if ttl in ("5m", "30m")),
            row.uncached,
            sum(tokens for ttl, tokens in row.writes.items() if ttl in ("1h", "12h")),
        )
        for row in world.ledger
    ]


def modelled(api: Api, cache: Cache, sent: list[Sent]) -> list[CacheUse]:
    uses: list[CacheUse] = []
    now_s = 0.0
    for gap_s, body in sent:
        now_s += gap_s
        row = row_of(api, msgspec.json.encode(body))
        uses.append(cache.use(row, start_s=now_s, first_byte_s=now_s + LATENCY_S))
    return uses


@dataclass(frozen=True)
class Asked:
    """A request, in short.

    Args:
        gap_s: Seconds since the one before.
        texts: Which texts it says.
        marked: Which of them are marked, and whether for the longer lifetime.
        system: How many of them stand in the system section.
        mode: What OpenAI marks by itself; `None` says nothing.
        key: It has a cache key.
    """

    gap_s: float
    texts: tuple[int, ...]
    marked: Mapping[int, bool]
    system: int
    mode: str | None
    key: bool

    @property
    def said(self) -> list[str]:
        return [SAID[number] for number in self.texts]


@st.composite
def asked(draw: st.DrawFn) -> list[Asked]:
    """Requests that mostly begin alike: starts of one conversation, now and then with a change; ends mostly marked."""
    base = draw(st.lists(st.integers(0, 4), min_size=26, max_size=26))
    made: list[Asked] = []
    for _ in range(draw(st.integers(1, 8))):
        texts = base[: draw(st.integers(1, len(base)))]
        if draw(st.integers(0, 3)) == 0:
            texts[draw(st.integers(0, len(texts) - 1))] = 5
        places = draw(st.sets(st.integers(0, len(texts) - 1), max_size=3))
        places |= {len(texts) - 1} if draw(st.integers(0, 3)) else set()
        long = draw(st.integers(0, len(places)))
        marked = {place: number < long for number, place in enumerate(sorted(places))}
        system = draw(st.integers(0, min(3, len(texts) - 1)))
        mode = draw(st.sampled_from([None, "explicit", "implicit"]))
        made.append(Asked(draw(GAPS), tuple(texts), marked, system, mode, draw(st.booleans())))
    return made


def messages_of(one: Asked) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": said} for said in one.said]
    for place, long in one.marked.items():
        blocks[place]["cache_control"] = {"type": "ephemeral", **({"ttl": "1h"} if long else {})}
    messages = [{"role": "user", "content": blocks[one.system :]}]
    body: dict[str, Any] = {"model": "claude-sonnet-5", "max_tokens": 10, "messages": messages}
    return body | ({"system": blocks[: one.system]} if one.system else {})


def points_of(one: Asked) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"type": "text", "text": said} for said in one.said]
    for place in one.marked:
        parts[place]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    body = chat_of(one) | {"model": "gpt-6.1-terra"}
    body["messages"] = [{"role": "user", "content": [part]} for part in parts]
    return body | ({} if one.mode is None else {"prompt_cache_options": {"mode": one.mode}})


def chat_of(one: Asked) -> dict[str, Any]:
    messages = [{"role": "user", "content": said} for said in one.said]
    return {"model": "gpt-5.4", "messages": messages} | ({"prompt_cache_key": "k"} if one.key else {})


def local_of(one: Asked) -> dict[str, Any]:
    return {"model": "local", "messages": [{"role": "user", "content": said} for said in one.said]}


def contents_of(one: Asked) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": said * 2} for said in one.said]}]}


def bodies(sent: list[Asked], make: Callable[[Asked], dict[str, Any]]) -> list[Sent]:
    return [(one.gap_s, make(one)) for one in sent]


@given(sent=asked())
def test_the_cache_of_markers_bills_what_the_emulator_bills(sent: list[Asked]):
    asks = bodies(sent, messages_of)
    assert modelled("messages", MarkerCache(), asks) == emulated("/v1/messages", asks)


@given(sent=asked())
def test_the_cache_of_points_bills_what_the_emulator_bills(sent: list[Asked]):
    asks = bodies(sent, points_of)
    assert modelled("chat", PointCache(), asks) == emulated("/v1/chat/completions", asks)


@given(sent=asked())
def test_the_automatic_cache_bills_what_the_emulator_bills(sent: list[Asked]):
    asks = bodies(sent, chat_of)
    cache = AutomaticCache(stepped, lifetime_s=600.0)
    assert modelled("chat", cache, asks) == emulated("/v1/chat/completions", asks)


@given(sent=asked())
def test_the_cache_of_blocks_bills_what_the_emulator_bills(sent: list[Asked]):
    asks = bodies(sent, local_of)
    local = {"local": {"vendor": "compatible", "window": 100_000, "max_output": 1000}}
    cache = AutomaticCache(units(16, leaves_last=True), lifetime_s=86_400.0, at_once=True)
    theirs = emulated("/v1/chat/completions", asks, server="vllm", models=local)
    assert modelled("chat", cache, asks) == theirs


@given(sent=asked())
def test_the_implicit_cache_bills_what_the_emulator_bills(sent: list[Asked]):
    asks = bodies(sent, contents_of)
    cache = AutomaticCache(lambda common, _: common if common >= 4096 else 0, lifetime_s=3600.0)
    assert modelled("gemini", cache, asks) == emulated("/v1beta/models/gemini-3.8-flash:generateContent", asks)
