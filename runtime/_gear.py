"""What the runs of a swarm share, as its user gave it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from shoal.blueprints import Lanes
from shoal.providers import Provider, RetryPolicy
from shoal.runtime._clock import Clock
from shoal.runtime._host import Traced
from shoal.runtime._limits import Limits
from shoal.runtime._mcp import McpServer
from shoal.runtime._secrets import Secrets
from shoal.runtime.context import Components
from shoal.runtime.scripts import Functions
from shoal.runtime.tools import Memory, Permissions


@final
@dataclass(frozen=True, slots=True, eq=False)
class Gear:
    """What the runs of a swarm share.

    Args:
        providers: The providers, 1 or more.
        clock: Time and randomness.
        limits: What runs may do at most.
        permissions: What the user allows.
        retry: How often a request is repeated.
        pools: Limits of pools by name.
        scripts: Functions of the program in the place of scripts, by the path that a blueprint names.
        mcp: MCP servers whose tools runs may use.
        components: What may stand in prompts beside regions.
        memory: What is remembered from run to run; `None` for nothing.
        lanes: How lanes serve runs whose blueprint says nothing else.
        default_model: What its user prefers, of runs that begin here; see `Servants.of`.
        traced: Says which span a request belongs to; `None` where nobody is to know.
        secrets: What is struck out of all that comes into a run.
    """

    providers: Sequence[Provider]
    clock: Clock
    limits: Limits
    permissions: Permissions
    retry: RetryPolicy
    pools: Mapping[str, int]
    scripts: Mapping[str, Functions]
    mcp: Sequence[McpServer]
    components: Components
    memory: Memory | None
    lanes: Lanes
    default_model: str | None
    traced: Traced | None
    secrets: Secrets
