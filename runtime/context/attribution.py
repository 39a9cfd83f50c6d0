"""Who used what: the bill of one inference, split over the owners of the prompt's parts.

A pure function of the prompt's parts and the provider's usage. The sums over owners equal the bill, to the token and
to the last decimal of the price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import final

import msgspec

from shoal.providers import Bucket, Price, Usage
from shoal.runtime.context._assemble import Part

OVERHEAD = "overhead"
"""Owner of what frames messages and is in no part."""
REPLY_TEXT = "reply.text"
REPLY_REASONING = "reply.reasoning"


@final
class Share(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one owner used of one inference.

    Args:
        owner: The region or component.
        uncached: Tokens as billed, 0 or more; this and the next four are buckets as in `Usage`.
        cache_read: Tokens read from a cache.
        cache_write: Tokens written to a cache.
        cache_write_long: Tokens written to a cache with a longer lifetime.
        output: Tokens the model wrote.
        cost: USD; `None` where the price is unknown.
    """

    owner: str
    uncached: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    cost: Decimal | None = None

    @property
    def input(self) -> int:
        """Everything of it that was sent."""
        return self.uncached + self.cache_read + self.cache_write + self.cache_write_long

    @property
    def usage(self) -> Usage:
        """The same tokens as a `Usage`."""
        return Usage(self.uncached, self.cache_read, self.cache_write, self.cache_write_long, self.output)


def scale(estimates: Sequence[int], total: int) -> tuple[int, ...]:
    """Return *estimates* scaled so that they add up to *total* exactly, by the largest remainder; ties go first come.

    Args:
        estimates: n numbers, 0 or more, with a sum above 0.
        total: What they have to add up to, 0 or more.
    """
    whole = sum(estimates)
    scaled = [estimate * total // whole for estimate in estimates]
    missing = total - sum(scaled)
    if missing:
        # Sorting keeps those of one remainder in their order.
        remainders = [estimate * total % whole for estimate in estimates]
        for index in sorted(range(len(estimates)), key=remainders.__getitem__, reverse=True)[:missing]:
            scaled[index] += 1
    return tuple(scaled)


def attribute(
    parts: Sequence[Part], usage: Usage, price: Price | None, *, overhead_tokens: int = 0
) -> tuple[Share, ...]:
    """Split *usage* over the owners of *parts*.

    Args:
        parts: The prompt's parts in order, with estimated tokens.
        usage: What was billed.
        price: What the model costs; `None` where that is unknown.
        overhead_tokens: Estimate of what frames the messages, 0 or more; it stands behind everything else, and is
            billed where the bill is higher than what the parts come to.

    Returns:
        One share an owner, in the order in which they first appear, then the reply's. Read tokens cover the prompt
        from the front, written ones follow (longer lifetimes first), the rest is uncached.
    """
    pieces, scaled = _owners(parts, usage.input, overhead_tokens)
    rates = None if price is None else rates_of(price, usage.input)
    if usage.uncached == usage.input:  # nothing to split: where in the prompt a token stands does not matter
        shares = [
            Share(owner, tokens, cost=None if rates is None else rates[0] * tokens)
            for owner, tokens in scaled.items()
            if tokens
        ]
    else:
        shares = [
            Share(owner, uncached, read, write, long, 0, cost_of(rates, (uncached, read, write, long, 0)))
            for owner, (read, long, write, uncached) in _buckets(_stretches(pieces, scaled), usage).items()
            if read + long + write + uncached
        ]
    said = usage.output - usage.reasoning
    if said:
        shares.append(Share(REPLY_TEXT, output=said, cost=cost_of(rates, (0, 0, 0, 0, said))))
    if usage.reasoning:
        cost = cost_of(rates, (0, 0, 0, 0, usage.reasoning))
        shares.append(Share(REPLY_REASONING, output=usage.reasoning, cost=cost))
    return tuple(shares)


def _owners(
    parts: Sequence[Part], total: int, overhead_tokens: int
) -> tuple[Sequence[tuple[str, int]], Mapping[str, int]]:
    """Return the parts of a prompt of *total* billed tokens, each with its owner, and what each owner has of them."""
    pieces = [(part.owner, part.tokens) for part in parts]
    known = sum([tokens for _, tokens in pieces])
    # Not every vendor bills frames, and those who do bill them on top. Where nothing is known, somebody has to pay.
    pieces.append((OVERHEAD, min(overhead_tokens, max(0, total - known)) if known else 1))
    estimates: dict[str, int] = {}
    for owner, tokens in pieces:
        estimates[owner] = estimates.get(owner, 0) + tokens
    return pieces, dict(zip(estimates, scale(tuple(estimates.values()), total), strict=True))


def _stretches(pieces: Sequence[tuple[str, int]], scaled: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the owners of a prompt with how many tokens each part has, in prompt order.

    Owners are scaled first, and each one's parts within it, so that a part that is cut in two changes nobody's sum.
    """
    estimates: dict[str, int] = {}
    for owner, tokens in pieces:
        estimates[owner] = estimates.get(owner, 0) + tokens
    if len(estimates) == len(pieces):
        return list(scaled.items())
    behind = dict.fromkeys(estimates, 0)
    stretches: list[tuple[str, int]] = []
    for owner, tokens in pieces:
        whole = estimates[owner] or 1
        before = behind[owner] * scaled[owner] // whole
        behind[owner] += tokens
        stretches.append((owner, behind[owner] * scaled[owner] // whole - before))
    return stretches


def _buckets(stretches: Sequence[tuple[str, int]], usage: Usage) -> dict[str, list[int]]:
    """Return tokens read, written long, written, and uncached by owner: read ones lie in front."""
    left = [usage.cache_read, usage.cache_write_long, usage.cache_write, usage.uncached]
    totals: dict[str, list[int]] = {}
    bucket = 0
    for owner, tokens in stretches:
        row = totals.setdefault(owner, [0, 0, 0, 0])
        while tokens:
            take = min(tokens, left[bucket])
            row[bucket] += take
            left[bucket] -= take
            tokens -= take  # noqa: PLW2901 - what is left of this part lies behind the boundary
            if not left[bucket]:
                bucket += 1
    return totals


def cost_of(rates: Sequence[Decimal] | None, tokens: Sequence[int]) -> Decimal | None:
    """Return what *tokens* cost in USD at *rates*, both in the order of `Usage`; `None` where rates are unknown."""
    if rates is None:
        return None
    cost = _ZERO
    for rate, count in zip(rates, tokens, strict=True):
        if count:
            cost += rate * count
    return cost


def rates_of(price: Price, prompt_tokens: int) -> tuple[Decimal, ...]:
    """Return what one token of each bucket of `Usage`, up to the output, costs in USD.

    Args:
        price: What the model costs.
        prompt_tokens: Everything that was sent: some vendors bill long prompts at a multiple.
    """
    is_long = price.long_from_tokens is not None and prompt_tokens > price.long_from_tokens
    rates = _rates.get((price, is_long))
    if rates is None:
        per_token = (price.per_token(bucket, prompt_tokens=prompt_tokens) for bucket in _BUCKETS)
        rates = _rates[price, is_long] = tuple(per_token)
    return rates


_ZERO = Decimal(0)
_BUCKETS: tuple[Bucket, ...] = ("uncached", "cache_read", "cache_write", "cache_write_long", "output")
_rates: dict[tuple[Price, bool], tuple[Decimal, ...]] = {}
