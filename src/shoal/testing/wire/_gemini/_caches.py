"""Gemini's caches: the one that works by itself, and contents that are put into one by name."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import Any, final

from shoal.testing.wire._clock import EPOCH_S, rfc3339
from shoal.testing.wire._json import Json
from shoal.testing.wire._openai._caches import PrefixCache
from shoal.testing.wire._prompt import Lookup, Prompt
from shoal.testing.wire._seal import digest
from shoal.testing.wire._settings import CacheSwitches

DEFAULT_LIFE_S = 3600.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_SHARES = 1 << 32


@final
class ImplicitCache:
    """The cache that finds the longest prefix by itself, if it finds one.

    Args:
        switches: How often, and for how long it keeps one.
    """

    def __init__(self, switches: CacheSwitches) -> None:
        self._found = PrefixCache(
            switches.gemini_retention_s, lambda common, _: common, at_once=switches.readable_at_once
        )
        self._rate = switches.gemini_hit_rate

    def __repr__(self) -> str:
        return f"<ImplicitCache {self._found!r}>"

    def look(self, prompt: Prompt, start_s: float, *, least: int) -> Lookup:
        """Return what is read of *prompt*: nothing under *least* tokens."""
        looked = self._found.look(prompt, start_s)
        lucky = int(digest(*(key.hex() for key in prompt.keys()[-1:]))[:8], 16) < self._rate * _SHARES
        return replace(looked, read=looked.read if looked.read >= least and lucky else 0)


@final
@dataclass(slots=True)
class Kept:
    """A cached content.

    Args:
        name: `cachedContents/…`.
        key: Whose it is.
        model: The model that it is for.
        body: The request that made it.
        tokens: What it counts.
        created_s: When it was made.
        updated_s: When its life was last changed.
        until_s: When it ends.
    """

    name: str
    key: str
    model: str
    body: Json
    tokens: int
    created_s: float
    updated_s: float
    until_s: float

    def shown(self) -> dict[str, Any]:
        """Return what the API says of it."""
        title = {"displayName": self.body["displayName"]} if "displayName" in self.body else {}
        return {
            "name": self.name,
            "model": f"models/{self.model}",
            **title,
            "createTime": rfc3339(self.created_s),
            "updateTime": rfc3339(self.updated_s),
            "expireTime": rfc3339(self.until_s),
            "usageMetadata": {"totalTokenCount": self.tokens},
        }


@final
class CachedContents:
    """The cached contents of one server, by name."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def __repr__(self) -> str:
        return f"<CachedContents {len(self._kept)} kept>"

    def add(self, kept: Kept) -> None:
        """Keep *kept*."""
        self._kept[kept.name] = kept

    def find(self, name: str, key: str, now_s: float) -> Kept | None:
        """Return what *key* keeps under *name*; `None` if there is nothing, or its time is over."""
        kept = self._kept.get(name)
        return kept if kept is not None and kept.key == key and now_s < kept.until_s else None

    def of(self, key: str, now_s: float) -> list[Kept]:
        """Return everything that *key* keeps."""
        return [kept for kept in self._kept.values() if self.find(kept.name, key, now_s)]

    def remove(self, name: str) -> None:
        """Forget what is kept under *name*."""
        del self._kept[name]


def end_s(body: Json, now_s: float) -> float | None:
    """Return when what *body* asks to keep ends, by the server's clock; `None` if it does not say it right."""
    if "expireTime" in body:
        try:
            return dt.datetime.fromisoformat(body["expireTime"]).timestamp() - EPOCH_S
        except ValueError:
            return None
    if "ttl" in body:
        match = _DURATION.fullmatch(body["ttl"])
        return None if match is None else now_s + float(match[1])
    return now_s + DEFAULT_LIFE_S
