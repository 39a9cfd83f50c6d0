"""The settings of an Anthropic Messages body: what is asked for, as far as the model takes it.

Source: Anthropic's pages on thinking, tool use, effort, structured outputs and API versions (August to November 2026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec

from shoal.errors import ProviderRefused
from shoal.providers._json import as_count, as_list, as_object, as_text
from shoal.providers._legality import tool_name
from shoal.providers._options import nearest
from shoal.providers._schemas import closed_schema
from shoal.providers._values import ModelProfile, Request

Settings: TypeAlias = dict[str, Any]

MIN_BUDGET = 1024
SAMPLING_ENDS = "2026-10-21"
LEVELS = ("low", "medium", "high", "xhigh", "max")
"""Of effort, lowest first."""

_MADE_FROM_REQUEST = frozenset({"cache_control", "max_tokens", "messages", "model", "stream", "system", "tools"})
_SAMPLING = frozenset({"temperature", "top_k", "top_p"})
_NOT_COUNTED = frozenset(
    {"container", "diagnostics", "inference_geo", "max_tokens", "metadata", "service_tier", "speed", "stop_sequences"}
) | {"stream", *_SAMPLING}
_HIGH = ("xhigh", "max")


def settings_of(
    request: Request,
    profile: ModelProfile,
    *,
    names: Mapping[str, str],
    thinks: bool | None,
    version: str,
    provider: str,
    counting: bool,
) -> Settings:
    """Return the fields of the body that stand beside tools, system section and messages.

    What the profile says that the model would refuse is left out, or put as near as it takes.

    Args:
        request: The request.
        profile: What is known of the model.
        names: Our name of each tool, by the name that is sent.
        thinks: The last assistant turn brings back what its model thought; `None` where there is no such turn.
        version: The API version.
        provider: Named in errors.
        counting: Only what the counting endpoint takes.

    Raises:
        ProviderRefused: An option would replace what the request itself says, or a schema cannot be sent.
    """
    options = dict(request.options)
    for name in sorted(_MADE_FROM_REQUEST.intersection(options)):
        why = f"the option `{name}` is made from the request itself; remove it from `options`"
        raise ProviderRefused(why, provider=provider, model=request.model)
    max_tokens = max(1, min(request.max_tokens, profile.max_output_tokens))
    settings: Settings = {**options, "model": request.model, "max_tokens": max_tokens, "stream": True}
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    _set_thinking(settings, profile, max_tokens, thinks=thinks)
    _set_output(settings, request, profile, provider)
    _set_tool_choice(settings, profile, names)
    _set_sampling(settings, profile, version)
    stops = [text for text in as_list(settings.pop("stop_sequences", ())) if as_text(text).strip()]
    if stops:
        settings["stop_sequences"] = stops
    return {name: value for name, value in settings.items() if not (counting and name in _NOT_COUNTED)}


def _set_thinking(settings: Settings, profile: ModelProfile, max_tokens: int, *, thinks: bool | None) -> None:
    thinking = dict(as_object(settings.pop("thinking", None)))
    kind = as_text(thinking.get("type"))
    if not kind:
        return
    taken = profile.thinking
    if taken is not None and kind not in taken:
        # The other way of asking for the same; what can be had in no way is left to the model.
        other = {"adaptive": "enabled", "enabled": "adaptive"}.get(kind, "")
        if other not in taken:
            return
        thinking = {"type": other, **{key: value for key, value in thinking.items() if key == "display"}}
        kind = other
    if kind == "enabled":
        budget = min(as_count(thinking.get("budget_tokens", max_tokens // 2)), max_tokens - 1)
        if budget < MIN_BUDGET or thinks is False:
            # Too short a reply to think in; or a turn of another model is to be gone on with, which has no thoughts.
            return
        thinking["budget_tokens"] = budget
    settings["thinking"] = thinking


def _set_output(settings: Settings, request: Request, profile: ModelProfile, provider: str) -> None:
    output = dict(as_object(settings.pop("output_config", None)))
    effort = output.pop("effort", None)
    if effort in LEVELS and profile.efforts != ():
        disabled = as_object(settings.get("thinking")).get("type") == "disabled"
        output["effort"] = nearest(effort, profile.efforts or LEVELS)
        if disabled and output["effort"] in _HIGH:
            output["effort"] = "high"
    if request.output is not None:
        schema = msgspec.json.decode(request.output.schema)
        output["format"] = {"type": "json_schema", "schema": closed_schema(schema, provider, request.model)}
    if not profile.structured_output:
        output.pop("format", None)
    if output:
        settings["output_config"] = output


def _set_tool_choice(settings: Settings, profile: ModelProfile, names: Mapping[str, str]) -> None:
    choice = dict(as_object(settings.pop("tool_choice", None)))
    if not choice or not names:
        return
    if choice.get("type") == "tool":
        choice["name"] = tool_name(as_text(choice.get("name")))
        if choice["name"] not in names:
            return
    manual = as_object(settings.get("thinking")).get("type") == "enabled"
    if choice.get("type") in ("any", "tool") and (manual or not profile.forced_tools):
        choice.pop("name", None)
        choice["type"] = "auto"
    settings["tool_choice"] = choice


def _set_sampling(settings: Settings, profile: ModelProfile, version: str) -> None:
    thinking = as_object(settings.get("thinking")).get("type", "disabled") != "disabled"
    if not profile.temperature or version >= SAMPLING_ENDS or thinking:
        for name in _SAMPLING:
            settings.pop(name, None)
    if isinstance(settings.get("temperature"), int | float):
        settings["temperature"] = min(max(settings["temperature"], 0), 1)
        settings.pop("top_p", None)  # one of the two is taken
