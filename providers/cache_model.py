"""What a prompt cache would have read and written, computed from requests alone.

`row_of` reads the body of a request, and `cache_for` has the cache of its vendor; what each reads and writes follows
from the requests before it. `prefixes_of` and `PrefixCache` do the same for requests that were never encoded, with one
cache for all: the offline provider's usage comes from them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import final

import msgspec

from shoal.providers._cache_rows import BYTES_PER_TOKEN, Api, Piece, Row, row_of
from shoal.providers._caches import (
    AutomaticCache,
    Cache,
    CacheUse,
    MarkerCache,
    PointCache,
    SlotCache,
    cache_for,
    common_tokens,
    stepped,
    units,
)
from shoal.providers._chat import chat_encoder
from shoal.providers._servers import SERVERS
from shoal.providers._values import Message, Request, Segment, digest

__all__ = [
    "Api",
    "AutomaticCache",
    "Cache",
    "CacheUse",
    "MarkerCache",
    "Piece",
    "PointCache",
    "Prefix",
    "PrefixCache",
    "Row",
    "SlotCache",
    "cache_for",
    "common_tokens",
    "prefixes_of",
    "row_of",
    "stepped",
    "units",
]

MIN_TOKENS = 1024
LIFETIME_S = 300.0
MAX_ENTRIES = 65_536

_ENCODER = chat_encoder(SERVERS["generic"])
_MESSAGE_BYTES = len('{"role":"user","content":""},')
_CALL_BYTES = len('{"id":"","type":"function","function":{"name":"","arguments":""}},')
_RESULT_BYTES = len('"tool_call_id":"",')
_GROWING = 2  # the open segment, and the one that was open a moment ago, are looked into message by message


@final
class Prefix(msgspec.Struct, frozen=True, gc=False):
    """A place in a request at which a cache can hold everything in front of it.

    Args:
        key: 16 bytes that stand for the model and everything up to here.
        tokens: What everything up to here costs, 0 or more.
    """

    key: bytes
    tokens: int


def prefixes_of(request: Request) -> tuple[list[Prefix], int]:
    """Return the prefixes of *request*, shortest first, and the tokens of all of it.

    Sizes are those of an encoded Chat Completions body, at four bytes a token. What stands behind a system block that
    is not cacheable is part of no prefix, and neither is the tail.
    """
    key = digest(request.model.encode("utf-8", "surrogatepass"))
    size = 0
    prefixes: list[Prefix] = []

    def put(made: bytes, total_bytes: int) -> None:
        prefixes.append(Prefix(made, total_bytes // BYTES_PER_TOKEN))

    if request.tools.specs:
        key, size = digest(key, request.tools.digest), size + _ENCODER.tools(request.tools).wire.size
        put(key, size)
    cacheable = True
    for block in request.system:
        cacheable = cacheable and block.cacheable
        key, size = digest(key, block.digest), size + _ENCODER.block(block).size
        if cacheable:
            put(key, size)
    for index, segment in enumerate(request.messages):
        whole_bytes = _ENCODER.segment(segment).wire.size
        if cacheable and len(request.messages) - index <= _GROWING:
            for within, within_bytes in _steps(segment):
                # A message that is not sent, such as an orphaned result, has a size of its own all the same.
                put(digest(key, within), size + min(within_bytes, whole_bytes))
        key, size = digest(key, segment.digest), size + whole_bytes
        if cacheable:
            put(key, size)
    size += 0 if request.tail is None else len(request.tail)
    return prefixes, size // BYTES_PER_TOKEN


def _steps(segment: Segment) -> Iterator[tuple[bytes, int]]:
    """Yield the digest and size of each shorter segment that *segment* grew from."""
    whole = hashlib.blake2b(digest_size=16)
    size = 0
    for message in segment.messages[:-1]:
        # The framing of `digest`: what was a whole segment then is a step now, under the same key.
        whole.update(len(message.digest).to_bytes(4, "little") + message.digest)
        size += _size(message)
        yield whole.digest(), size - 1  # nothing stands behind the last of them


def _size(message: Message) -> int:
    calls = [len(call.call_id) + len(call.name) + len(call.arguments) + _CALL_BYTES for call in message.calls]
    answered = _RESULT_BYTES + len(message.call_id) if message.call_id else 0
    return sum(map(len, message.texts)) + sum(calls) + answered + _MESSAGE_BYTES


@final
class PrefixCache:
    """A cache of prefixes that works by itself, as vendors without markers have it.

    Args:
        min_tokens: The shortest prefix that is kept, 0 or more.
        lifetime_s: Seconds that an entry lives from the start of the request that wrote or read it last.
        max_entries: The most prefixes kept; the least recently used go.
    """

    def __init__(
        self, *, min_tokens: int = MIN_TOKENS, lifetime_s: float = LIFETIME_S, max_entries: int = MAX_ENTRIES
    ) -> None:
        self.min_tokens = min_tokens
        self._lifetime_s = lifetime_s
        self._max_entries = max_entries
        self._entries: OrderedDict[bytes, tuple[float, float]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<PrefixCache of {len(self._entries)} prefixes>"

    def __len__(self) -> int:
        return len(self._entries)

    def readable(self, prefixes: Sequence[Prefix], *, at_s: float) -> int:
        """Return how many tokens of *prefixes* (n, shortest first) a request that starts at *at_s* would read."""
        hit = self._hit(prefixes, at_s)
        return 0 if hit < 0 else prefixes[hit].tokens

    def use(self, prefixes: Sequence[Prefix], total_tokens: int, *, start_s: float, first_byte_s: float) -> CacheUse:
        """Return what a request reads and writes, and keep what it wrote.

        Args:
            prefixes: Its prefixes, n, shortest first.
            total_tokens: All of its input, at least that of the longest prefix.
            start_s: When it arrives, in seconds of any one clock.
            first_byte_s: When its answer begins, which is when others can read what it wrote.
        """
        hit = self._hit(prefixes, start_s)
        read = 0 if hit < 0 else prefixes[hit].tokens
        held = prefixes[-1].tokens if prefixes and prefixes[-1].tokens >= self.min_tokens else read
        for index, prefix in enumerate(prefixes):
            if prefix.tokens >= self.min_tokens:
                ready_s = self._entries[prefix.key][0] if index <= hit and prefix.key in self._entries else first_byte_s
                self._entries[prefix.key] = (ready_s, start_s + self._lifetime_s)
                self._entries.move_to_end(prefix.key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return CacheUse(read, held - read, total_tokens - held)

    def _hit(self, prefixes: Sequence[Prefix], at_s: float) -> int:
        """Return the index of the longest prefix that is kept and readable; -1 where there is none."""
        for index in range(len(prefixes) - 1, -1, -1):
            ready_s, ends_s = self._entries.get(prefixes[index].key, (0.0, -1.0))
            if ready_s <= at_s < ends_s and prefixes[index].tokens >= self.min_tokens:
                return index
        return -1
