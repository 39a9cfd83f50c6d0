"""The prompt caches of OpenAI and of open servers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from shoal.testing.wire._prefix import PrefixTree
from shoal.testing.wire._prompt import Block, Lookup, Prompt, common_bytes
from shoal.testing.wire._tokens import BYTES_PER_TOKEN

LEAST = 1024
STEP = 128
LOOK_BACK = 80
MOST_WRITES = 4
LIFE_S = {"30m": 1800.0, "12h": 43_200.0}
ROUTED_TOKENS = 256
MINUTE_S = 60.0


def stepped(tokens: int) -> int:
    """Return what the automatic cache reads of a common prefix of *tokens*: steps of 128 from 1,024 on."""
    return 0 if tokens < LEAST else LEAST + STEP * ((tokens - LEAST) // STEP)


@final
class Machines:
    """Where requests of one prefix and key go: to one machine, until there are more than it can take.

    Args:
        per_minute: Requests of a minute that one machine takes; `None` takes all.
    """

    def __init__(self, per_minute: int | None) -> None:
        self._per_minute = per_minute
        self._recent: dict[bytes, deque[float]] = {}

    def __repr__(self) -> str:
        return f"<Machines for {len(self._recent)} prefixes>"

    def of(self, prompt: Prompt, key: str, now_s: float) -> int:
        """Return the number of the machine that takes *prompt*, sent with the cache key *key*."""
        if self._per_minute is None:
            return 0
        recent = self._recent.setdefault(key.encode() + b"\0" + _start(prompt), deque())
        while recent and recent[0] <= now_s - MINUTE_S:
            recent.popleft()
        recent.append(now_s)
        return (len(recent) - 1) // self._per_minute


def _start(prompt: Prompt) -> bytes:
    """Return the bytes of the first tokens, by which requests are routed."""
    text = b""
    for frame, data in prompt.pieces():
        text += frame + data
        if len(text) >= ROUTED_TOKENS * BYTES_PER_TOKEN:
            break
    return text[: ROUTED_TOKENS * BYTES_PER_TOKEN]


@final
class PrefixCache:
    """A cache that finds the longest prefix by itself, as far as its units go.

    Args:
        life_s: How long a prefix is found after its last use, in seconds.
        read: What is read of a common prefix: takes its tokens and those of the whole prompt.
        at_once: It can be read before the first byte of the reply that writes it.
    """

    def __init__(self, life_s: float, read: Callable[[int, int], int], *, at_once: bool = False) -> None:
        self._tree = PrefixTree(life_s)
        self._read = read
        self._at_once = at_once

    def __repr__(self) -> str:
        return f"<PrefixCache {self._tree!r}>"

    def look(self, prompt: Prompt, start_s: float) -> Lookup:
        """Return what is read of *prompt*, which arrives at *start_s*. Writing costs nothing."""
        read = self._read(self._tree.find(prompt, start_s), prompt.tokens)
        if self._at_once:
            self._tree.add(prompt, start_s, start_s)
        return Lookup(read, {}, lambda ready_s: self._tree.add(prompt, start_s, ready_s))


def units(size: int, *, leaves_last: bool) -> Callable[[int, int], int]:
    """Return how a cache of units of *size* tokens reads; with *leaves_last* never a prompt to its last token."""

    def read(common: int, total: int) -> int:
        return size * (max(0, min(common, total - 1 if leaves_last else total)) // size)

    return read


@final
@dataclass(frozen=True, slots=True)
class Points:
    """Where a request may be read and written.

    Args:
        reads: Positions of blocks at whose ends an entry is looked for, in order.
        writes: Positions at whose ends one is written.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]


def points(blocks: Sequence[Block], ends: Sequence[int], mode: str) -> Points:
    """Return the breakpoints of a request.

    Args:
        blocks: Its blocks; those with markers are explicit breakpoints.
        ends: Positions of the last block of each message.
        mode: `implicit` writes one at the end and the three latest explicit ones, `explicit` the four latest of these.
    """
    explicit = [place for place, block in enumerate(blocks) if block.marker]
    if mode == "explicit":
        return Points(tuple(explicit[-LOOK_BACK:]), tuple(explicit[-MOST_WRITES:]))
    reads = sorted({*explicit, *ends})[-LOOK_BACK:]
    writes = sorted({*explicit[1 - MOST_WRITES :], *ends[-1:]})
    return Points(tuple(reads), tuple(writes))


@final
@dataclass(slots=True)
class _Entry:
    ttl: str
    until_s: float
    ready_s: float


@final
class BreakpointCache:
    """OpenAI's cache from GPT-5.6 on: entries at breakpoints, exact to the token, writes that cost.

    Args:
        at_once: An entry can be read before the first byte of the reply that writes it.
    """

    def __init__(self, *, at_once: bool = False) -> None:
        self._at_once = at_once
        self._entries: dict[bytes, _Entry] = {}

    def __repr__(self) -> str:
        return f"<BreakpointCache of {len(self._entries)} entries>"

    def look(self, prompt: Prompt, start_s: float, *, where: Points, ttl: str) -> Lookup:
        """Return what is read and written for *prompt*, which arrives at *start_s*.

        Args:
            prompt: With the markers of its explicit breakpoints.
            start_s: In seconds.
            where: Its breakpoints.
            ttl: How long an entry lives that says nothing of its own.
        """
        keys, upto = prompt.keys(), prompt.upto()
        alive = [place for place in where.reads if upto[place] >= LEAST and self._alive(keys[place], start_s)]
        read = upto[alive[-1]] if alive else 0
        for place in alive:
            entry = self._entries[keys[place]]
            entry.until_s = max(entry.until_s, start_s + LIFE_S[entry.ttl])
        fresh = [place for place in where.writes if upto[place] >= LEAST and upto[place] > read]
        ttls = {place: prompt.blocks[place].marker or ttl for place in fresh}
        writer = _Writer(self._entries, tuple((keys[place], ttls[place]) for place in fresh), start_s)
        if self._at_once:
            writer(start_s)
        long = max((upto[place] for place in fresh if ttls[place] == "12h"), default=read)
        top = max((upto[place] for place in fresh), default=read)
        return Lookup(read, {"30m": max(top, long) - long, "12h": long - read}, writer)

    def _alive(self, key: bytes, start_s: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.ready_s <= start_s < entry.until_s


@final
@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the entries of one request once its first byte is out."""

    entries: dict[bytes, _Entry]
    fresh: tuple[tuple[bytes, str], ...]
    start_s: float

    def __call__(self, ready_s: float) -> None:
        for key, ttl in self.fresh:
            known = self.entries.get(key)
            until_s, first_s = self.start_s + LIFE_S[ttl], ready_s
            if known and known.until_s > self.start_s:
                # A sibling that was sent at the same time wrote it first: it could be read from then on, and lives on.
                until_s, first_s = max(until_s, known.until_s), min(ready_s, known.ready_s)
            self.entries[key] = _Entry(ttl, until_s, first_s)


@final
@dataclass(slots=True)
class _Slot:
    prompt: Prompt | None = None
    used_s: float = -math.inf


@final
class SlotCache:
    """The sequences that a llama.cpp server keeps: each the last prompt of its slot and what was said to it.

    What a slot gives up lies in the server's memory, and comes back for a prompt that goes on with it.

    Args:
        slots: How many.
        memory: How many sequences lie in memory at most; 0 for a server that keeps none.
    """

    SIMILAR = 0.1
    """A slot is used again if it has more than this share of the prompt."""

    def __init__(self, slots: int, *, memory: int = 64) -> None:
        self._slots = [_Slot() for _ in range(slots)]
        self._most = memory
        self._stored: deque[Prompt] = deque()

    def __repr__(self) -> str:
        return f"<SlotCache of {len(self._slots)} slots>"

    def look(self, prompt: Prompt, start_s: float) -> Lookup:
        """Return what is read of *prompt*: what its slot has of it, but for its last token."""
        slot, gives_up = self._chosen(prompt)
        if self._most and slot.prompt is not None and gives_up:
            self._store(slot.prompt)
            slot.prompt = self._taken(slot.prompt, prompt)
        shared = 0 if slot.prompt is None else _common(slot.prompt, prompt)
        slot.prompt, slot.used_s = prompt, start_s
        return Lookup(max(0, min(shared, prompt.tokens - 1)), {}, lambda _ready_s: None)

    def said(self, prompt: Prompt, blocks: Sequence[Block]) -> None:
        """Add to the slot that took *prompt* what was said to it."""
        for slot in self._slots:
            if slot.prompt is prompt:
                slot.prompt = replace(prompt, blocks=(*prompt.blocks, *blocks))

    def _chosen(self, prompt: Prompt) -> tuple[_Slot, bool]:
        """Return the slot for *prompt*, most similar or longest idle, and whether it gives up what it holds."""
        shared = [(0 if slot.prompt is None else _common(slot.prompt, prompt), slot) for slot in self._slots]
        most, similar = max(shared, key=lambda one: one[0])
        if most > self.SIMILAR * prompt.tokens:
            return similar, similar.prompt is not None and most < 0.5 * similar.prompt.tokens
        return min(self._slots, key=lambda slot: slot.used_s), True

    def _store(self, given_up: Prompt) -> None:
        if any(_common(given_up, stored) == given_up.tokens for stored in self._stored):
            return
        kept = [stored for stored in self._stored if _common(stored, given_up) != stored.tokens]
        self._stored = deque([*kept, given_up], maxlen=self._most)

    def _taken(self, given_up: Prompt, prompt: Prompt) -> Prompt:
        """Return what is of most use for *prompt*: what was given up, or what more is used of and has more of it."""
        shared = _common(given_up, prompt)
        best, most, share = given_up, shared, shared / given_up.tokens
        for stored in self._stored:
            shared = _common(stored, prompt)
            if shared > most and shared >= 0.25 * stored.tokens and shared / stored.tokens > share:
                best, most, share = stored, shared, shared / stored.tokens
        if best is not given_up:
            self._stored.remove(best)
        return best


def _common(ours: Prompt, theirs: Prompt) -> int:
    """Return the tokens that two prompts begin with alike."""
    tokens = 0
    for block, mine, other in zip(ours.blocks, ours.pieces(), theirs.pieces(), strict=False):
        if mine != other:
            same = common_bytes(mine[1], other[1]) if mine[0] == other[0] else 0
            return tokens + min(same // BYTES_PER_TOKEN, block.tokens)
        tokens += block.tokens
    return tokens
