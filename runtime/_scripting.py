"""Scripts of a live run: the window says what has to be asked, this asks, and a failure costs a warning and no more.

What a script decided stands in the events that follow from it, so that a replay runs none.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Literal, final

import msgspec

from shoal.errors import ConfigInvalid
from shoal.providers import TEXT_ONLY, Intake, Message
from shoal.runtime._live import Live
from shoal.runtime._own_scripts import own_path
from shoal.runtime.context import (
    ACCEPTED,
    NOTHING_SAID,
    REGION_HOOKS,
    Draft,
    Misread,
    Rendering,
    Said,
    ScriptCall,
    SeedBlock,
    Wrote,
    estimate,
    named,
    read_overflow,
    read_render,
    read_write,
)
from shoal.runtime.events import ScriptFailed
from shoal.runtime.scripts import Plain, ScriptError


@final
class Returned(msgspec.Struct, frozen=True):
    """What a function of a script returned."""

    value: Plain


async def call_script(live: Live, path: str, function: str, given: Plain, *, about: str = "") -> Returned | None:
    """Call *function* of the run's script at *path*; a failure is journaled and gives `None`.

    Args:
        live: The run.
        path: The script, as the blueprint writes it.
        function: The function.
        given: What it is given.
        about: The region whose script it is; empty for another one.
    """
    try:
        return Returned(await called(live, path, function, given, about=about))
    except ScriptError as error:
        live.emit(ScriptFailed(path, function, error.reason, str(error), about))
    return None


async def called(live: Live, path: str, function: str, given: Plain, *, about: str = "") -> Plain:
    """Call *function* of the run's script at *path* and return what it gives.

    Raises:
        ScriptError: It came to nothing.
    """
    seed = zlib.crc32(f"{live.run_id} {live.state.seq} {about} {function}".encode())
    try:
        script = live.script(path)
        return await live.host.sandbox.call(script, function, given, at=live.host.clock.unix(), seed=seed)
    except ConfigInvalid as exc:  # it could run where the run was spawned
        raise ScriptError("missing", str(exc)) from exc


# --- custom regions


async def _asked(live: Live, call: ScriptCall) -> Returned | None:
    """Make *call*; `None` where the script has no such function, or failed."""
    script = live.state.view.states[call.region].region.script
    assert script is not None  # a custom region has one
    path = own_path(script)
    try:
        known = await live.host.sandbox.defines(live.script(path), REGION_HOOKS)
    except (ScriptError, ConfigInvalid) as exc:
        reason = exc.reason if isinstance(exc, ScriptError) else "missing"
        live.emit(ScriptFailed(path, call.hook, reason, str(exc), call.region))
        return None
    if call.hook not in known:
        return None
    return await call_script(live, path, call.hook, call.ctx, about=call.region)


def _misread(live: Live, call: ScriptCall, why: Misread | str, reason: str = "misread") -> None:
    script = live.state.view.states[call.region].region.script or ""
    live.emit(ScriptFailed(own_path(script), call.hook, reason, str(why), call.region))


async def vetted(
    live: Live,
    region: str,
    draft: Draft,
    *,
    most_tokens: int | None = None,
    replaces: Sequence[int] = (),
    joins: bool = False,
    refusable: bool = False,
) -> Said:
    """Return what the script of *region* says of a write; nothing where the region has none.

    Ask before the first event of what the write belongs to: nothing may come between those.

    Args:
        live: The run.
        region: The region.
        draft: What is to be written.
        most_tokens: It is cut to this.
        replaces: Ids of the entries that it takes the place of.
        joins: It answers a call of the newest group.
        refusable: The writer can be told no: it is the model, or a tool whose result is routed.
    """
    if live.state.view.states[region].region.kind != "custom":
        return NOTHING_SAID
    said = Said(refusable=refusable)
    while True:
        call = live.state.view.write_call(region, draft, said, most_tokens=most_tokens, replaces=replaces, joins=joins)
        if call is None:
            return said
        said = await heard(live, call, said)


async def heard(live: Live, call: ScriptCall, said: Said) -> Said:
    """Make *call*, which a write waits for, and return *said* with what came of it."""
    if call.hook == "on_overflow":
        return msgspec.structs.replace(said, frees=await _freed(live, call))
    said = msgspec.structs.replace(said, wrote=await _decided(live, call))
    if said.overruled:
        why = "it refused what the runtime keeps in any case; the entry is stored unchanged"
        _misread(live, call, why, "overruled")
    return said


async def vetted_blocks(
    live: Live, region: str, blocks: Sequence[SeedBlock]
) -> tuple[tuple[SeedBlock, ...], tuple[tuple[str, str], ...]]:
    """Return what a seed gave, as the script of *region* makes of it; what the blueprint seeds it cannot refuse.

    Returns:
        The blocks, in order, and the keys that it gave, by name of the block.
    """
    if live.state.view.states[region].region.kind != "custom":
        return tuple(blocks), ()
    made: list[SeedBlock] = []
    keys: list[tuple[str, str]] = []
    for block in named(blocks):
        message = Message("user", (block.text,), blobs=live.state.shelf.blobs(block.parts))
        draft = Draft("text", message, block.tokens, writer="seed", parts=block.parts)
        call = live.state.view.write_call(region, draft, NOTHING_SAID) if block.ok else None
        wrote = ACCEPTED if call is None else (await heard(live, call, NOTHING_SAID)).wrote or ACCEPTED
        text = block.text if wrote.content is None else wrote.content
        made.append(msgspec.structs.replace(block, text=text, tokens=wrote.on(draft).tokens))
        keys += [] if wrote.key is None else [(block.name, wrote.key)]
    return tuple(made), tuple(keys)


async def _decided(live: Live, call: ScriptCall) -> Wrote:
    returned = await _asked(live, call)
    try:
        return ACCEPTED if returned is None else read_write(returned.value)
    except Misread as why:
        _misread(live, call, why)
    return ACCEPTED


async def _freed(live: Live, call: ScriptCall) -> tuple[int, ...]:
    returned = await _asked(live, call)
    try:
        return () if returned is None else read_overflow(returned.value, call)
    except Misread as why:
        _misread(live, call, why)
    return ()


async def frees(live: Live, calls: Iterable[ScriptCall]) -> dict[str, tuple[int, ...]]:
    """Make *calls* of `on_overflow` and return what goes, by region."""
    return {call.region: await _freed(live, call) for call in calls}


async def render(live: Live) -> None:
    """Have the custom regions of the stage rendered for the next request; one that fails shows its entries as text."""
    state = live.state
    visit = state.visit
    assert visit is not None  # a request belongs to a visit
    view = state.view
    if not view.scripted:
        return
    for call in view.render_calls(state.serving[1], visit.iterations):
        known = live.renders.get(call.region)
        if known is None or known[0] != call:
            known = live.renders[call.region] = (call, await _rendered(live, call))
        if view.states[call.region].rendering is not known[1]:
            view.show(call.region, known[1])


async def _rendered(live: Live, call: ScriptCall) -> Rendering | None:
    returned = await _asked(live, call)
    if returned is None:
        return None
    try:
        return read_render(returned.value)
    except Misread as why:
        _misread(live, call, why)
    return None


def kept_renders(live: Live) -> tuple[tuple[str, str], ...]:
    """Have the journal hold what the custom regions of the stage show, and return the digests by region."""
    made: list[tuple[str, str]] = []
    if not live.state.view.scripted:
        return ()
    for name in live.state.view.layout.regions:
        rendering = live.state.view.states[name].rendering
        if isinstance(rendering, Rendering):
            live.host.journal.define(rendering.digest, rendering.data)
            made.append((name, rendering.digest))
    return tuple(made)


def draft_of(
    message: Message,
    kind: Literal["user_message", "assistant_turn"],
    seq: int = 0,
    *,
    parts: tuple[int, ...] = (),
    intake: Intake = TEXT_ONLY,
) -> Draft:
    """Return *message*, whose text event *seq* holds, as a draft.

    Args:
        message: What is said.
        kind: What it is.
        seq: The event; 0 where it is still to come.
        parts: Seqs of its stored parts.
        intake: What the model takes beside text.
    """
    return Draft(kind, message, max(1, estimate(message, intake)), seq, parts=parts)
