"""One run's events as spans: the run itself, its children, and who handles which event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, final

import msgspec

from shoal.observability import names
from shoal.observability._functions import Functions
from shoal.observability._inferences import Inferences
from shoal.observability._jobs import Jobs
from shoal.observability._moves import Moves
from shoal.observability._open import UNFINISHED, Place
from shoal.observability._redact import Redactor
from shoal.observability._spans import Link, Span, Tree, Value, clip, first_line
from shoal.observability._tally import Bill
from shoal.observability._tool_calls import ToolCalls
from shoal.runtime.context import (
    ContextCompacted,
    EntriesEvicted,
    LayoutChanged,
    PromptAmended,
    PromptEpoch,
    RegionReset,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.events import (
    BlueprintChanged,
    CallOpened,
    ChildEnded,
    ChildSpawned,
    Event,
    FrameEntered,
    FrameLeft,
    GateBlocked,
    GateForced,
    InferenceCompleted,
    InferenceFailed,
    InferenceRetried,
    InferenceStarted,
    LaneCompleted,
    LaneDegraded,
    LaneStarted,
    MessageReceived,
    ModelChanged,
    Nudged,
    Payload,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    RunTitled,
    StageEntered,
    StageLeft,
    StepRecorded,
    TokensMeasured,
    ToolCallCompleted,
    ToolCallStarted,
    TransitionChosen,
    VolatilityBroken,
)

_ZERO = Decimal(0)
_MOST_FLAGS = 32
NOTHING: tuple[Span, ...] = ()


@final
class Birth(msgspec.Struct, frozen=True, gc=False):
    """Where a run's span hangs.

    Args:
        tree: Its tree.
        parent_id: Its parent's span; `None` for a root.
        link: The span it points to; `None` for none.
        at_ns: When its parent announced it, unix nanoseconds.
    """

    tree: Tree
    parent_id: str | None = None
    link: Link | None = None
    at_ns: int = 0


@final
class RunTrace:
    """The spans of one run that are not over.

    Args:
        event: Its first event.
        spawned: What that says.
        birth: Where its span hangs.
        content: Strikes secrets out of prompts and outputs, which go into spans; `None` where they do not.
    """

    def __init__(self, event: Event, spawned: RunSpawned, birth: Birth, *, content: Redactor | None) -> None:
        self.place = place = Place(event.run_id, birth.tree, event.at, after_ns=birth.at_ns, content=content)
        place.run = place.open(names.agent_span(spawned.name), birth.parent_id, _of_run(event.run_id, spawned))
        if birth.link is not None:
            place.run.links.append(birth.link)
        self.births: dict[str, Birth] = {}
        """Where the spans of children hang that were announced and did not begin."""
        self.over = False
        self._inferences = Inferences(place, spawned)
        self._calls = ToolCalls(place, self._inferences.heard)
        self._moves = Moves(place, self._inferences, self._calls)
        self._jobs = Jobs(place)
        self._functions = Functions(place, self._calls)
        self._children = 0
        self._below: Decimal | None = _ZERO
        if spawned.task is not None:
            self._hear(spawned.task)

    def take(self, event: Event) -> Sequence[Span]:
        """Take *event*, the next one of this run, and return the spans that it finished."""
        payload = event.payload
        handler = _HANDLERS.get(type(payload))
        if handler is None:
            return NOTHING
        place = self.place
        place.at(event.seq, event.at)
        handler(self, payload)
        if not place.done:
            return NOTHING
        done, place.done = place.done, []
        return done

    def unfinished(self) -> list[Span]:
        """Return every span that is not over as if it ended with the newest event that it shows, innermost first."""
        inner = (*self._inferences.unfinished(), *self._calls.unfinished(), *self._jobs.unfinished())
        inner = (*inner, *self._functions.unfinished())
        return [*inner, *self._moves.unfinished(), self._finished_run(UNFINISHED)]

    # --- the run

    def on_titled(self, payload: RunTitled) -> None:
        redact = self.place.content
        if redact is not None:
            self.place.run.attributes[names.TITLE] = clip(redact(payload.title))

    def on_paused(self, payload: RunPaused) -> None:
        self.place.note(names.E_PAUSED, {names.REASON: first_line(payload.reason)})

    def on_resumed(self, payload: RunResumed) -> None:
        said: dict[str, Value] = {names.REASON: payload.by}
        if payload.process:
            said[names.PROCESS] = payload.process
        self.place.note(names.E_RESUMED, said)
        if payload.by == "restart":
            self._interrupted()

    def on_restarted(self, payload: RunRestarted) -> None:
        crash = payload.error.strip().rpartition("\n")[2]
        self.place.note(names.E_RESTARTED, {names.REASON: clip(crash), names.ATTEMPT: payload.attempt})
        self._interrupted()

    def _interrupted(self) -> None:
        self._inferences.interrupted()
        self._calls.interrupted()
        self._jobs.interrupted()

    def on_ended(self, payload: RunEnded) -> None:
        self.over = True
        run = self.place.run.attributes
        if payload.flags:
            run[names.FLAGS] = tuple([_flag(*flag) for flag in tuple(payload.flags.items())[:_MOST_FLAGS]])
        error = payload.status if payload.status in ("error", "cancelled") else ""
        # What a run that ended well left open was not needed any more; otherwise it ended because the run did.
        left = payload.status if error else "dropped"
        for part in (self._inferences, self._calls, self._jobs, self._functions):
            part.end(left, error, payload.reason)
        self._moves.end(payload.status, error, payload.reason)
        self.place.done.append(self._finished_run(payload.status, error, payload.reason))

    def _finished_run(self, outcome: str, error: str = "", reason: str = "") -> Span:
        place, tally = self.place, self._inferences.whole()
        sums: dict[str, Value] = {
            names.INPUT_TOKENS: tally.input,
            names.OUTPUT_TOKENS: tally.output,
            names.CACHE_READ_TOKENS: tally.read,
            names.CACHE_WRITE_TOKENS: tally.written,
            names.CACHE_CREATION_TOKENS: tally.written,
            names.REASONING_TOKENS: tally.reasoning,
            names.TOOL_CALLS: self._calls.in_run + self._calls.in_stage,
            **tally.attributes(),
        }
        if self._children:
            sums[names.CHILDREN] = self._children
            if tally.cost is not None and self._below is not None:
                sums[names.SUBTREE_COST_USD] = float(tally.cost + self._below)
        return place.run.finished(place, outcome, error, reason, sums, tally.table(place.now_ns))

    # --- children

    def on_child_spawned(self, payload: ChildSpawned) -> None:
        place = self.place
        self._children += 1
        call = self._calls.span_of(payload.source, payload.index) if payload.waited else None
        above = call or (self._functions.span_of(payload.source) if payload.source else None) or place.run
        attributes: dict[str, Value] = {names.CHILD: payload.child}
        if payload.item is not None:
            attributes[names.ITEM] = clip(payload.item)
        span = place.open(names.spawn_span(payload.name), above.span_id, attributes)
        # A parent outlives its children: one that nobody waits for hangs below the run and points to its spawn.
        link = None if payload.waited else Link(span.span_id, "spawned_by")
        self.births[payload.child] = Birth(place.tree, above.span_id, link, place.now_ns)
        place.close(span, "complete")

    def on_child_ended(self, payload: ChildEnded) -> None:
        if self._below is None or payload.cost is None:
            self._below = None
        else:
            self._below += payload.cost

    # --- inferences, calls, jobs

    def on_inference_started(self, payload: InferenceStarted) -> None:
        if payload.call:
            above = self._functions.send(payload) or self.place.here
            self._inferences.start(payload, above.span_id, self._functions.heard(payload.call))
            return
        job = self._jobs.span_of(payload.job) if payload.job else None
        self._inferences.start(payload, (job or self.place.here).span_id, self._inferences.heard)

    def on_measured(self, payload: TokensMeasured) -> None:
        if not payload.job:
            self._inferences.measured(payload)

    def on_epoch(self, payload: PromptEpoch) -> None:
        self._inferences.epoch(payload)

    def on_amended(self, payload: PromptAmended) -> None:
        self._inferences.amended(payload)

    def on_inference_completed(self, payload: InferenceCompleted) -> None:
        bill = Bill(payload)
        if payload.calls:
            self._calls.asked(self.place.seq, payload)
        self._functions.reply(self.place.seq, payload)
        self._moves.bill(bill)
        self._inferences.complete(bill)

    def on_inference_retried(self, payload: InferenceRetried) -> None:
        self._inferences.retry(payload)

    def on_inference_failed(self, payload: InferenceFailed) -> None:
        self._functions.miss(payload.started)
        self._inferences.fail(payload)

    def on_call_started(self, payload: ToolCallStarted) -> None:
        self._calls.start(payload)

    def on_call_completed(self, payload: ToolCallCompleted) -> None:
        self._calls.complete(payload)

    def on_job_started(self, payload: LaneStarted) -> None:
        self._jobs.start(payload)

    def on_job_completed(self, payload: LaneCompleted) -> None:
        self._inferences.job_ended(payload.job, "")
        self._jobs.complete(payload)

    def on_job_degraded(self, payload: LaneDegraded) -> None:
        self._inferences.job_ended(payload.job, payload.reason)
        self._jobs.degrade(payload)

    # --- agentic functions

    def on_frame_entered(self, payload: FrameEntered) -> None:
        self._functions.enter(payload)

    def on_frame_left(self, payload: FrameLeft) -> None:
        self._functions.leave(payload)

    def on_recorded(self, payload: StepRecorded) -> None:
        self._functions.record(payload)

    def on_call_opened(self, payload: CallOpened) -> None:
        self._functions.ask(payload)

    # --- stages

    def on_entered(self, payload: StageEntered) -> None:
        self._moves.enter(payload)

    def on_left(self, payload: StageLeft) -> None:
        self._moves.leave(payload)

    def on_chosen(self, payload: TransitionChosen) -> None:
        self._moves.choose(payload)

    def on_gate_blocked(self, payload: GateBlocked) -> None:
        self._moves.block(payload)

    def on_gate_forced(self, payload: GateForced) -> None:
        self._moves.force(payload)

    def on_model_changed(self, payload: ModelChanged) -> None:
        self._moves.change_model(payload)

    def on_blueprint_changed(self, payload: BlueprintChanged) -> None:
        self.place.note(names.E_BLUEPRINT_CHANGED, {names.CHANGED: tuple(clip(each) for each in payload.changed)})

    # --- what happens to the window

    def _hear(self, text: object) -> None:
        heard = self._inferences.heard
        if heard is not None:
            heard.say(text)

    def on_nudged(self, payload: Nudged) -> None:
        self.place.note(names.E_NUDGE, {names.REASON: payload.reason})
        self._hear(payload.text)

    def on_message(self, payload: MessageReceived) -> None:
        self.place.note(names.E_MESSAGE, {names.SENDER: clip(payload.sender)})
        self._hear(payload.text)

    def on_seeded(self, payload: SeedResolved) -> None:
        for block in payload.blocks:
            self._hear(block.text)

    def on_refreshed(self, payload: SeedRefreshed) -> None:
        self.place.note(names.E_SEED_REFRESHED, {names.REGION: payload.region, names.ENTRIES: len(payload.blocks)})
        for block in payload.blocks:
            self._hear(block.text)

    def on_evicted(self, payload: EntriesEvicted) -> None:
        said: dict[str, Value] = {
            names.REGION: payload.region,
            names.ENTRIES: len(payload.entry_ids),
            names.TOKENS: payload.tokens,
            names.REASON: payload.reason,
        }
        self.place.note(names.E_EVICTED, said)

    def on_reset(self, payload: RegionReset) -> None:
        said: dict[str, Value] = {
            names.REGION: payload.region,
            names.TOKENS: payload.tokens,
            names.REASON: payload.reason,
        }
        self.place.note(names.E_RESET, said)

    def on_compacted(self, payload: ContextCompacted) -> None:
        said: dict[str, Value] = {
            names.REGION: payload.region,
            names.ENTRIES: len(payload.entry_ids),
            names.TOKENS: payload.tokens,
            names.BYTES_SAVED: payload.bytes_saved,
        }
        self.place.note(names.E_COMPACTED, said)

    def on_volatility(self, payload: VolatilityBroken) -> None:
        self.place.note(names.E_VOLATILITY, {names.REGION: payload.region, names.TOKENS: payload.tokens})

    def on_layout(self, payload: LayoutChanged) -> None:
        said: dict[str, Value] = {names.WINDOW_TOKENS: payload.window_tokens, names.REQUEST_MODEL: payload.model}
        self.place.note(names.E_LAYOUT, said)


def _of_run(run_id: str, spawned: RunSpawned) -> dict[str, Value]:
    made: dict[str, Value] = {
        names.OPERATION: "invoke_agent",
        names.AGENT_NAME: spawned.name,
        names.AGENT_ID: run_id,
        names.CONVERSATION_ID: spawned.root,
        names.ROOT: spawned.root,
        names.DEPTH: spawned.depth,
    }
    if spawned.parent is not None:
        made[names.PARENT] = spawned.parent
    if spawned.item is not None:
        made[names.ITEM] = clip(spawned.item)
    return made


def _flag(name: str, value: int | tuple[str, ...]) -> str:
    return clip(f"{name}={','.join(value) if isinstance(value, tuple) else value}")


_HANDLERS: Mapping[type[Payload], Callable[[RunTrace, Any], None]] = {
    RunTitled: RunTrace.on_titled,
    RunPaused: RunTrace.on_paused,
    RunResumed: RunTrace.on_resumed,
    RunRestarted: RunTrace.on_restarted,
    RunEnded: RunTrace.on_ended,
    ChildSpawned: RunTrace.on_child_spawned,
    ChildEnded: RunTrace.on_child_ended,
    StageEntered: RunTrace.on_entered,
    StageLeft: RunTrace.on_left,
    TransitionChosen: RunTrace.on_chosen,
    GateBlocked: RunTrace.on_gate_blocked,
    GateForced: RunTrace.on_gate_forced,
    Nudged: RunTrace.on_nudged,
    ModelChanged: RunTrace.on_model_changed,
    BlueprintChanged: RunTrace.on_blueprint_changed,
    LayoutChanged: RunTrace.on_layout,
    VolatilityBroken: RunTrace.on_volatility,
    SeedResolved: RunTrace.on_seeded,
    SeedRefreshed: RunTrace.on_refreshed,
    EntriesEvicted: RunTrace.on_evicted,
    RegionReset: RunTrace.on_reset,
    ContextCompacted: RunTrace.on_compacted,
    TokensMeasured: RunTrace.on_measured,
    PromptEpoch: RunTrace.on_epoch,
    PromptAmended: RunTrace.on_amended,
    InferenceStarted: RunTrace.on_inference_started,
    InferenceCompleted: RunTrace.on_inference_completed,
    InferenceRetried: RunTrace.on_inference_retried,
    InferenceFailed: RunTrace.on_inference_failed,
    ToolCallStarted: RunTrace.on_call_started,
    ToolCallCompleted: RunTrace.on_call_completed,
    MessageReceived: RunTrace.on_message,
    FrameEntered: RunTrace.on_frame_entered,
    FrameLeft: RunTrace.on_frame_left,
    StepRecorded: RunTrace.on_recorded,
    CallOpened: RunTrace.on_call_opened,
    LaneStarted: RunTrace.on_job_started,
    LaneCompleted: RunTrace.on_job_completed,
    LaneDegraded: RunTrace.on_job_degraded,
}
