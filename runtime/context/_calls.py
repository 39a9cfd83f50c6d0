"""What the scripts of custom regions are asked: calls with a plain copy of everything they may see.

The window never runs a script. What needs one returns its call; the run makes it and hands back what came of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Region
from shoal.providers import TEXT_ONLY, Blob, Intake
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft, Entry, said_in
from shoal.runtime.context._store import RegionState

Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"
Hook: TypeAlias = Literal["render", "on_write", "on_overflow"]

REGION_HOOKS: tuple[Hook, ...] = ("render", "on_write", "on_overflow")


@final
class ScriptCall(msgspec.Struct, frozen=True):
    """A call that somebody has to make in the window's place.

    Args:
        region: The region whose script is called.
        hook: The function.
        ctx: What it is given, a plain copy.
        groups: Of `on_overflow`: ids of the group that each index of `entries` belongs to.
    """

    region: str
    hook: Hook
    ctx: Mapping[str, Value]
    groups: tuple[tuple[int, ...], ...] = ()


@final
class Scene(msgspec.Struct, frozen=True):
    """What `render` may know beside its region: stage, inferences of this visit, model, and fill of the window."""

    stage: str
    iterations: int
    model: str
    total_tokens: int
    max_tokens: int


def render_call(state: RegionState, ratio: float, scene: Scene, intake: Intake = TEXT_ONLY) -> ScriptCall:
    """Return the call that renders *state* for a model with that *intake*."""
    ctx: dict[str, Value] = {
        "region": _region(state, state.limits.estimated(ratio)),
        "entries": [_entry(entry, intake) for entry in unshadowed(state)],
        "stage_name": scene.stage,
        "stage_iterations": scene.iterations,
        "model": scene.model,
        "window": {"total_tokens": scene.total_tokens, "max_tokens": scene.max_tokens},
    }
    return ScriptCall(state.region.name, "render", ctx)


def write_call(state: RegionState, draft: Draft, limits: Limits) -> ScriptCall:
    """Return the call that is asked what becomes of *draft*. *limits* are in estimated tokens."""
    entry: Value = {
        "content": said_in(draft.message),
        "kind": _kind(draft.kind),
        "tokens": draft.tokens,
        "key": draft.key,
    }
    return ScriptCall(state.region.name, "on_write", {"region": _region(state, limits), "entry": entry})


def overflow_call(state: RegionState, needed_tokens: int, limits: Limits, intake: Intake = TEXT_ONLY) -> ScriptCall:
    """Return the call that is asked what goes so that *needed_tokens* become free.

    Args:
        state: The region.
        needed_tokens: What is wanted, 1 or more.
        limits: Its limits, in estimated tokens.
        intake: What the model takes beside text.
    """
    groups = tuple(group.ids for group in state.groups() for _ in group.entries)
    ctx: dict[str, Value] = {
        "region": _region(state, limits),
        "entries": [_entry(entry, intake) for entry in state.all_entries()],
        "needed_tokens": needed_tokens,
    }
    return ScriptCall(state.region.name, "on_overflow", ctx, groups)


def unshadowed(state: RegionState) -> Iterable[Entry]:
    """Return what `render` sees: of entries that share a key the newest, where the first of them stands."""
    shown: dict[object, Entry] = {}
    for entry in state.all_entries():
        shown[entry.entry_id if entry.key is None else entry.key] = entry
    return shown.values()


def _region(state: RegionState, limits: Limits) -> Value:
    region: Region = state.region
    return {
        "name": region.name,
        "budget": limits.budget,
        "current_tokens": state.tokens,
        "entry_count": state.entries,
    }


def _kind(kind: str) -> str:
    return "text" if kind == "summary" else kind


def _entry(entry: Entry, intake: Intake) -> Value:
    message = entry.message
    made: dict[str, Value] = {
        "content": said_in(message),
        "tokens": entry.tokens,
        "timestamp": entry.created,
        "key": entry.key,
        "kind": _kind(entry.kind),
        "parts": [*_texts(message.text), *[_part(blob, intake) for blob in message.blobs]],
    }
    if entry.kind == "assistant_turn":
        made["tool_calls"] = [
            {"id": call.call_id, "name": call.name, "arguments": _arguments(str(call.arguments))}
            for call in message.calls
        ]
    if entry.kind == "tool_result":
        made |= {"tool_call_id": message.call_id, "tool_name": message.tool_name, "is_error": message.is_error}
    return made


def _texts(text: str) -> list[Value]:
    return [{"mime_type": "text/plain", "text": text}] if text else []


def _part(blob: Blob, intake: Intake) -> Value:
    if blob.text is not None:
        return {"mime_type": blob.mime, "name": blob.name, "text": str(blob.text)}
    return {
        "mime_type": blob.mime,
        "name": blob.name,
        "sha256": blob.digest.hex(),
        "size": blob.size,
        "width": blob.width_px,
        "height": blob.height_px,
        "tokens": intake.tokens(blob),
        "stand_in": str(blob.stand_in),
    }


def _arguments(source: str) -> Value:
    """Return the arguments of a call as values; what is no JSON object, as the text that it is."""
    try:
        parsed: Value = msgspec.json.decode(source or "{}")
    except (msgspec.DecodeError, RecursionError):
        return source
    return parsed
