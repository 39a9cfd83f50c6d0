"""Anthropic's prompt cache: entries at markers, a look-back of twenty blocks, lifetimes from the start of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from shoal.testing.wire._prompt import Block, Lookup, Prompt
from shoal.testing.wire._settings import CacheSwitches

LIFE_S = {"5m": 300.0, "1h": 3600.0}
LOOK_BACK = 20


@final
@dataclass(slots=True)
class _Entry:
    ttl: str
    until_s: float
    ready_s: float


@final
class MarkerCache:
    """What the vendor keeps of the prompts that it was sent.

    Args:
        switches: What the vendor does not say.
    """

    def __init__(self, switches: CacheSwitches) -> None:
        self._switches = switches
        self._entries: dict[bytes, _Entry] = {}

    def __repr__(self) -> str:
        return f"<MarkerCache of {len(self._entries)} entries>"

    def look(self, prompt: Prompt, start_s: float, *, least: int) -> Lookup:
        """Return what is read and written for *prompt*, which arrives at *start_s*.

        Args:
            prompt: Its markers obey the rules.
            start_s: In seconds.
            least: The model's shortest prefix that is kept, in tokens.
        """
        keys, upto = prompt.keys(), prompt.upto()
        points = [place for place, block in enumerate(prompt.blocks) if block.marker and upto[place] >= least]
        hit = next(
            (place for point in reversed(points) if (place := self._back(prompt, keys, point, start_s)) >= 0), -1
        )
        self._refresh(keys[: hit + 1], start_s)
        read = upto[hit] if hit >= 0 else 0
        fresh = [place for place in points if place > hit]
        return Lookup(read, _writes(prompt.blocks, upto, points, read), self._writer(prompt, keys, fresh, start_s))

    def _back(self, prompt: Prompt, keys: Sequence[bytes], point: int, start_s: float) -> int:
        """Return the nearest place at or before *point* that has an entry; -1 if none is within the look-back."""
        left = LOOK_BACK
        for place in range(point, -1, -1):
            if left == 0:
                break
            left -= prompt.blocks[place].place
            entry = self._entries.get(keys[place])
            if entry is not None and entry.ready_s <= start_s and self._alive(entry, start_s):
                return place
        return -1

    def _alive(self, entry: _Entry, start_s: float) -> bool:
        return start_s < entry.until_s or (self._switches.alive_at_limit and start_s == entry.until_s)

    def _refresh(self, keys: Sequence[bytes], start_s: float) -> None:
        """Let what was read live on from *start_s*."""
        for key in keys if self._switches.refresh_path else keys[-1:]:
            entry = self._entries.get(key)
            if entry is not None and self._alive(entry, start_s):
                entry.until_s = start_s + LIFE_S[entry.ttl]

    def _writer(self, prompt: Prompt, keys: Sequence[bytes], fresh: Sequence[int], start_s: float) -> _Writer:
        ttls = [prompt.blocks[place].marker or "5m" for place in fresh]
        writer = _Writer(self._entries, tuple(zip([keys[place] for place in fresh], ttls, strict=True)), start_s)
        if self._switches.readable_at_once:
            writer(start_s)
        return writer


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


def _writes(blocks: Sequence[Block], upto: Sequence[int], points: Sequence[int], read: int) -> Mapping[str, int]:
    """Return the tokens that are written at each price: up to the last long marker the long one, then the short one."""
    long = max((upto[place] for place in points if blocks[place].marker == "1h"), default=read)
    top = max((upto[place] for place in points), default=read)
    long = max(long, read)
    return {"5m": max(top, long) - long, "1h": long - read}
