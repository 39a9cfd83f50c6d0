"""What caches make of whole runs: tokens read against the most that could have been, and the cost beside a flat list.

    python benchmarks/cache.py [--workload research …] [--cache markers points responses steps]

Each workload is run through the real runtime against the emulator, on virtual time. `markers` is Anthropic's cache,
`points` and `steps` are the two of OpenAI over Chat Completions, `responses` is the first of them over Responses. The
most that could have been read is what a search finds that knows the future: over marker positions, over the order in
which a fan-out is sent, played through the emulator's own caches (see `cache_search.py`). `flat` is the same work as
one list of messages with automatic caching (`cache_flat.py`).

One JSON line a figure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from decimal import Decimal

from cache_flat import flat
from cache_search import Search, sent
from cache_workloads import MODELS, WORKLOADS, Workload, chat, played

from shoal.providers import Usage, shipped_profile
from shoal.testing import wire

__all__ = ["WORKLOADS", "chat", "cost_usd", "flat", "hits", "marked_front", "played"]
LONG = frozenset({"1h", "12h"})


def figure(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"figure": name, "value": round(value, 5), "unit": unit, **more}), flush=True)


def cost_usd(http: wire.InProcess, cache: str) -> Decimal:
    """Return what everything that *http* answered costs, by the shipped prices."""
    price = shipped_profile(MODELS[cache]).price
    assert price is not None  # the models of this benchmark have one
    return sum(
        (
            price.cost(
                Usage(
                    row.uncached,
                    row.read,
                    sum(tokens for ttl, tokens in row.writes.items() if ttl not in LONG),
                    sum(tokens for ttl, tokens in row.writes.items() if ttl in LONG),
                    row.output,
                )
            )
            for row in http.ledger
        ),
        Decimal(0),
    )


def hits(make: Callable[[], Workload], cache: str) -> tuple[int, int, wire.InProcess]:
    """Return the tokens that a workload read, the most that could have been, and the server that answered it."""
    ours, unled = played(make(), cache), played(make(), cache, leads=False)
    least = shipped_profile(MODELS[cache]).min_cacheable_tokens
    return ours.ledger.read, Search(sent(list(unled.journal)), cache, least).best(), ours


def measure(name: str, cache: str) -> None:
    read, best, ours = hits(WORKLOADS[name], cache)
    listed = flat(WORKLOADS[name](), cache)
    assert not ours.violations, ours.violations
    figure(
        f"cache/{name}/{cache}/hits",
        read / best,
        "of the best attainable",
        target=0.99,
        requests=len(ours.ledger),
        input_tokens=ours.ledger.input,
        read_tokens=read,
        attainable_tokens=best,
        written_tokens=ours.ledger.written,
    )
    mine, theirs = cost_usd(ours, cache), cost_usd(listed, cache)
    figure(
        f"cache/{name}/{cache}/cost",
        float(mine),
        "USD",
        flat_usd=round(float(theirs), 5),
        of_flat=round(float(mine / theirs), 4),
        flat_requests=len(listed.ledger),
        flat_input_tokens=listed.ledger.input,
        flat_read_tokens=listed.ledger.read,
    )
    if name == "gather-then-plan" and cache == "markers":
        figure("cache/gather-then-plan/front", marked_front(ours), "of the planning stage's prompt", target=0.99)


def marked_front(http: wire.InProcess) -> float:
    """Return the least share of a prompt of the planning stage that lies in front of its last marker.

    Its first request is not counted: the plan is not yet written then.
    """
    shares: list[float] = []
    for exchange in http.journal:
        prompt = exchange.prompt
        if prompt is not None and any(b"plan: the pier" in block.data for block in prompt.blocks):
            marked = max(place for place, block in enumerate(prompt.blocks) if block.marker)
            shares.append(prompt.upto()[marked] / prompt.tokens)
    return min(shares[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", nargs="*", choices=[*WORKLOADS], default=[*WORKLOADS])
    parser.add_argument("--cache", nargs="*", choices=[*MODELS], default=[*MODELS])
    args = parser.parse_args()
    for name in args.workload:
        for cache in args.cache:
            measure(name, cache)


if __name__ == "__main__":
    main()
