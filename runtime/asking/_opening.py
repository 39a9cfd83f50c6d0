"""The opening of a call: what its first message says, and what memory recalls of it."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import replace

import msgspec

from shoal.providers import Text, ToolSet
from shoal.runtime._call_prompt import around_call, inside_of, offer_bytes
from shoal.runtime._live import Live
from shoal.runtime.asking._asking import Asking, candidates
from shoal.runtime.context import INPUT, MEMORY_PREFETCH, opening, stand
from shoal.runtime.events import CallOpened, ScriptFailed
from shoal.runtime.state import BUILD
from shoal.runtime.tools import summary

RECALLED_TOKENS = 500
"""What a call is shown of memory beside what every call is, at most."""


async def open_call(asking: Asking) -> int:
    """Journal that a call begins, with what opens its message."""
    live, asked = asking.live, asking.asked
    serving = candidates(asking)[0]
    recalled = await _recalled(live, asked.prompt)
    state = live.state
    tools = _kept(live, asked.tools.offered) if asked.tools.tools else ""
    at = live.host.clock.stamp()
    named = (serving.provider.name, serving.model, serving.profile.append_only)
    opened = CallOpened(asking.frame, asking.number, (), at, asking.digest, tools, *named)
    inside = replace(
        inside_of(state.frames, state.frames.frames[asking.frame]),
        position=asked.position,
        output=asked.line,
        recalled=recalled,
        input=asked.prompt,
        schema=asked.schema or "",
        time=dt.datetime.fromtimestamp(int(at), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if asked.timestamp else "",
    )
    around = around_call(state, opened, asked.tools.offered, inside)
    blocks, left_out = opening(state.stage.components, around)
    _, also = stand(state.stage.components, around)
    for each in (*left_out, *also):
        _complain(live, each.name, each.error)
    if INPUT not in {name for name, _ in blocks}:
        blocks = (*blocks, (INPUT, Text.of(asked.prompt)))
    return asking.running.emit(msgspec.structs.replace(opened, blocks=blocks))


def _kept(live: Live, offered: ToolSet) -> str:
    """Have the journal hold the tools that a call offers, and return under which digest."""
    data = offer_bytes(offered)
    digest = hashlib.sha256(data).hexdigest()[:32]
    live.host.journal.define(digest, data)
    return digest


def _complain(live: Live, component: str, why: str) -> None:
    if component not in live.state.complained:
        live.emit(ScriptFailed(component, BUILD, "raised", why))


async def _recalled(live: Live, prompt: str) -> str:
    """Return what memory holds of *prompt*; nothing where there is none, or it fails, which is journaled."""
    memory = live.host.memory
    if memory is None or not any(each.name == MEMORY_PREFETCH for each in live.state.stage.components):
        return ""
    try:
        return summary(await memory.recall(prompt), RECALLED_TOKENS) if prompt.strip() else ""
    except Exception as exc:  # noqa: BLE001 - a memory that fails takes no run down, whatever it raises
        _complain(live, MEMORY_PREFETCH, f"{type(exc).__name__}: {exc}")
        return ""
