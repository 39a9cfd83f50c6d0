"""Rate limits: buckets that fill over a minute, and a cap on what is under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, final

QuotaKind: TypeAlias = Literal["requests", "input", "output"]

MINUTE_S = 60.0


@final
@dataclass(frozen=True, slots=True)
class Limits:
    """What one API key may do. `None` sets no limit.

    Args:
        requests_per_minute: Requests for a reply.
        input_per_minute: Tokens of prompts, as the vendor counts them: at Anthropic, those not read from a cache.
        output_per_minute: Tokens of replies.
        concurrency: Replies under way at once, over all keys.
        overloaded: Status beyond *concurrency*: 429 as for any limit, or the vendor's own for an overloaded server.
    """

    requests_per_minute: int | None = None
    input_per_minute: int | None = None
    output_per_minute: int | None = None
    concurrency: int | None = None
    overloaded: Literal[429, 503, 529] = 429


@final
@dataclass(frozen=True, slots=True)
class Quota:
    """What is left of one limit.

    Args:
        kind: What it limits.
        limit: How much a minute gives.
        remaining: What could be used now, 0 or more.
        reset_s: Seconds until all of it is there again.
        wait_s: Seconds until the request that was asked about would fit; 0 if it fits.
    """

    kind: QuotaKind
    limit: int
    remaining: int
    reset_s: float
    wait_s: float


@final
class _Bucket:
    def __init__(self, kind: QuotaKind, limit: int) -> None:
        self.kind: QuotaKind = kind
        self.limit = limit
        self.level = float(limit)
        self.filled_s = 0.0

    def quota(self, now_s: float, need: int) -> Quota:
        """Fill it up to *now_s* and say what it holds, asked for *need*."""
        rate = self.limit / MINUTE_S
        self.level = min(float(self.limit), self.level + (now_s - self.filled_s) * rate)
        self.filled_s = now_s
        wait_s = max(0.0, need - self.level) / rate
        return Quota(self.kind, self.limit, max(0, int(self.level)), (self.limit - self.level) / rate, wait_s)


@final
class Buckets:
    """The buckets of one API key.

    Args:
        limits: How large they are.
    """

    def __init__(self, limits: Limits) -> None:
        sizes: tuple[tuple[QuotaKind, int | None], ...] = (
            ("requests", limits.requests_per_minute),
            ("input", limits.input_per_minute),
            ("output", limits.output_per_minute),
        )
        self._buckets: dict[QuotaKind, _Bucket] = {
            kind: _Bucket(kind, size) for kind, size in sizes if size is not None
        }

    def __repr__(self) -> str:
        return f"<Buckets {', '.join(f'{kind} {bucket.level:.0f}' for kind, bucket in self._buckets.items())}>"

    def take(self, now_s: float, input_tokens: int) -> Quota | None:
        """Take one request with *input_tokens*; return the quota that it does not fit, and then take nothing."""
        need: dict[QuotaKind, int] = {"requests": 1, "input": input_tokens, "output": 1}
        for kind, bucket in self._buckets.items():
            quota = bucket.quota(now_s, need[kind])
            if quota.wait_s > 0:
                return quota
        self._take("requests", 1)
        self._take("input", input_tokens)
        return None

    def spend(self, output_tokens: int) -> None:
        """Take *output_tokens* of a reply, even if they are more than is left."""
        self._take("output", output_tokens)

    def _take(self, kind: QuotaKind, amount: int) -> None:
        if kind in self._buckets:
            self._buckets[kind].level -= amount

    def quotas(self, now_s: float) -> tuple[Quota, ...]:
        """Return what is left of each limit."""
        return tuple(bucket.quota(now_s, 0) for bucket in self._buckets.values())
