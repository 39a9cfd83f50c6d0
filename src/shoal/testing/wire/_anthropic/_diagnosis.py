"""Why the cache could not be used again: `diagnostics.cache_miss_reason`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from shoal.testing.wire._prompt import Prompt


@final
@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What the vendor keeps of a request to compare a later one with.

    Args:
        prompt: What it made the model read.
        cached: Tokens of it that a later request could have read.
    """

    prompt: Prompt
    cached: int


def diagnosis(asked: Mapping[str, Any] | None, known: Mapping[str, Fingerprint], prompt: Prompt, read: int) -> Any:
    """Return the reply's `diagnostics`.

    Args:
        asked: The request's `diagnostics`; `None` if it has none.
        known: The fingerprints of earlier replies, by message id.
        prompt: What this request makes the model read.
        read: Tokens that it read from the cache.

    Returns:
        `None` if nothing was asked or nothing differs.
    """
    previous = (asked or {}).get("previous_message_id")
    if previous is None:
        return None
    if previous not in known:
        return {"cache_miss_reason": {"type": "previous_message_not_found"}}
    before = known[previous]
    kind = _difference(before.prompt, prompt)
    if kind is None:
        return None
    missed = max(0, before.cached - read)
    return {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": missed}}


def _difference(before: Prompt, now: Prompt) -> str | None:
    """Return which part differs; `None` if blocks were only appended."""
    if before.model != now.model:
        return "model_changed"
    for tier, kind in (("tools", "tools_changed"), ("system", "system_changed")):
        if _data(before, tier) != _data(now, tier) or before.tiers[tier] != now.tiers[tier]:
            return kind
    theirs, ours = _data(before, "messages"), _data(now, "messages")
    same = ours[: len(theirs)] == theirs and before.tiers["messages"] == now.tiers["messages"]
    return None if same else "messages_changed"


def _data(prompt: Prompt, tier: str) -> list[bytes]:
    return [block.data for block in prompt.blocks if block.tier == tier]
