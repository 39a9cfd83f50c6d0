"""The caches of vendors: what a request reads and writes, given those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, final

import msgspec

from shoal.providers._cache_rows import BYTES_PER_TOKEN, Piece, Row
from shoal.providers._values import ModelProfile, Usage

LOOK_BACK = 20
POINTS_BACK = 80
MOST_WRITES = 4
LEAST_TOKENS = 1024
STEP_TOKENS = 128
HOUR_S = 3600.0
LIFETIMES: Mapping[str, float] = {"5m": 300.0, "1h": HOUR_S, "30m": 1800.0, "12h": 12 * HOUR_S}
LONG = frozenset({"1h", "12h"})


@final
class CacheUse(msgspec.Struct, frozen=True, gc=False):
    """How a request's input splits up, in tokens.

    Args:
        read: Read from the cache.
        write: Written to it, readable from the first byte of the answer on.
        uncached: Neither.
        write_long: Written to it with the vendor's longer lifetime.
    """

    read: int
    write: int
    uncached: int
    write_long: int = 0

    @property
    def usage(self) -> Usage:
        """The same as the usage of a request without a reply."""
        return Usage(self.uncached, self.read, self.write, self.write_long)


class Cache(Protocol):
    """A vendor's cache. Requests come in the order in which they start."""

    def use(self, row: Row, *, start_s: float, first_byte_s: float) -> CacheUse:
        """Return what a request reads and writes, and keep what it wrote.

        Args:
            row: The request.
            start_s: When it arrives, in seconds of any one clock.
            first_byte_s: When its answer begins, which is when others can read what it wrote.
        """
        ...


@final
class _Entry(msgspec.Struct):
    lifetime_s: float
    until_s: float
    ready_s: float

    def readable(self, at_s: float) -> bool:
        return self.ready_s <= at_s < self.until_s


class _Entries:
    """What is kept, by what stands for its prefix."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def readable(self, key: bytes, at_s: float) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.readable(at_s)

    def refresh(self, keys: Sequence[bytes], at_s: float) -> None:
        """Have what was read live on."""
        for key in keys:
            entry = self._entries.get(key)
            if entry is not None and entry.readable(at_s):
                entry.until_s = max(entry.until_s, at_s + entry.lifetime_s)

    def write(self, key: bytes, lifetime: str, start_s: float, first_byte_s: float) -> None:
        life_s = LIFETIMES[lifetime]
        known = self._entries.get(key)
        if known is not None and known.until_s > start_s:
            # Another one wrote it at the same time: it can be read from the first of the two answers on.
            first_byte_s = min(first_byte_s, known.ready_s)
            self._entries[key] = _Entry(life_s, max(known.until_s, start_s + life_s), first_byte_s)
            return
        self._entries[key] = _Entry(life_s, start_s + life_s, first_byte_s)


@final
class MarkerCache:
    """Anthropic's: written at markers, looked for at up to 20 places in front of each.

    Args:
        min_tokens: The shortest prefix that is kept.
        look_back: How many places are looked at from a marker, its own included.

    Source: Anthropic's page on prompt caching (September 2026).
    """

    def __init__(self, *, min_tokens: int = LEAST_TOKENS, look_back: int = LOOK_BACK) -> None:
        self.min_tokens = min_tokens
        self._look_back = look_back
        self._entries = _Entries()

    def __repr__(self) -> str:
        return f"<MarkerCache of {len(self._entries)} entries>"

    def use(self, row: Row, *, start_s: float, first_byte_s: float) -> CacheUse:
        """Return what a request reads and writes; see `Cache`."""
        chain, upto = row.chain(), row.upto()
        marked = [at for at, piece in enumerate(row.pieces) if piece.marker and upto[at] >= self.min_tokens]
        hit = next((at for at in (self._found(row, chain, m, start_s) for m in reversed(marked)) if at >= 0), -1)
        self._entries.refresh(chain[: hit + 1], start_s)
        for at in marked:
            if at > hit:
                self._entries.write(chain[at], row.pieces[at].marker, start_s, first_byte_s)
        return _billed(row, upto, [at for at in marked if at > hit], upto[hit] if hit >= 0 else 0)

    def _found(self, row: Row, chain: Sequence[bytes], marker: int, at_s: float) -> int:
        left = self._look_back
        for at in range(marker, -1, -1):
            if not left:
                break
            left -= row.pieces[at].counts
            if self._entries.readable(chain[at], at_s):
                return at
        return -1


@final
class PointCache:
    """OpenAI's from GPT-5.6 on: written at markers and at the end, looked for at markers and at ends of messages.

    Args:
        min_tokens: The shortest prefix that is kept.

    Source: OpenAI's page on prompt caching (November 2026), and the types of its SDK.
    """

    def __init__(self, *, min_tokens: int = LEAST_TOKENS) -> None:
        self.min_tokens = min_tokens
        self._entries = _Entries()

    def __repr__(self) -> str:
        return f"<PointCache of {len(self._entries)} entries>"

    def use(self, row: Row, *, start_s: float, first_byte_s: float) -> CacheUse:
        """Return what a request reads and writes; see `Cache`."""
        chain, upto = row.chain(), row.upto()
        marked = [at for at, piece in enumerate(row.pieces) if piece.marker]
        ends = [at for at, piece in enumerate(row.pieces) if piece.ends]
        looked = marked if row.explicit else sorted({*marked, *ends})
        written = marked[-MOST_WRITES:] if row.explicit else sorted({*marked[1 - MOST_WRITES :], *ends[-1:]})
        found = [at for at in looked[-POINTS_BACK:] if upto[at] >= self.min_tokens]
        hits = [at for at in found if self._entries.readable(chain[at], start_s)]
        self._entries.refresh([chain[at] for at in hits], start_s)
        read = upto[hits[-1]] if hits else 0
        fresh = [at for at in written if upto[at] >= self.min_tokens and upto[at] > read]
        for at in fresh:
            self._entries.write(chain[at], row.pieces[at].marker or row.lifetime, start_s, first_byte_s)
        return _billed(row, upto, fresh, read)


def _billed(row: Row, upto: Sequence[int], fresh: Sequence[int], read: int) -> CacheUse:
    """Return the buckets of a request that writes at *fresh*: up to the last long lifetime, and behind it."""
    asked = {at: row.pieces[at].marker or row.lifetime for at in fresh}
    long = max((upto[at] for at in fresh if asked[at] in LONG), default=read)
    top = max((upto[at] for at in fresh), default=read)
    return CacheUse(read, max(top, long) - long, row.tokens - max(top, long), long - read)


@final
class _Kept(msgspec.Struct, frozen=True):
    row: Row
    start_s: float
    ready_s: float


@final
class AutomaticCache:
    """A cache that finds the longest common prefix by itself; writing to it is free and not reported.

    Args:
        read: What is read of a common prefix: takes its tokens and those of the request.
        lifetime_s: Seconds that a prefix is found after its last use.
        at_once: It can be read before the answer begins that wrote it.
        most: The most requests that are remembered; the oldest go.
    """

    def __init__(
        self, read: Callable[[int, int], int], *, lifetime_s: float, at_once: bool = False, most: int = 4096
    ) -> None:
        self._read = read
        self._lifetime_s = lifetime_s
        self._at_once = at_once
        self._most = most
        self._kept: list[_Kept] = []

    def __repr__(self) -> str:
        return f"<AutomaticCache of {len(self._kept)} requests>"

    def use(self, row: Row, *, start_s: float, first_byte_s: float) -> CacheUse:
        """Return what a request reads; see `Cache`."""
        common = max(
            (
                common_tokens(row, kept.row)
                for kept in self._kept
                if kept.ready_s <= start_s < kept.start_s + self._lifetime_s
            ),
            default=0,
        )
        self._kept.append(_Kept(row, start_s, start_s if self._at_once else first_byte_s))
        del self._kept[: -self._most]
        read = self._read(common, row.tokens)
        return CacheUse(read, 0, row.tokens - read)


@final
class SlotCache:
    """What a llama.cpp server keeps: the last prompt of each slot, and what was said to it.

    A prompt that a slot gives up goes into the server's memory, and comes back for one that goes on with it.

    Args:
        slots: How many conversations it holds.
        memory: It keeps what its slots give up, as servers have done since October 2025 unless they are told not to.

    Source: measured with llama.cpp (November 2026): all but the last token of a repeated prompt is read.
    """

    SIMILAR = 0.1
    """A slot is used again that has more than this share of a prompt."""
    KEEPS = 0.5
    """A slot that would lose more than this share of what it holds gives it up first."""
    WORTH = 0.25
    """What is in memory comes back only where this share of it is of use."""
    MOST = 64
    """How many prompts the memory holds here; a server has a limit in bytes."""

    def __init__(self, *, slots: int = 1, memory: bool = True) -> None:
        self._slots: list[tuple[Row | None, float]] = [(None, -math.inf)] * slots
        self._memory: list[Row] | None = [] if memory else None

    def __repr__(self) -> str:
        return f"<SlotCache of {len(self._slots)} slots>"

    def use(self, row: Row, *, start_s: float, first_byte_s: float, said: Sequence[Piece] = ()) -> CacheUse:
        """Return what a request reads; see `Cache`.

        Args:
            row: The request.
            start_s: When it arrives.
            first_byte_s: Of no matter here.
            said: The answer as far as the slot keeps it: all but the last token that was made, which is the end of the
                turn where the model ended it.
        """
        common = [0 if held is None else common_tokens(row, held) for held, _ in self._slots]
        best = max(range(len(common)), key=common.__getitem__)
        found = common[best] > self.SIMILAR * row.tokens
        if not found:
            best = min(range(len(common)), key=lambda slot: self._slots[slot][1])
        held = self._slots[best][0]
        if held is not None and not (found and common[best] >= self.KEEPS * held.tokens):
            held = self._given_up(held, row)
        read = 0 if held is None else max(0, min(common_tokens(row, held), row.tokens - 1))
        self._slots[best] = (msgspec.structs.replace(row, pieces=(*row.pieces, *said)), start_s)
        return CacheUse(read, 0, row.tokens - read)

    def _given_up(self, held: Row, row: Row) -> Row:
        """Keep *held*, and return what the slot then holds for *row*: it, or what memory has that is of more use."""
        memory = self._memory
        if memory is None:
            return held
        if not any(common_tokens(held, kept) == held.tokens for kept in memory):
            memory[:] = [kept for kept in memory if common_tokens(kept, held) < kept.tokens][1 - self.MOST :]
            memory.append(held)
        best, common = held, common_tokens(held, row)
        keeps, covers = common / held.tokens, common
        for kept in memory:
            common = common_tokens(kept, row)
            share = common / kept.tokens
            if share >= self.WORTH and share > keeps and common > covers:
                best, keeps, covers = kept, share, common
        if best is not held:
            memory.remove(best)
        return best


def common_tokens(one: Row, other: Row) -> int:
    """Return how many tokens two requests begin with alike; 0 where a model or cache key is another one."""
    if (one.model, one.key) != (other.model, other.key):
        return 0
    tokens = 0
    for piece, theirs in zip(one.pieces, other.pieces, strict=False):
        if (piece.section, piece.frame, piece.data) != (theirs.section, theirs.frame, theirs.data):
            alike = (piece.section, piece.frame) == (theirs.section, theirs.frame)
            return tokens + (min(_alike(piece.data, theirs.data) // BYTES_PER_TOKEN, piece.tokens) if alike else 0)
        tokens += piece.tokens
    return tokens


def _alike(one: bytes, other: bytes) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def stepped(common: int, _total: int) -> int:
    """Return what OpenAI's automatic cache reads of *common* tokens: 1,024, and then in steps of 128."""
    return 0 if common < LEAST_TOKENS else LEAST_TOKENS + STEP_TOKENS * ((common - LEAST_TOKENS) // STEP_TOKENS)


def units(size: int, *, leaves_last: bool = False) -> Callable[[int, int], int]:
    """Return how a cache of units of *size* tokens reads; with *leaves_last* the last token is always made anew."""

    def read(common: int, total: int) -> int:
        return size * (max(0, min(common, total - 1 if leaves_last else total)) // size)

    return read


def cache_for(profile: ModelProfile, server: str) -> Cache:
    """Return an empty cache like the one that *server* has for a model.

    Args:
        profile: The model's.
        server: `anthropic`, `openai`, `google`, or the name of a compatible server.
    """
    if server in ("vllm", "llama.cpp"):
        return (
            SlotCache()
            if server == "llama.cpp"
            else AutomaticCache(units(16, leaves_last=True), lifetime_s=math.inf, at_once=True)
        )
    if profile.cache == "markers":
        least = profile.min_cacheable_tokens
        return PointCache(min_tokens=least) if server in ("openai", "openai-chat") else MarkerCache(min_tokens=least)
    if profile.cache == "none":
        return AutomaticCache(lambda _common, _total: 0, lifetime_s=0.0, most=1)
    match server:
        case "openai" | "openai-chat" | "codex" | "azure":
            return AutomaticCache(stepped, lifetime_s=600.0)
        case "deepseek":
            return AutomaticCache(units(64), lifetime_s=24 * HOUR_S)
        case _:
            least = profile.min_cacheable_tokens
            return AutomaticCache(lambda common, _: common if common >= least else 0, lifetime_s=HOUR_S)
