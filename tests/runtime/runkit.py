"""What tests of whole runs share: small blueprints, a scripted swarm, and the check that events are the whole truth."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from shoal.blueprints import Blueprint, CallerSeed, Edge, Region, Stage
from shoal.providers import Provider, Request
from shoal.runtime import (
    Event,
    Journal,
    Limits,
    MemoryJournal,
    Outcome,
    Permissions,
    Run,
    RunState,
    Swarm,
    virtual,
)
from shoal.testing import ScriptedProvider, request_json

TASK = Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"), volatility="stable")
NOTES = Region("notes", kind="pinned", max_tokens=500)
TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None)


def blueprint(*stages: Stage, regions: Sequence[Region] = (TASK, NOTES, TALK), **more: Any) -> Blueprint:
    """Return a blueprint named `test` of *stages*."""
    return Blueprint("test", tuple(stages), regions=tuple(regions), **more)


def stage(name: str = "work", **more: Any) -> Stage:
    """Return a stage that may write to its regions, which is what most tests need of one."""
    more.setdefault("available_tools", ("context_append",))
    return Stage(name, **more)


def edge(target: str, **more: Any) -> Edge:
    """Return an edge to *target*."""
    return Edge(target, **more)


@asynccontextmanager
async def swarm_of(
    *providers: Provider, journal: Journal | None = None, seed: int = 0, **more: Any
) -> AsyncIterator[Swarm]:
    """Open a swarm on virtual time; what is still waited for after a virtual day fails the test."""
    with anyio.fail_after(86_400):
        async with Swarm(providers, journal or MemoryJournal(), clock=virtual(seed=seed), **more) as swarm:
            yield swarm


async def run_once(
    made: Blueprint,
    provider: Provider,
    *,
    task: str | None = "the task",
    limits: Limits | None = None,
    permissions: Permissions | None = None,
    **more: Any,
) -> tuple[Outcome, list[Event]]:
    """Run *made* once, check that its events add up to its live state, and return how it ended with its events."""
    async with swarm_of(provider, limits=limits, permissions=permissions) as swarm:
        run = await swarm.spawn(made, task=task, **more)
        outcome = await run.result()
        return outcome, events_of(swarm, run)


def events_of(swarm: Swarm, run: Run[Any]) -> list[Event]:
    """Return the events of *run*."""
    return list(swarm.journal.read(run.run_id))


def kinds(events: Sequence[Event], *wanted: str) -> list[str]:
    """Return the kinds of *events*, in order; only the *wanted* ones where any are named."""
    return [event.kind for event in events if not wanted or event.kind in wanted]


def payloads(events: Sequence[Event], kind: str) -> list[Any]:
    """Return the payloads of the events of *kind*, in order."""
    return [event.payload for event in events if event.kind == kind]


def stages_of(events: Sequence[Event]) -> list[str]:
    """Return the stages that were entered, in order."""
    return [payload.stage for payload in payloads(events, "StageEntered")]


def bodies(provider: ScriptedProvider, purpose: str = "stage") -> list[dict[str, Any]]:
    """Return the requests for *purpose* as their vendor would read them, in order."""
    return [request_json(request) for request in provider.requests if request.purpose == purpose]


def sent(request: Request) -> str:
    """Return everything that *request* sends, as one text."""
    return str(request_json(request))


def messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    """Return role and text of each message behind the system section."""
    return [(m["role"], str(m.get("content") or "")) for m in body["messages"] if m["role"] != "system"]


def system_text(body: dict[str, Any]) -> str:
    """Return the system section of a request."""
    return "\n\n".join(str(m["content"]) for m in body["messages"] if m["role"] == "system")


def folded(swarm: Swarm, run: Run[Any]) -> RunState:
    """Return what the journal of *run* adds up to, without its live state."""
    return swarm.hall.home.load(run.run_id)


def write_files(folder: Path, files: dict[str, str]) -> Path:
    """Write *files* below *folder* and return it."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
