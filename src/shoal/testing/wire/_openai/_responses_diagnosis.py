"""Why the cache could not be used again: `prompt_cache_diagnostics`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._openai._responses_request import Stored
from shoal.testing.wire._prompt import Prompt


def diagnosis(body: Json, known: Mapping[str, Stored], prompt: Prompt, read: int) -> Any:
    """Return the reply's `prompt_cache_diagnostics`; `None` if the request compares with nothing."""
    compared = obj(body.get("prompt_cache_options")).get("comparison_response_id")
    if compared is None:
        return None
    if compared not in known:
        return {"type": "comparison_response_not_found"}
    before = known[compared]
    reason = _difference(before, body, prompt)
    if reason is None or read >= before.cached:
        return {"type": "cache_hit"}
    missed = before.cached - read
    return {
        "type": "cache_miss",
        "reason": reason,
        "cache_missed_tokens": missed,
        "comparison_reusable_tokens": before.cached,
    }


def _difference(before: Stored, body: Json, prompt: Prompt) -> str | None:
    """Return what differs, the outermost first; `None` if items were only appended."""
    pairs = (
        ("model_changed", before.prompt.model, prompt.model),
        ("prompt_cache_key_changed", before.body.get("prompt_cache_key"), body.get("prompt_cache_key")),
        ("service_tier_changed", before.body.get("service_tier"), body.get("service_tier")),
        ("tools_changed", _data(before.prompt, "tools"), _data(prompt, "tools")),
        ("text_format_changed", _data(before.prompt, "format"), _data(prompt, "format")),
        ("reasoning_effort_changed", _effort(before.body), _effort(body)),
        ("verbosity_changed", _verbosity(before.body), _verbosity(body)),
    )
    for reason, theirs, ours in pairs:
        if theirs != ours:
            return reason
    theirs, ours = (_data(one, "instructions") + _data(one, "messages") for one in (before.prompt, prompt))
    return None if ours[: len(theirs)] == theirs else "input_changed"


def _data(prompt: Prompt, tier: str) -> list[bytes]:
    return [block.data for block in prompt.blocks if block.tier == tier]


def _effort(body: Json) -> Any:
    return obj(body.get("reasoning")).get("effort")


def _verbosity(body: Json) -> Any:
    return obj(body.get("text")).get("verbosity")
