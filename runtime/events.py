"""Events: what a run is made of. Everything else about a run is computed from them.

Each kind is a frozen value with a number and a name; both are part of the journal's public format and never change.
Payloads are positional arrays: fields are only ever appended, each with a default, so that old rows stay readable.
Content stands once: where a field is a seq (and an index), the text stands in that event.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast, final

import msgspec

from shoal.providers import TEXT_ONLY, Finish, Intake, Purpose, Text, Usage
from shoal.runtime.context import (
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    ItemChanged,
    LayoutChanged,
    PartStored,
    PromptAmended,
    PromptEpoch,
    RegionReset,
    SeedRefreshed,
    SeedResolved,
    Share,
)

Status: TypeAlias = Literal["complete", "complete_interactive", "error", "cancelled"]
Lane: TypeAlias = Literal["refresh", "compaction", "titling"]


# --- runs


@final
class ToolSource(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A Python function that the run has as a tool: where it is and what its source was."""

    name: str
    qualname: str
    digest: str


@final
class BudgetGiven(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Limits for a run and everything below it that somebody gave; `None` leaves the blueprint's."""

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
    """A child run ended: how, with what answer, and what its subtree used."""

    child: str
    status: Status
    output: Text | None
    reason: str = ""
    usage: tuple[int, ...] = ()
    cost: Decimal | None = None


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


# --- stages


@final
class TimerSet(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run is to be given a message at a time.

    Args:
        due_at: When, in unix seconds.
        text: The message.
        region: The region that takes it; `None` for the conversation.
    """

    due_at: float
    text: Text
    region: str | None = None


@final
class TimerFired(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The time of a timer has come. *timer* is the seq of its `TimerSet`; its message is the event behind this one."""

    timer: int


@final
class StageEntered(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A visit of a stage began.

    Args:
        stage: The stage.
        visit: Which visit, 1 or more.
        provider: Name of the provider that serves it.
        model: The model.
        window_tokens: The model's window.
        input_types: Mime patterns that the model takes.
        counts_parts: Whose rule counts stored parts for it.
    """

    stage: str
    visit: int
    provider: str
    model: str
    window_tokens: int
    input_types: tuple[str, ...] = TEXT_ONLY.types
    counts_parts: str = TEXT_ONLY.counting

    @property
    def intake(self) -> Intake:
        """What the model takes beside text."""
        return Intake(self.input_types, self.counts_parts)


@final
class StageLeft(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A visit of a stage ended.

    Args:
        stage: The stage.
        visit: Which visit.
        reason: `done`, `error`, `max_iterations`, `cancelled`.
        iterations: How many of its requests were answered.
        error: What went wrong; empty for nothing.
        flags: What was let through: `max_iterations_hit`, `output_forced`, `splits_degraded`, `items_left_out`.
        abandoned: Required regions that were still empty.
    """

    stage: str
    visit: int
    reason: str
    iterations: int
    error: str = ""
    flags: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()


@final
class TransitionChosen(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where the run goes next.

    Args:
        source: The stage it leaves.
        target: The stage it goes to; `None` ends the run.
        condition: The edge's condition, or `linear`, `merge`, `terminal`.
        by: Who chose: `edge`, `model`, or `default` where the model's answer named no stage.
        transform: What happens to unprotected regions.
    """

    source: str
    target: str | None
    condition: str
    by: Literal["edge", "model", "default"] = "edge"
    transform: str = "direct"


@final
class GateBlocked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A gate held an edge; the stage goes on."""

    target: str
    requirement: str
    attempt: int


@final
class GateForced(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A gate held an edge as often as it may; the edge is taken."""

    target: str
    requirement: str


@final
class Nudged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The stage is asked again.

    Args:
        reason: `no_tool_call`, `required_region`, `output_owed`, `fan_out_owed`, `gate`, `instructions`, `directive`,
            `repetition`.
        text: What the model reads.
        answer: Of a `directive`: seq of the answer that chose it.
    """

    reason: str
    text: Text
    answer: int = 0


@final
class ModelChanged(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Another model serves the stage from here on, because the one before could not.

    *input_types* and *counts_parts* are what it takes beside text, as in `StageEntered`.
    """

    provider: str
    model: str
    window_tokens: int
    reason: str = ""
    input_types: tuple[str, ...] = TEXT_ONLY.types
    counts_parts: str = TEXT_ONLY.counting

    @property
    def intake(self) -> Intake:
        """What the model takes beside text."""
        return Intake(self.input_types, self.counts_parts)


@final
class ScriptFailed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A script gave nothing that could be used, and the run went on without.

    Args:
        script: Its path, as the blueprint writes it.
        function: The function that was called.
        reason: `raised`, `time`, `memory`, `depth`, `argument` (it would be given too much), `result` (no plain value),
            `misread` (a value without a meaning), `overruled` (it refused what is kept in any case), `crashed`,
            `missing` (nothing here can run it).
        message: What went wrong, for people.
        region: The region whose script it is; empty for another one.
    """

    script: str
    function: str
    reason: str
    message: str
    region: str = ""


# --- what was looked up


@final
class FactsRecorded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What a component of the prompt needs to know was looked up.

    Args:
        component: The component.
        digest: What the journal holds it under: an object of texts, as JSON.
    """

    component: str
    digest: str


@final
class MemoryLoaded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run has a memory. *state* is what was found; *digest* what the journal holds under, of a `healthy` one.

    Args:
        state: `healthy`, `empty`, or `raised` where it could not be read.
        digest: What the journal holds of it: an object of texts, as JSON.
        error: What it raised; empty for nothing.
    """

    state: Literal["healthy", "empty", "raised"]
    digest: str
    error: str = ""


# --- models


@final
class InferenceStarted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request goes out.

    Args:
        purpose: What the reply is for.
        provider: Name of the provider.
        model: The model.
        approx_context_chars: Characters of text and tool arguments in it.
        approx_tokens: Corrected estimate of what it costs.
        prompt_digest: Digest of its bytes, hex.
        reply_tokens: The reply budget.
        job: Id of the lane job it belongs to; 0 for none.
        estimated: What its regions were estimated at, uncorrected; 0 where nothing is to be learnt from its bill.
        base: Estimate of what is in no region: tool schemas and framing.
        renders: What scripts rendered of custom regions: region, and the digest under which the journal holds it. A
            region whose script showed nothing that can be used is not among them.
        wanted_tokens: The reply budget that was asked for, where the window leaves less; 0 where it leaves it all.
    """

    purpose: Purpose
    provider: str
    model: str
    approx_context_chars: int
    approx_tokens: int
    prompt_digest: str
    reply_tokens: int = 0
    job: int = 0
    estimated: int = 0
    base: int = 0
    renders: tuple[tuple[str, str], ...] = ()
    wanted_tokens: int = 0


@final
class CallMade(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A tool call as the model made it; *vendor_id* is the vendor's own id of it."""

    name: str
    arguments: Text
    vendor_id: str = ""


@final
class InferenceCompleted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A reply arrived whole.

    Args:
        purpose: What the reply is for.
        started: Seq of its `InferenceStarted`.
        text: What the model said.
        calls: The tools it asked for, in its order.
        usage: What was billed: uncached, cache_read, cache_write, cache_write_long, output, reasoning.
        cost: USD; `None` where the price is unknown.
        attribution: The bill by owner.
        finish: Why the model stopped.
        model: The model that answered, where it is not the one that was asked.
        reasoning: Its visible reasoning.
        state: What the vendor wants back byte for byte, as it arrived; `None` for nothing.
        request_id: The vendor's id; `None` for none.
        simulated: No language model was used.
        parts: Seqs of the `PartStored` of what it made beside text, in its order.
    """

    purpose: Purpose
    started: int
    text: Text
    calls: tuple[CallMade, ...]
    usage: tuple[int, ...]
    cost: Decimal | None
    attribution: tuple[Share, ...]
    finish: Finish = "stop"
    model: str = ""
    reasoning: str = ""
    state: bytes | None = None
    request_id: str | None = None
    simulated: bool = False
    parts: tuple[int, ...] = ()

    @property
    def billed(self) -> Usage:
        """*usage* as a `Usage`."""
        return Usage(*self.usage)


@final
class HookRan(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A hook of a stage decided something.

    Args:
        hook: The hook, such as `on_stage_enter`.
        stage: The stage whose hook it is.
        action: `allow` lets everything be; `modify` changed something: what stands here, or regions, by events behind
            this one; `cancel` stops the calls (`on_tool_call`) or the run; `failed` is a hook that came to nothing,
            which stops the run too.
        reason: Why it stops something; empty for no reason given.
        source: Seq of the reply it is about; 0 for none.
        text: The new text of the reply, the answer or the error; `None` where it has none to give.
        calls: The new calls of the reply; `None` leaves them as they are.
    """

    hook: str
    stage: str
    action: Literal["allow", "modify", "cancel", "failed"]
    reason: str = ""
    source: int = 0
    text: Text | None = None
    calls: tuple[CallMade, ...] | None = None


@final
class InferenceRetried(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An attempt failed and is repeated after *delay_s*; what it had sent is void."""

    purpose: Purpose
    started: int
    attempt: int
    error: str
    message: str
    delay_s: float


@final
class InferenceFailed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request came to nothing.

    Args:
        purpose: What it was for.
        started: Seq of its start; 0 where it was not sent.
        error: The name of the error's class.
        message: What happened.
        retryable: The same request may succeed later.
        remedy: What a person has to do before it can; empty where nobody has to do anything.
    """

    purpose: Purpose
    started: int
    error: str
    message: str
    retryable: bool = False
    remedy: str = ""


@final
class TokensMeasured(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A request was counted before it was sent.

    Args:
        model: The model.
        tokens: The count.
        how: Who counted: `vendor`, `server`, or `tiktoken:ENCODING`.
        estimated: What its regions were estimated at, uncorrected.
        base: Estimate of what is in no region: tool schemas and framing.
        job: Id of the lane job it belongs to; 0 for none.
    """

    model: str
    tokens: int
    how: str
    estimated: int
    base: int = 0
    job: int = 0


@final
class VolatilityBroken(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A region that is declared `stable` changed for the second time. It is said once a region.

    Args:
        region: The region.
        tokens: Estimate of what the next request sends anew because of it: the region and all behind it.
    """

    region: str
    tokens: int


# --- tools and people


@final
class ToolCallStarted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Call *index* of the reply *source* is about to run."""

    source: int
    index: int


@final
class ToolCallCompleted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A call came to an end.

    Args:
        source: Seq of the reply.
        index: Number of the call.
        text: What the model reads.
        is_error: The call failed, or was stopped at a gate.
        note: What the tool says beside its result; empty for nothing.
        gate: What stopped it: `visibility`, `schema`, `permission`, `hook`, or `workers` where a fan-out failed as a
            whole; empty where it ran.
        interrupted: It was started by a process that died; whether it had an effect is unknown.
        parts: Seqs of the `PartStored` of each stored part behind the text.
    """

    source: int
    index: int
    text: Text
    is_error: bool = False
    note: str = ""
    gate: str = ""
    interrupted: bool = False
    parts: tuple[int, ...] = ()


@final
class MessageReceived(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Mail for the run. *region* `None` delivers it into the conversation; *sender* is a run, or `user`.

    *parts* are the seqs of the `PartStored` of each stored part behind the text.
    """

    text: Text
    sender: str = "user"
    region: str | None = None
    parts: tuple[int, ...] = ()


@final
class QuestionAsked(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run waits for a person. What is asked stands in the call, or in the stage's definition of the point.

    Args:
        about: `text`, `choice`, `confirm`, `review`, `edit`, or `approval` of a call.
        source: Seq of the reply whose call asks, or is to be approved; 0 for none.
        index: Number of that call.
        point: The interaction point that asks; empty for none.
        keys: Of an approval: what a grant would be kept under; empty where it can hold for this call only.
        needs: Of an approval: what of the call needs it, where that is not simply the tool.
        expires_at: Unix seconds at which nobody has answered; `None` waits for ever.
    """

    about: Literal["text", "choice", "confirm", "review", "edit", "approval"]
    source: int = 0
    index: int = 0
    point: str = ""
    keys: tuple[str, ...] = ()
    needs: str = ""
    expires_at: float | None = None


@final
class QuestionAnswered(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A question was answered. *question* is the seq of its `QuestionAsked`; *text* is `None` where nobody answered.

    *by* is `user`, or `timeout`. *parts* are the seqs of the `PartStored` of each stored part behind the text.
    """

    question: int
    text: Text | None
    by: str = "user"
    parts: tuple[int, ...] = ()


@final
class GrantGiven(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Calls under these keys need no further approval: in this stage, re-entry included, or in the whole run."""

    keys: tuple[str, ...]
    scope: Literal["stage", "run"]
    stage: str


@final
class ToolsFound(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The run's own folder of tools was looked at, and these are the tools in it; none for an empty list.

    Args:
        files: Path below the working directory of each script, and what the journal holds it under.
    """

    files: tuple[tuple[str, str], ...]


# --- lanes


@final
class LaneStarted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A lane has a job for the run. *region* and *entry_ids* say what it works on; empty for titling.

    *aside* is a summary of all that the region holds, which is for a child and leaves the region as it is.
    """

    lane: Lane
    region: str = ""
    entry_ids: tuple[int, ...] = ()
    aside: bool = False


@final
class LaneCompleted(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A job is done. *job* is the seq of its `LaneStarted`."""

    lane: Lane
    job: int
    region: str = ""


@final
class LaneDegraded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A job came to nothing and the run goes on without it.

    Args:
        lane: The lane.
        job: Seq of its `LaneStarted`.
        region: The region it was for; empty for titling.
        reason: `crashed`, `timeout`, `lane_down`, `nonsense`, `blank`, `not_smaller`, `overflow`, `provider`,
            `dropped`; of a seed also `failed`, `refused` (it may not be resolved), `interrupted` (its process died).
        error: The last error; empty for none.
        bytes_saved: Of `not_smaller`: what the summary would have saved, 0 or less.
    """

    lane: Lane
    job: int
    region: str
    reason: str
    error: str = ""
    bytes_saved: int = 0


Payload: TypeAlias = (
    RunSpawned
    | RunTitled
    | RunPaused
    | RunResumed
    | RunPassivated
    | RunRestarted
    | RunEnded
    | BlueprintChanged
    | BudgetReached
    | ChildSpawned
    | ChildEnded
    | OutputSubmitted
    | TimerSet
    | TimerFired
    | FactsRecorded
    | MemoryLoaded
    | StageEntered
    | StageLeft
    | TransitionChosen
    | GateBlocked
    | GateForced
    | Nudged
    | ModelChanged
    | SeedResolved
    | SeedRefreshed
    | EntryWritten
    | EntriesEvicted
    | EntriesReleased
    | RegionReset
    | PartStored
    | ItemChanged
    | ContextCompacted
    | LayoutChanged
    | ScriptFailed
    | HookRan
    | InferenceStarted
    | InferenceCompleted
    | InferenceRetried
    | InferenceFailed
    | TokensMeasured
    | PromptEpoch
    | PromptAmended
    | VolatilityBroken
    | ToolCallStarted
    | ToolCallCompleted
    | MessageReceived
    | QuestionAsked
    | QuestionAnswered
    | GrantGiven
    | ToolsFound
    | LaneStarted
    | LaneCompleted
    | LaneDegraded
)

NUMBERS: Mapping[type[Payload], int] = {
    RunSpawned: 1,
    RunTitled: 2,
    RunPaused: 3,
    RunResumed: 4,
    RunPassivated: 5,
    RunRestarted: 6,
    RunEnded: 7,
    BlueprintChanged: 8,
    BudgetReached: 9,
    ChildSpawned: 10,
    ChildEnded: 11,
    OutputSubmitted: 12,
    TimerSet: 13,
    TimerFired: 14,
    FactsRecorded: 15,
    MemoryLoaded: 16,
    StageEntered: 20,
    StageLeft: 21,
    TransitionChosen: 22,
    GateBlocked: 23,
    GateForced: 24,
    Nudged: 25,
    ModelChanged: 26,
    LayoutChanged: 27,
    HookRan: 28,
    SeedResolved: 30,
    SeedRefreshed: 31,
    EntryWritten: 32,
    EntriesEvicted: 33,
    EntriesReleased: 34,
    RegionReset: 35,
    PartStored: 36,
    ScriptFailed: 37,
    ItemChanged: 38,
    ContextCompacted: 39,
    InferenceStarted: 40,
    InferenceCompleted: 41,
    InferenceRetried: 42,
    InferenceFailed: 43,
    TokensMeasured: 44,
    PromptEpoch: 45,
    PromptAmended: 46,
    VolatilityBroken: 47,
    ToolCallStarted: 50,
    ToolCallCompleted: 51,
    MessageReceived: 52,
    QuestionAsked: 53,
    QuestionAnswered: 54,
    GrantGiven: 55,
    ToolsFound: 56,
    # 60 FrameEntered, 61 FrameLeft, 62 StepRecorded, 63 CallOpened
    LaneStarted: 70,
    LaneCompleted: 71,
    LaneDegraded: 72,
}
"""The number of each kind in the journal. A number is never given twice; the ones in comments are spoken for."""

KINDS: Mapping[int, type[Payload]] = {number: kind for kind, number in NUMBERS.items()}


@final
class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one run.

    Args:
        run_id: The run.
        seq: Its place in the run, counting up from 1 without a gap.
        at: When it happened, unix seconds.
        payload: What happened.
    """

    run_id: str
    seq: int
    at: float
    payload: Payload

    @property
    def kind(self) -> str:
        """Name of its kind, such as `EntryWritten`."""
        return type(self.payload).__name__

    @property
    def time(self) -> dt.datetime:
        """When it happened, in UTC."""
        return dt.datetime.fromtimestamp(self.at, dt.UTC)

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON values with named fields, for people and other programs."""
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "at": self.time.isoformat(),
            "kind": self.kind,
            "payload": _plain(self.payload),
        }


def _plain(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, Text | Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


# --- bytes


def _to_json(value: object) -> object:
    if isinstance(value, Text):
        return msgspec.Raw(value.quoted)
    raise TypeError(f"{type(value).__name__} has no place in an event")


def _from_json(_kind: type, value: object) -> object:
    """Return the one type that JSON has no form for, a `Text`; msgspec makes a `ValidationError` of what is raised."""
    if isinstance(value, str):
        return Text.of(value)
    raise ValueError(f"expected text, got {value!r:.40}")


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def encode(payload: Payload) -> bytes:
    """Return *payload* as the journal keeps it."""
    return _encoder.encode(payload)


def decode(number: int, data: bytes) -> Payload | None:
    """Return the payload that *data* is; `None` for a kind that this version does not know.

    Raises:
        msgspec.ValidationError, msgspec.DecodeError: *data* is torn or corrupted.
    """
    kind = KINDS.get(number)
    if kind is None:
        return None
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_from_json)
    return cast("Payload", decoder.decode(data))
