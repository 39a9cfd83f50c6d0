"""Hooks of stages: scripts that see what a run is about to do, and may change it or stop it.

What a hook decided is an event, and what it changed are events behind it: a replay calls none. A hook that fails, or
says what has no meaning, ends its run with an error: it was put there to guard something.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast, final

import msgspec

from shoal.blueprints import ALWAYS_REGIONS
from shoal.providers import Message, Text
from shoal.runtime._live import Live
from shoal.runtime._own_scripts import own_path
from shoal.runtime._scripting import called, vetted
from shoal.runtime._side import write
from shoal.runtime._transforms import text_of
from shoal.runtime.context import Draft, EntriesReleased, Said, Value, estimate
from shoal.runtime.events import CallMade, HookRan, InferenceCompleted
from shoal.runtime.scripts import ScriptError

Given: TypeAlias = Mapping[str, Value]


class _Stopped(Exception):
    """The hook stops the run; the message says why."""


# --- hooks of their own steps


async def run_hook(live: Live, hook: str, status: str, reason: str) -> None:
    """Run *hook* of the run's stage, which `decide` found due; *status* and *reason* are of the end it comes to."""
    said = await _ask(live, hook, _ending(live, status, reason) if status else _stage_regions(live))
    if isinstance(said, HookRan):
        live.emit(said)
    elif status:
        live.emit(_new_end(live, hook, said))
    else:
        await _set_regions(live, hook, said)


async def before_inference(live: Live) -> bool:
    """Run the hook of that name where the stage has one, and say whether the request may be sent."""
    if "before_inference" not in live.state.stage.stage.hooks:
        return True
    said = await _ask(live, "before_inference", _stage_regions(live))
    if not isinstance(said, HookRan):
        return await _set_regions(live, "before_inference", said)
    if said.action != "allow":
        live.emit(said)
    return said.action == "allow"


# --- hooks of a reply


@final
class Seen(msgspec.Struct, frozen=True):
    """A reply as hooks let it stand, and what they decided; what has no effect is not among it."""

    payload: InferenceCompleted
    decided: tuple[HookRan, ...] = ()


async def seen(live: Live, payload: InferenceCompleted) -> Seen:
    """Return *payload* as the hooks of a reply let it stand; ask before it is journaled."""
    made = Seen(payload)
    hooks = live.state.stage.stage.hooks
    if not hooks:
        return made
    for hook, wanted in (("after_inference", True), ("on_tool_call", bool(payload.calls))):
        stopped = any(ran.action in ("cancel", "failed") for ran in made.decided)
        if hook in hooks and wanted and not stopped:
            ran = await _reply_hook(live, hook, made.payload)
            if ran.action != "allow":
                made = Seen(as_decided(made.payload, ran), (*made.decided, ran))
    return made


def as_decided(payload: InferenceCompleted, ran: HookRan) -> InferenceCompleted:
    """Return *payload* as the decision *ran* leaves it; what its vendor wanted back does not fit it any more."""
    if ran.action != "modify":
        return payload
    text = payload.text if ran.text is None else ran.text
    calls = payload.calls if ran.calls is None else ran.calls
    return msgspec.structs.replace(payload, text=text, calls=calls, state=None)


async def _reply_hook(live: Live, hook: str, payload: InferenceCompleted) -> HookRan:
    calls: list[Value] = [{"name": call.name, "arguments": _arguments(call.arguments)} for call in payload.calls]
    given: dict[str, Value] = _stage(live)
    if hook == "after_inference":
        names: list[Value] = [call.name for call in payload.calls]
        given |= {"response": str(payload.text), "tokens_used": payload.billed.input + payload.billed.output}
        given["tool_calls"] = names
    else:
        given["tool_calls"] = calls
    said = await _ask(live, hook, given)
    if isinstance(said, HookRan):
        return said
    stage = live.state.stage.name
    try:
        if hook == "after_inference":
            return HookRan(hook, stage, "modify", text=_new_text(hook, said.value))
        return HookRan(hook, stage, "modify", calls=_new_calls(said.value))
    except _Stopped as why:
        return _failed(live, hook, str(why))


def _new_text(hook: str, value: Value) -> Text:
    if not isinstance(value, str):
        raise _Stopped(f"`{hook}` gives {type(value).__name__!r} as the new text; give a text as `value`")
    return Text.of(value)


def _new_calls(value: Value) -> tuple[CallMade, ...]:
    if not isinstance(value, list):
        raise _Stopped("`on_tool_call` gives no list of calls as `value`; give a `name` and `arguments` for each")
    made: list[CallMade] = []
    for item in value:
        call: Mapping[str, Value] = item if isinstance(item, dict) else {}
        name, arguments = call.get("name"), call.get("arguments", {})
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            raise _Stopped(f"`on_tool_call` gives the call {item!r:.60}; give a `name` and `arguments`")
        made.append(CallMade(name, Text.of(json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))))
    return tuple(made)


def _arguments(source: Text) -> Value:
    try:
        parsed: Value = msgspec.json.decode(str(source) or "{}")
    except (msgspec.DecodeError, RecursionError):
        return str(source)
    return parsed


# --- asking


@final
class _Modify(msgspec.Struct, frozen=True):
    """The hook gives something new in the place of what it was shown."""

    value: Value


async def _ask(live: Live, hook: str, given: Given) -> _Modify | HookRan:
    """Return what *hook* gives in the place of what it was given, or what it decided otherwise."""
    script = live.state.stage.stage.hooks[hook]
    name = live.state.stage.name
    try:
        value = await called(live, own_path(script), hook, given)
    except ScriptError as error:
        return _failed(live, hook, str(error))
    match value:
        case None | True:
            return HookRan(hook, name, "allow")
        case False:
            return HookRan(hook, name, "cancel")
        case {"action": "modify", "value": new}:
            return _Modify(new)
        case {"action": "cancel"}:
            reason = cast("dict[str, Value]", value).get("reason")
            return HookRan(hook, name, "cancel", " ".join(reason.split()) if isinstance(reason, str) else "")
        case {"action": "retry"}:
            return _failed(live, hook, f"`{hook}` asks for `retry`, which no hook can have; use an edge back instead")
        case _:
            said = (
                f"`{hook}` returned {value!r:.60}; return nothing, or an `action`: `modify` with its `value`, `cancel`"
            )
            return _failed(live, hook, said)


def _failed(live: Live, hook: str, why: str) -> HookRan:
    return HookRan(hook, live.state.stage.name, "failed", why)


# --- what hooks are given


def _stage(live: Live) -> dict[str, Value]:
    program = live.state.stage
    return {"stage": program.name, "stage_index": program.position}


def _stage_regions(live: Live) -> Given:
    view = live.state.view
    return {**_stage(live), "regions": {name: text_of(view.states[name]) for name in view.layout.regions}}


def _ending(live: Live, status: str, reason: str) -> Given:
    if status == "error":
        return {**_stage(live), "status": status, "error": reason}
    state = live.state
    output = state.output if state.output is not None else state.last_text
    return {**_stage(live), "status": status, "output": str(output) or None}


# --- what hooks change


def _new_end(live: Live, hook: str, said: _Modify) -> HookRan:
    state = live.state
    try:
        text = _new_text(hook, said.value)
    except _Stopped as why:
        return _failed(live, hook, str(why))
    if hook == "on_completion" and state.output is None and not state.last_text:
        return _failed(live, hook, "`on_completion` gives a new answer, and there is none that it could replace")
    return HookRan(hook, state.stage.name, "modify", text=text)


async def _set_regions(live: Live, hook: str, said: _Modify) -> bool:
    """Give regions the texts that a hook gives them, and say whether that could be done."""
    try:
        texts = _new_regions(live, hook, said.value)
    except _Stopped as why:
        live.emit(_failed(live, hook, str(why)))
        return False
    drafts = {name: _draft(text) for name, text in texts.items()}
    vetted_drafts: dict[str, Said] = {}
    for name, draft in drafts.items():
        if draft is not None:
            vetted_drafts[name] = await vetted(live, name, draft, replaces=_ids(live, name))
    live.emit(HookRan(hook, live.state.stage.name, "modify"))
    for name, draft in drafts.items():
        _set(live, name, draft, vetted_drafts.get(name))
    return True


def _draft(text: str) -> Draft | None:
    message = Message("user", (Text.of(text),))
    return Draft("text", message, max(1, estimate(message)), writer="routing") if text else None


def _ids(live: Live, region: str) -> tuple[int, ...]:
    return tuple(entry.entry_id for entry in live.state.view.states[region].all_entries())


def _set(live: Live, region: str, draft: Draft | None, said: Said | None) -> None:
    """Let *region* hold *draft* and nothing else; `None` empties it."""
    state = live.state.view.states[region]
    ids = _ids(live, region)
    if draft is not None and said is not None:
        write(live, region, draft, replaces=ids, said=said)
    elif ids:
        live.emit(EntriesReleased(region, ids, state.tokens))


_WITHOUT_TEXT = ("hashmap", "checklist")


def _new_regions(live: Live, hook: str, value: Value) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise _Stopped(f"`{hook}` gives no texts by region as `value`")
    view = live.state.view
    for name, text in value.items():
        if not view.layout.sees(name):
            seen_here: Sequence[str] = tuple(view.layout.regions)
            raise _Stopped(f"`{hook}` names the region {name!r}, and the stage sees {', '.join(seen_here)}")
        kind = view.layout.regions[name].kind
        if name in ALWAYS_REGIONS or kind in _WITHOUT_TEXT:
            raise _Stopped(f"`{hook}` gives a text to `{name}`, which holds more than one can say; leave it out")
        if not isinstance(text, str):
            raise _Stopped(f"`{hook}` gives {type(text).__name__!r} to the region `{name}`; give a text")
    return cast("dict[str, str]", value)
