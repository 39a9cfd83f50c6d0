"""What components of the prompt need to know of the machine and of memory: looked up once, when a run begins.

What was found stands in the journal under its digest, so that a run shows the same after its machine has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import final

import anyio.to_thread
import msgspec

from shoal.runtime._host import Host
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime.context import ENVIRONMENT, GIT_FLAG, MEMORY, PROJECT_CHARS, PROJECT_FILES
from shoal.runtime.events import FactsRecorded, MemoryLoaded
from shoal.runtime.program import Program
from shoal.runtime.tools import MEMORY as MEMORY_TOOLS
from shoal.runtime.tools import environment, shell_path

MEMORY_TOKENS = 2_000
"""What of a memory every run is shown, at most."""


@final
class Found(msgspec.Struct, frozen=True):
    """What was looked up for a run: its events, and the definitions that they name, by digest."""

    events: tuple[FactsRecorded | MemoryLoaded, ...] = ()
    definitions: Mapping[str, bytes] = {}


async def look_up(host: Host, program: Program, workdir: Path) -> Found:
    """Return what the components of *program* need to know; nothing is looked up that none of them says."""
    used = {component.name for stage in program.stages.values() for component in stage.components}
    lookers: Mapping[str, Callable[[], Mapping[str, str]]] = {
        ENVIRONMENT: lambda: _environment(host),
        PROJECT_FILES: lambda: _project_files(workdir),
        GIT_FLAG: lambda: {"inside": "true"} if _in_git(workdir) else {},
    }
    wanted = [name for name in lookers if name in used]
    events: list[FactsRecorded | MemoryLoaded] = []
    definitions: dict[str, bytes] = {}
    if wanted:
        facts = await anyio.to_thread.run_sync(lambda: {name: lookers[name]() for name in wanted}, limiter=host.threads)
        for name, found in facts.items():
            struck = {key: host.secrets.strike_plain(value) for key, value in found.items()}
            events.append(FactsRecorded(name, _kept(definitions, struck)))
    if host.memory is not None and (MEMORY in used or _remembers(program)):
        events.append(await _remembered(host, definitions))
    return Found(tuple(events), definitions)


def _kept(definitions: dict[str, bytes], facts: Mapping[str, str]) -> str:
    data = json.dumps(dict(facts), sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()[:32]
    definitions[digest] = data
    return digest


def _remembers(program: Program) -> bool:
    stages = program.stages.values()
    return any(not MEMORY_TOOLS.isdisjoint((*stage.tools, *stage.deferred)) for stage in stages)


async def _remembered(host: Host, definitions: dict[str, bytes]) -> MemoryLoaded:
    memory = host.memory
    assert memory is not None  # the caller looked
    try:
        held = host.secrets.strike_plain(await memory.resident(MEMORY_TOKENS))
        place = memory.place
    except Exception as exc:  # noqa: BLE001 - a memory that fails takes no run down, whatever it raises
        return MemoryLoaded("raised", _kept(definitions, {}), f"{type(exc).__name__}: {exc}")
    facts = {"place": place, "held": held}
    return MemoryLoaded("healthy" if held.strip() else "empty", _kept(definitions, facts))


# --- the machine


def _environment(host: Host) -> Mapping[str, str]:
    state = getattr(host.journal, "path", None)
    return {
        "system": f"{platform.system()} {platform.release()}",
        "shell": shell_path(environment(os.environ).values["PATH"]),
        **({"state": str(Path(state).parent.resolve())} if state is not None else {}),
    }


def _in_git(workdir: Path) -> bool:
    return any((folder / ".git").exists() for folder in (workdir, *workdir.parents))


def _project_files(workdir: Path) -> Mapping[str, str]:
    """Return the files of the project that prompts may show, each cut at its cap; links that lead out are none."""
    found: dict[str, str] = {}
    for name, most in PROJECT_CHARS.items():
        try:
            with os.fdopen(open_inside(workdir, name), "rb") as file:
                data = file.read(4 * most + 4)  # a character has four bytes at most
        except PathRefused:
            continue
        text = data.decode("utf-8", "replace").strip()
        if text:
            found[name] = text if len(text) <= most else f"{text[:most]}\n[cut at {most:,} characters]"
    return found
