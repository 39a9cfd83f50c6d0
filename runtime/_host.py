"""What a run is given to live with: the services that all runs of a swarm share.

A run knows its host by this protocol alone, so that nothing in it assumes that two runs share a process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import anyio

from shoal.blueprints import Blueprint, Lanes, ModelSettings
from shoal.providers import Breaker, ModelProfile, Provider, ReasoningDelta, RetryPolicy, TextDelta, Trace
from shoal.runtime._attachment import SeedValue
from shoal.runtime._clock import Clock
from shoal.runtime._limits import Limits
from shoal.runtime._pools import Pools
from shoal.runtime.events import BudgetGiven, Lane, StepRecorded
from shoal.runtime.journal import Journal
from shoal.runtime.scripts import Sandbox
from shoal.runtime.tools import Memory, Permissions, Shell, Tool

if TYPE_CHECKING:
    from shoal.runtime._function import AgenticCall
    from shoal.runtime._home import Home
    from shoal.runtime._lanes import Job
    from shoal.runtime._programs import Programs
    from shoal.runtime._secrets import Secrets


@final
@dataclass(frozen=True, slots=True, eq=False)
class Serving:
    """Who serves a stage: a provider, a model of it, and what is known of that model."""

    provider: Provider
    model: str
    profile: ModelProfile

    @property
    def label(self) -> str:
        """Provider and model as blueprints write them."""
        return f"{self.provider.name}:{self.model}"

    def reply_tokens(self, asked: int | None) -> int:
        """Return how long a reply may be of which *asked* tokens are wanted; `None` is the most of its model."""
        most = self.profile.max_output_tokens
        return most if asked is None else min(asked, most)


@final
@dataclass(frozen=True, slots=True)
class ChildRequest:
    """A child that a run wants.

    Args:
        blueprint: A name, a path, or `blueprint:PATH`.
        task: Its task; `None` for none.
        seeds: Caller values by name.
        item: Id of the fan-out item; `None` for none.
        stage: The stage it starts in, where it is a stage of the parent's own blueprint; `None` for another blueprint.
        source: Seq of the reply whose call asked for it.
        index: Number of that call.
        by_model: The model named the blueprint.
        waited: The call waits for its end.
        detached: It outlives its parent.
        offered: Caller values that it gets where it takes them; *seeds* win.
        most_depth: How many levels of children it may have of its own; `None` for as many as its parent leaves it.
        output_format: How its answer is to be written; `None` for what its blueprint says.
        output_instructions: What its answer is to look like; `None` for what its blueprint says.
        output_schema: JSON schema of its answer, as JSON source; `None` for what its blueprint says.
        tools: Functions that it may call.
        model: `provider:model` that replaces every stage's; `None` for what replaces its parent's.
        key: Idempotency key of the spawn; `None` for none.
        budget: Limits for it and everything below it, in place of its blueprint's; `None` leaves those.
        step: Journaled together with its birth; `None` for nothing.
    """

    blueprint: str | Path | Blueprint | AgenticCall[Any]
    task: str | None
    seeds: Mapping[str, SeedValue]
    item: str | None = None
    stage: str | None = None
    source: int = 0
    index: int = 0
    by_model: bool = False
    waited: bool = False
    detached: bool = False
    offered: Mapping[str, str] = field(default_factory=dict[str, str])
    most_depth: int | None = None
    output_format: str | None = None
    output_instructions: str | None = None
    output_schema: str | None = None
    tools: Sequence[Tool] = ()
    model: str | None = None
    key: str | None = None
    budget: BudgetGiven | None = None
    step: StepRecorded | None = None


Traced: TypeAlias = Callable[[str, str, int, str], Trace | None]
"""Says for a run, its root, the seq of an `InferenceStarted` and the model asked which span that request belongs to."""


class Host(Protocol):
    """The services that all runs of a swarm share."""

    journal: Journal
    clock: Clock
    limits: Limits
    pools: Pools
    permissions: Permissions
    retry: RetryPolicy
    threads: anyio.CapacityLimiter
    shell: Shell
    sandbox: Sandbox
    memory: Memory | None
    lane_defaults: Lanes
    traced: Traced | None
    secrets: Secrets
    programs: Programs
    home: Home

    def serving(self, model: ModelSettings | None, override: str | None, default: str | None) -> Sequence[Serving]:
        """Return who may serve a stage with these settings, best first.

        Args:
            model: The settings; `None` for none.
            override: `provider:model` that wins over all; `None` for none.
            default: What its user prefers, as `provider` or `provider:model`; `None` for none.

        Raises:
            SpawnRefused: Nobody can; the message says what was tried.
        """
        ...

    def breaker(self, provider: str) -> Breaker:
        """Return the circuit breaker of *provider*."""
        ...

    def reconsider(self, provider: str) -> None:
        """Let *provider* be asked at once though it kept failing: a person says that what was wrong is mended."""
        ...

    def submit(self, lane: Lane, job: Job) -> None:
        """Hand *job* to a lane; it answers through the job, at once where the lane is down."""
        ...

    def drop_jobs(self, run_id: str) -> None:
        """Forget the jobs of a run that ends."""
        ...

    def delta(self, run_id: str, delta: TextDelta | ReasoningDelta) -> None:
        """Show a piece of a reply to whoever watches the run."""
        ...

    async def spawn_child(self, parent: str, wanted: ChildRequest) -> str:
        """Start a child of *parent* and return its id; the parent's `ChildSpawned` is durable before it starts.

        Raises:
            ShoalError: It cannot be started.
        """
        ...
