"""Tools that a run finds in its own folder: `tools/NAME.py` in the working directory, looked for between turns.

They are scripts, and run in the sandbox as those do that a blueprint ships. What was found stands in the journal; one
that cannot be used is named in an event, once, and offered to nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

import anyio.to_thread
import msgspec

from shoal.errors import SpawnRefused, ToolInvalid
from shoal.runtime._live import Live
from shoal.runtime._own_scripts import RUN, Use, look
from shoal.runtime._script_tools import ToolFile, script_tool, signature, tool_files
from shoal.runtime.events import ScriptFailed, ToolsFound
from shoal.runtime.scripts import Script
from shoal.runtime.tools import BUILT_IN, compiled


async def rescan(live: Live) -> None:
    """Look for the run's own tools, and journal what is there where that is not what was there before."""
    workdir = live.context.workdir
    seen = await anyio.to_thread.run_sync(signature, workdir, limiter=live.host.threads)
    if seen == live.scanned:
        return
    live.scanned = seen
    files = await anyio.to_thread.run_sync(tool_files, workdir, limiter=live.host.threads)
    usable = await _usable(live, files)
    found = tuple([(file.path, digest_of(file)) for file in usable])
    if found == live.state.own_files:
        return
    for file in usable:
        live.host.journal.define(digest_of(file), packed(file))
    await live.durable()  # whoever reads the event finds what it names
    live.emit(ToolsFound(found))


async def _usable(live: Live, files: Sequence[ToolFile]) -> Sequence[ToolFile]:
    taken = {*BUILT_IN, *live.state.program.outside}
    usable: list[ToolFile] = []
    for file in files:
        why = await _problem(live, file, taken)
        if why:
            live.emit(ScriptFailed(file.path, RUN, "missing", why))
        else:
            usable.append(file)
            taken.add(script_tool(file).name)
    return usable


async def _problem(live: Live, file: ToolFile, taken: Collection[str]) -> str:
    """Return why *file* is no tool; empty where it is one."""
    try:
        tool = script_tool(file)
        await look(Script(file.path, file.source), Use(file.path, file.path, RUN), live.host.sandbox)
    except (ToolInvalid, SpawnRefused) as refused:
        return str(refused)
    _, why = compiled(tool.spec.schema)
    if why:
        return f"the parameters of {file.path!r} are no JSON schema: {why}"
    return f"{file.path!r} calls its tool `{tool.name}`, as another is called; rename it" if tool.name in taken else ""


def packed(file: ToolFile) -> bytes:
    """Return *file* as the journal keeps it."""
    return msgspec.json.encode(file)


def digest_of(file: ToolFile) -> str:
    """Return what the journal keeps *file* under."""
    return hashlib.sha256(packed(file)).hexdigest()[:32]
