"""Shoal: an actor runtime for swarms of language-model agents, each with a context window cut into regions.

    async with shoal.Swarm() as swarm:
        run = await swarm.spawn("digest", task="What is in here?", workdir="docs")
        print((await run.result()).output)

Importing this reads no environment, sets up no logging and loads nothing: each name comes with its first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal import actors as actors
    from shoal import blueprints as blueprints
    from shoal import errors as errors
    from shoal import observability as observability
    from shoal import providers as providers
    from shoal import runtime as runtime
    from shoal._once import run
    from shoal._swarm import Swarm
    from shoal.actors import Backoff, ChildSpec, DynamicSupervisor, Supervisor, Worker
    from shoal.blueprints import Blueprint, Edge, Region, Stage, load
    from shoal.errors import (
        BlueprintError,
        MailboxError,
        ProviderError,
        RunError,
        ShoalError,
        SupervisorError,
    )
    from shoal.providers import Usage
    from shoal.runtime import Context, ContextComponent, Event, Ledger, Outcome, Run, agent, agentic, tool

    __version__: str

_HOMES = {
    "shoal._once": ("run",),
    "shoal._swarm": ("Swarm",),
    "shoal.actors": ("Backoff", "ChildSpec", "DynamicSupervisor", "Supervisor", "Worker"),
    "shoal.blueprints": ("Blueprint", "Edge", "Region", "Stage", "load"),
    "shoal.errors": ("BlueprintError", "MailboxError", "ProviderError", "RunError", "ShoalError", "SupervisorError"),
    "shoal.providers": ("Usage",),
    "shoal.runtime": ("Context", "ContextComponent", "Event", "Ledger", "Outcome", "Run", "agent", "agentic", "tool"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ROOMS = ("actors", "blueprints", "errors", "observability", "providers", "runtime")

__all__ = [
    "Backoff",
    "Blueprint",
    "BlueprintError",
    "ChildSpec",
    "Context",
    "ContextComponent",
    "DynamicSupervisor",
    "Edge",
    "Event",
    "Ledger",
    "MailboxError",
    "Outcome",
    "ProviderError",
    "Region",
    "Run",
    "RunError",
    "ShoalError",
    "Stage",
    "Supervisor",
    "SupervisorError",
    "Swarm",
    "Usage",
    "Worker",
    "agent",
    "agentic",
    "load",
    "run",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"shoal.{name}")
    if name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    elif name == "__version__":
        value = import_module("importlib.metadata").version("shoal")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
