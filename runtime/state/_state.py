"""The state of a run: what its events add up to, and nothing else.

`RunState.apply` is the only thing that changes it. A live run journals an event and applies it; a resumed one applies
what the journal holds. It is the same code, so both end in the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from shoal.providers import Message
from shoal.runtime.context import (
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    ItemChanged,
    LayoutChanged,
    LoadPart,
    PartStored,
    PromptAmended,
    PromptEpoch,
    RegionReset,
    SeedRefreshed,
    SeedResolved,
    nowhere,
)
from shoal.runtime.events import (
    BlueprintChanged,
    BudgetReached,
    CallOpened,
    ChildEnded,
    ChildSpawned,
    Event,
    FactsRecorded,
    FrameEntered,
    FrameLeft,
    GateBlocked,
    GateForced,
    GrantGiven,
    HookRan,
    InferenceCompleted,
    InferenceFailed,
    InferenceStarted,
    ItemRefused,
    LaneCompleted,
    LaneDegraded,
    LaneStarted,
    MemoryLoaded,
    MessageReceived,
    ModelChanged,
    Nudged,
    OutputSubmitted,
    Payload,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    RunTitled,
    ScriptFailed,
    StageEntered,
    StageLeft,
    StepRecorded,
    TimerFired,
    TimerSet,
    TokensMeasured,
    ToolCallCompleted,
    ToolCallStarted,
    ToolsFound,
    TransitionChosen,
)
from shoal.runtime.program import Program
from shoal.runtime.state import (
    _calls,
    _children,
    _entries,
    _functions,
    _hooks,
    _inferences,
    _lanes,
    _lives,
    _people,
    _stages,
    _staging,
)
from shoal.runtime.state._entries import write
from shoal.runtime.state._record import RunRecord
from shoal.runtime.state._staging import DAY_S, compose
from shoal.runtime.state._visit import Turn, Visit


@final
class RunState(RunRecord):
    """The state of one run: what is known of it, and how its events change that."""

    __slots__ = ()

    def apply(self, event: Event, message: Message | None = None) -> None:
        """Apply *event*, the next one of this run.

        Args:
            event: The event.
            message: Of `EntryWritten`: what the entry says, where it is at hand; the same bytes that are made
                from the event otherwise.
        """
        self.seq = event.seq
        payload = event.payload
        if self.phase == "running" and self.last_at and type(payload) is not RunResumed:
            self.ran_s += event.at - self.last_at
        self.last_at = event.at
        if self.day >= 0 and event.at // DAY_S != self.day:
            compose(self)
        handler = _HANDLERS.get(type(payload))
        if handler is not None:
            handler(self, event, payload)
        elif isinstance(payload, EntryWritten):
            write(self, event, payload, message)

    def take_facts_from(self, definition: Callable[[str], bytes]) -> None:
        """Look up under *definition* from now on: the journal has by now what the run was born with."""
        self.facts_under = definition

    def dump(self) -> dict[str, object]:
        """Return everything that makes this state, as plain values; equal states give equal dumps."""
        visit = self.visit
        turn = self.turn
        return {
            "seq": self.seq,
            "made of": (self.made_by.definition, self.budget),
            "phase": self.phase,
            "title": self.title,
            "window": self.view.dump(),
            "serving": self.serving,
            "visits": dict(self.visits),
            "visit": None if visit is None else {name: getattr(visit, name) for name in Visit.__struct_fields__},
            "leaving": self.leaving,
            "turn": None if turn is None else {name: getattr(turn, name) for name in Turn.__struct_fields__},
            "routing": self.routing,
            "failure": (self.failure, self.left_error),
            "timers": {seq: (timer.due_at, str(timer.text), timer.region) for seq, timer in self.timers.items()},
            "inbox": list(self.inbox),
            "children": dict(self.children),
            "jobs": dict(self.jobs),
            "questions": dict(self.questions),
            "grants": {scope: sorted(keys) for scope, keys in self.grants.items()},
            "output": (str(self.output), self.output_seq, self.output_format, self.artifacts),
            "last_text": (str(self.last_text), self.last_text_seq),
            "flags": dict(self.flags),
            "usage": self.usage,
            "cost": self.cost,
            "calibration": (dict(self.calibration), self.tokenizer),
            "epoch": (self.epochs, None if self.epoch is None else self.epoch.dump(self.view)),
            "renders": dict(self.renders),
            "steady": dict(self.steady),
            "repeats": self.repeats.dump(),
            "in_vain": self.in_vain,
            "stopped": self.stopped,
            "hooks_at_end": dict(self.hooks_at_end),
            "restarts": list(self.restarts),
            "loaded": (dict(self.loaded), self.own_files),
            "components": ([str(one.digest.hex()) for _, one in self.view.standing], dict(self.left_out), self.day),
            "frames": self.frames.dump(),
            "ended": self.ended,
        }


_HANDLERS: Mapping[type[Payload], Callable[[RunRecord, Event, Any], None]] = {
    RunSpawned: _lives.on_spawn,
    FactsRecorded: _staging.on_facts,
    MemoryLoaded: _staging.on_memory,
    RunTitled: _lives.on_titled,
    RunPaused: _lives.on_pause,
    RunResumed: _lives.on_resume,
    RunRestarted: _lives.on_restart,
    RunEnded: _lives.on_end,
    BlueprintChanged: _lives.on_change_blueprint,
    BudgetReached: _lives.on_budget_reached,
    ChildSpawned: _children.on_child_spawned,
    ChildEnded: _children.on_child_ended,
    ItemRefused: _children.on_item_refused,
    OutputSubmitted: _calls.on_submit,
    StageEntered: _stages.on_enter,
    StageLeft: _stages.on_leave,
    TransitionChosen: _stages.on_choose,
    GateBlocked: _stages.on_gate_blocked,
    GateForced: _stages.on_gate_forced,
    Nudged: _stages.on_nudge,
    ModelChanged: _stages.on_change_model,
    LayoutChanged: _entries.on_change,
    SeedResolved: _entries.on_seed,
    SeedRefreshed: _entries.on_seed,
    EntriesEvicted: _entries.on_change,
    EntriesReleased: _entries.on_change,
    RegionReset: _entries.on_change,
    PartStored: _entries.on_part,
    ItemChanged: _entries.on_change,
    ContextCompacted: _entries.on_change,
    HookRan: _hooks.on_hook,
    ScriptFailed: _staging.on_script_failed,
    FrameEntered: _functions.on_enter_frame,
    FrameLeft: _functions.on_leave_frame,
    StepRecorded: _functions.on_record,
    CallOpened: _functions.on_open_call,
    InferenceStarted: _inferences.on_started,
    InferenceCompleted: _inferences.on_completed,
    InferenceFailed: _inferences.on_failed,
    TokensMeasured: _inferences.on_measured,
    PromptEpoch: _inferences.on_epoch,
    PromptAmended: _inferences.on_amend,
    ToolCallStarted: _calls.on_call_started,
    ToolCallCompleted: _calls.on_call_completed,
    MessageReceived: _people.on_receive,
    QuestionAsked: _people.on_ask,
    TimerSet: _people.on_timer,
    TimerFired: _people.on_fire,
    QuestionAnswered: _people.on_answer,
    GrantGiven: _people.on_grant,
    ToolsFound: _staging.on_tools,
    LaneStarted: _lanes.on_job_started,
    LaneCompleted: _lanes.on_job_ended,
    LaneDegraded: _lanes.on_job_ended,
}


def fold(
    run_id: str,
    program: Program,
    events: Iterable[Event],
    *,
    definition: Callable[[str], bytes] | None = None,
    load: LoadPart = nowhere,
) -> RunState:
    """Return the state that *events* (all of a run, oldest first) add up to.

    Args:
        run_id: The run.
        program: What it was spawned as.
        events: Its events.
        definition: Returns what the journal holds under a digest; without it, nobody may ask for the prompt of a run
            whose scripts rendered something, and a run whose blueprint was changed is refused.
        load: Returns the bytes of a stored part by its digest, as a journal's `part` does.
    """
    state = RunState(run_id, program, definition=definition, load=load)
    for event in events:
        state.apply(event)
    return state
