"""Events of runs: how they begin, pause and end, what they are made of, and their children."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers import Text

Status: TypeAlias = Literal["complete", "complete_interactive", "error", "cancelled"]
ENDED_WELL: frozenset[Status] = frozenset({"complete", "complete_interactive"})
"""How a run ends that ends as it should."""


@final
class ToolSource(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A Python function that the run has as a tool: where it is and what its source was."""

    name: str
    qualname: str
    digest: str


@final
class BudgetGiven(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Limits for a run and everything below it that somebody gave; `None` leaves the blueprint's.

    Args:
        max_cost_usd: Dollars, 0 or more.
        max_tokens: Tokens of all calls together, 1 or more.
        max_wall_s: Seconds above 0 of running time, pauses excluded.
    """

    max_cost_usd: Decimal | None = None
    max_tokens: int | None = None
    max_wall_s: float | None = None


@final
class RestartRule(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How often the actor of a run may crash: more than *most* times within *within_s* seconds end the run."""

    most: int
    within_s: float


@final
class RunSpawned(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A run began.

    Args:
        name: Name of its blueprint.
        definition: Digest of everything it is made of; the bytes stand in the journal under it.
        task: Its task; `None` for none.
        seeds: The caller's values by name.
        workdir: Its working directory.
        parent: The run that spawned it; `None` for a root.
        root: The root of its tree; itself for a root.
        depth: 0 for a root.
        item: Id of the fan-out item it works on; `None` for none.
        detached: It outlives its parent.
        unattended: Nobody is there to ask.
        key: Idempotency key of the spawn; `None` for none.
        stage: The stage it starts in; `None` for the blueprint's entry.
        waited: Its parent waits for it in a tool call.
        trace: `traceparent` of the span that was current at the spawn; `None` for none.
        tools: Functions given in code.
        model: Model that replaces every stage's, as `provider:model`; `None` for none.
        children_deeper: How many levels of children may stand below it.
        output_dir: Where the front door writes its report; listings leave it out.
        output_format: How its answer is to be written; `None` for what its blueprint says.
        output_instructions: What its answer is to look like; `None` for what its blueprint says.
        output_schema: JSON schema of its answer, as JSON source; `None` for what its blueprint says.
        budgets: The runs whose budgets it is under: itself, its parent, and so on up.
        budget: Limits in place of its blueprint's; `None` for none.
        restarts: How often it may crash, beside the rule for all runs; `None` for no such limit.
        scripts: Scripts that are not in its definition, such as those of seeds: path, as the blueprint writes it, and
            the digest under which the journal holds the text.
        forked_from: The run that its first events are copied from, and how many those are; `None` for none.
        default_model: What its user prefers, as `provider` or `provider:model`; `None` for nothing.
    """

    name: str
    definition: str
    task: Text | None
    seeds: tuple[tuple[str, Text], ...]
    workdir: str
    parent: str | None
    root: str
    depth: int
    item: str | None = None
    detached: bool = False
    unattended: bool = False
    key: str | None = None
    stage: str | None = None
    waited: bool = False
    trace: str | None = None
    tools: tuple[ToolSource, ...] = ()
    model: str | None = None
    children_deeper: int = 3
    output_dir: str | None = None
    scripts: tuple[tuple[str, str], ...] = ()
    output_format: str | None = None
    output_instructions: str | None = None
    output_schema: str | None = None
    forked_from: tuple[str, int] | None = None
    budgets: tuple[str, ...] = ()
    budget: BudgetGiven | None = None
    restarts: RestartRule | None = None
    default_model: str | None = None


@final
class RunTitled(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run has a title. *by* is `lane`, or `task` where the lane gave none and the task's first words serve."""

    title: str
    by: Literal["lane", "task"]


@final
class RunPaused(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run waits for somebody: why, what lets it go on, and what was measured."""

    reason: str
    remedy: str = ""
    numbers: dict[str, int | float | str] = {}


@final
class RunResumed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run goes on. *by*: `user`, `restart` where a process took it up again, or `fork`; *process* is that process.

    *budget* takes the place of the limits that the run had; `None` leaves them.
    """

    by: str
    process: str = ""
    budget: BudgetGiven | None = None


@final
class RunPassivated(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run has had only to wait for *idle_s* seconds and left memory; whatever reaches it brings it back."""

    idle_s: float


@final
class RunRestarted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run's actor crashed and its supervisor started it again from the journal; *error* is what it crashed with."""

    error: str
    attempt: int


@final
class RunEnded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run is over.

    Args:
        status: How it ended.
        reason: Why, one sentence.
        output_seq: Seq of the event that holds its answer: `OutputSubmitted` or the last reply; 0 for none.
        flags: What tells a forced end from a clean one, by name.
    """

    status: Status
    reason: str
    output_seq: int = 0
    flags: dict[str, int | tuple[str, ...]] = {}


@final
class BlueprintChanged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Somebody had the run go on with a changed blueprint; everything behind this event is made of that one.

    Args:
        definition: Digest of everything it is made of from here on; the bytes stand in the journal under it.
        before: Digest of what it was made of until here.
        changed: What differs, such as `stages.plan`, `regions.notes` or `budget`; sorted.
        tools: Functions given in code.
        scripts: Scripts that are not in its definition: path, as the blueprint writes it, and digest.
        budgets: The runs whose budgets it is under: itself, its parent, and so on up.
    """

    definition: str
    before: str
    changed: tuple[str, ...] = ()
    tools: tuple[ToolSource, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    budgets: tuple[str, ...] = ()

    def onto(self, spawned: RunSpawned) -> RunSpawned:
        """Return *spawned* as of a run that is made of this; what else it was spawned with stays."""
        return msgspec.structs.replace(
            spawned, definition=self.definition, tools=self.tools, scripts=self.scripts, budgets=self.budgets
        )


@final
class BudgetReached(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The next request of the run, or of one below it, could go beyond a limit of its budget.

    Args:
        limit: The limit: `max_cost_usd`, `max_tokens` or `max_wall_s`.
        most: The limit's value.
        spent: What was used of it so far.
        needed: What the request could use at most.
    """

    limit: str
    most: str
    spent: str
    needed: str


@final
class ChildSpawned(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A child run began.

    Args:
        child: The child.
        name: Its blueprint.
        source: Seq of the reply whose call spawned it; 0 where code did.
        index: Number of that call.
        item: Id of the fan-out item; `None` for none.
        waited: The run waits for it in that call.
        detached: It outlives the run.
    """

    child: str
    name: str
    source: int = 0
    index: int = 0
    item: str | None = None
    waited: bool = False
    detached: bool = False


@final
class ChildEnded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A child run ended: how, with what answer, what its subtree used, and the names of its flags, sorted."""

    child: str
    status: Status
    output: Text | None
    reason: str = ""
    usage: tuple[int, ...] = ()
    cost: Decimal | None = None
    flags: tuple[str, ...] = ()


@final
class ItemRefused(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An item of a fan-out could not be handed to a worker.

    Args:
        source: Seq of the reply whose call hands it out.
        index: Number of that call.
        item: Its id.
        why: Why, for the model.
    """

    source: int
    index: int
    item: str
    why: Text


@final
class OutputSubmitted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run submitted an answer. Its text is the argument *content* of call *index* of the reply *source*.

    Args:
        source: Seq of the reply.
        index: Number of the call.
        stage: The stage that submitted it.
        format: Its declared format; `None` for none.
        truncated: Only this many characters of it count; `None` for all.
        artifacts: Paths in the working directory.
    """

    source: int
    index: int
    stage: str
    format: str | None = None
    truncated: int | None = None
    artifacts: tuple[str, ...] = ()
