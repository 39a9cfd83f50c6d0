"""The state of a run: what its events add up to, and nothing else.

`RunState.apply` is the only thing that changes it. A live run journals an event and applies it; a resumed one applies
what the journal holds. It is the same code, so both end in the same state.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Budget, tool_name
from shoal.errors import DefinitionMissing
from shoal.providers import EMPTY, Message, ProviderState, Text, Usage
from shoal.runtime._failures import first_paragraph
from shoal.runtime._frames import Frames
from shoal.runtime._output_spec import OutputAsked
from shoal.runtime._program import Program, StageProgram, loadable, loaded, recorded, with_own
from shoal.runtime._repetition import Repeats
from shoal.runtime._script_tools import ToolFile, script_tool
from shoal.runtime._visit import (
    MODIFYING,
    TALK,
    Child,
    Job,
    PointState,
    Turn,
    Visit,
    argument,
    call_id,
    calls_of,
    heading_of,
    texts,
)
from shoal.runtime.context import (
    CONVERSATION,
    DATE,
    MEMORY,
    WHOLE,
    Calibration,
    ContextCompacted,
    Edges,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    Epoch,
    ItemChanged,
    LayoutChanged,
    LoadPart,
    PartStored,
    Prompt,
    PromptAmended,
    PromptEpoch,
    RegionReset,
    SeedRefreshed,
    SeedResolved,
    Shelf,
    Surroundings,
    Window,
    assemble,
    declared_stable,
    load_rendering,
    materialise,
    nowhere,
    stand,
)
from shoal.runtime.events import (
    BlueprintChanged,
    BudgetGiven,
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
from shoal.runtime.tools import AGENT_WAIT, LOAD_TOOLS, Tool

Phase: TypeAlias = Literal["running", "paused", "ended"]

_DAY_S = 86_400
# Most runs have none of what it stands for, and there are many of them.
_NOTHING: Mapping[str, Any] = MappingProxyType({})
BUILD = "build"
"""The function that fails, in an event on a component."""


_NONE: frozenset[str] = frozenset()


@final
class RunState:
    """The state of one run.

    Args:
        run_id: The run.
        program: What it was spawned as.
        definition: Returns what the journal holds under a digest; `None` where scripts' renderings are not needed, and
            the run's blueprint was never changed.
        load: Returns the bytes of a stored part by its digest.
        facts: Returns what was looked up under a digest, where that is not in the journal yet; `None` takes
            *definition*.
        program_of: Returns what a digest stands for, of a run whose blueprint was changed; `None` for whoever only
            looks at it, and calls no tool.
    """

    __slots__ = (
        "_day",
        "_definition",
        "_facts",
        "_own",
        "_program_of",
        "_recent",
        "_stage",
        "artifacts",
        "asked",
        "budget",
        "calibration",
        "children",
        "complained",
        "copied",
        "cost",
        "crashes",
        "ended",
        "epoch",
        "epochs",
        "facts",
        "failure",
        "flags",
        "frames",
        "grants",
        "hooks_at_end",
        "in_vain",
        "inbox",
        "jobs",
        "last_at",
        "last_text",
        "last_text_seq",
        "leaving",
        "left_error",
        "left_out",
        "limited",
        "loaded",
        "output",
        "output_format",
        "output_seq",
        "own_files",
        "paused",
        "phase",
        "program",
        "questions",
        "ran_s",
        "renders",
        "repeats",
        "restarts",
        "routing",
        "run_id",
        "seq",
        "serving",
        "shelf",
        "shown_steady",
        "spawned",
        "steady",
        "stopped",
        "timers",
        "title",
        "tokenizer",
        "turn",
        "usage",
        "visit",
        "visits",
        "window",
    )

    def __init__(
        self,
        run_id: str,
        program: Program,
        *,
        definition: Callable[[str], bytes] | None = None,
        load: LoadPart = nowhere,
        facts: Callable[[str], bytes] | None = None,
        program_of: Callable[[str], Program] | None = None,
    ) -> None:
        self._facts = definition if facts is None else facts
        self.run_id = run_id
        self.program = program
        """What it is made of."""
        self._definition = definition
        self._program_of = program_of
        self.seq = 0
        self.phase: Phase = "running"
        self.budget = program.blueprint.budget
        """Limits for it and everything below it."""
        self.limited: tuple[BudgetGiven, ...] = ()
        """Limits that somebody gave in place of the blueprint's, oldest first."""
        self.ran_s = 0.0
        """How long it has been running up to its newest event, in seconds, without pauses and without a host."""
        self.last_at = 0.0
        """When its newest event happened, in unix seconds."""
        self.spawned: RunSpawned | None = None
        self.copied = 0
        """How many of its events are another run's history, which was billed there."""
        self.title: str | None = None
        self.paused: RunPaused | None = None
        self.ended: RunEnded | None = None
        self.shelf = Shelf(load)
        """The stored parts."""
        self.window: Window | None = None
        self.serving: tuple[str, str, int] = ("", "", 0)
        """Provider, model and window of the stage."""
        self._stage: StageProgram | None = None
        self.visits: dict[str, int] = {}
        self.visit: Visit | None = None
        self.leaving: TransitionChosen | None = None
        """The edge that is being taken, between leaving a stage and entering the next."""
        self.turn: Turn | None = None
        self.routing: InferenceCompleted | None = None
        self.failure: InferenceFailed | None = None
        self.left_error = ""
        """What the newest stage that was left failed with."""
        self.inbox: list[tuple[int, MessageReceived]] = []
        self.children: dict[str, Child] = {}
        self.jobs: dict[int, Job] = {}
        self.frames = Frames()
        """What its agentic functions did; empty where it walks the stages of a blueprint."""
        self.questions: dict[int, QuestionAsked] = {}
        """Questions that wait for a person, by seq."""
        self.timers: dict[int, TimerSet] = {}
        """Timers that have not fired, by seq."""
        self.grants: dict[str, set[str]] = {}
        """What was granted: keys by stage; those of the whole run under the empty name."""
        self.output: Text | None = None
        self.output_seq = 0
        self.output_format: str | None = None
        self.artifacts: tuple[str, ...] = ()
        self.last_text: Text = EMPTY
        self.last_text_seq = 0
        self.flags: dict[str, int | tuple[str, ...]] = {}
        self.usage = Usage()
        self.cost: Decimal | None = Decimal(0)
        self.calibration: dict[str, Calibration] = {}
        self.tokenizer: str | None = None
        """Who counted what was written last, where that was no estimate."""
        self.epoch: Epoch | None = None
        """What was sent to the stage's model, where that binds its thinking to it; `None` for any other model."""
        self.epochs = 0
        """How many epochs there were."""
        self.steady: dict[str, tuple[bytes, int]] = {}
        """Of regions declared `stable`: what stood for each in the newest request, and how often it had changed."""
        self.shown_steady: Mapping[str, bytes] = {}
        """What stood for each of them in the newest request."""
        self.asked = (0, 0)
        """Estimates of the newest request of the stage: its regions, and what is in none."""
        self.renders: Mapping[str, str] = {}
        """What scripts rendered of custom regions for the newest request: digests by region."""
        self.restarts: list[tuple[int, str]] = []
        """Seq and error of each restart since the run last got on."""
        self.repeats = Repeats(program.blueprint.repetition)
        """What was called since the run last got on."""
        self.in_vain = -1
        """How many turns the conversation had when compacting it gained nothing; -1 where it never did."""
        self.stopped: str | None = None
        """Why a hook stopped the run; `None` where none did."""
        self.hooks_at_end: dict[str, HookRan] = {}
        """What the hooks of the run's end decided, by hook: each is asked once."""
        self.crashes: list[float] = []
        """When its actor crashed, in unix seconds."""
        self.loaded: Mapping[str, tuple[str, ...]] = _NOTHING
        """Deferred tools that were loaded, by stage, in that order."""
        self.own_files: tuple[tuple[str, str], ...] = ()
        """Scripts of its own folder that are its tools: paths, and what the journal holds each under."""
        self._own: tuple[Tool, ...] = ()
        self.facts: Mapping[str, Mapping[str, str]] = _NOTHING
        """What was looked up for components when it began, by component."""
        self.left_out: Mapping[str, str] = _NOTHING
        """Components that raised and are left out of the prompt, and what they raised."""
        self.complained: frozenset[str] = frozenset()
        """Components of which an event has said that they are left out."""
        self._day = -1
        """The day that a component says, in days since 1970; -1 where none says it."""
        self._recent: dict[int, Payload] = {}
        """Events whose text an entry may still refer to."""

    def __repr__(self) -> str:
        stage = self.visit.stage if self.visit else "-"
        return f"<RunState {self.run_id} {self.phase} stage={stage} seq={self.seq}>"

    # --- reading

    @property
    def stage(self) -> StageProgram:
        """The stage that the run is in."""
        assert self._stage is not None  # a run is entered with its first event
        return self._stage

    @property
    def view(self) -> Window:
        """The window of a run that has entered its first stage."""
        assert self.window is not None  # see `stage`
        return self.window

    @property
    def made_by(self) -> RunSpawned:
        """How the run was spawned."""
        assert self.spawned is not None  # the first event of every run
        return self.spawned

    @property
    def now_calibration(self) -> Calibration:
        """How estimates for the current model are corrected."""
        return self.calibrated(self.serving[1])

    def costs(self, prompt: Prompt) -> int:
        """Return what *prompt* costs on the stage's model: its estimate, corrected by what earlier requests cost."""
        regions = prompt.tokens - prompt.tools.tokens
        return self.now_calibration.corrected(regions, prompt.tools.tokens + prompt.framing_tokens)

    def calibrated(self, model: str) -> Calibration:
        """Return how estimates for *model* are corrected."""
        return self.calibration.get(model, Calibration())

    @property
    def next_due(self) -> float | None:
        """When the next thing that the run waits for falls due, in unix seconds; `None` for nothing."""
        due = [asked.expires_at for asked in self.questions.values() if asked.expires_at is not None]
        if self.phase == "running":
            due += [timer.due_at for timer in self.timers.values()]
        return min(due, default=None)

    def kept(self, digest: str) -> bytes:
        """Return what the journal holds under *digest*.

        Raises:
            DefinitionMissing: No journal is at hand.
        """
        if self._definition is None:
            raise DefinitionMissing(f"what run {self.run_id} holds under {digest!r} is not at hand")
        return self._definition(digest)

    def prompt(self) -> Prompt:
        """Return what the stage's next request shows its model, as far as it is journaled."""
        if self.epoch is not None:
            return self.epoch.prompt(self.view)
        return assemble(self.view, self.stage.offered)

    def parked(self, index: int) -> bool:
        """Say whether call *index* of the newest reply waits for a person, or for the end of a child."""
        turn = self.turn
        assert turn is not None  # a call stands in a reply
        child = self.children.get(turn.waiting.get(index, ""))
        return turn.asking(index) or (child is not None and child.ended is None)

    def unsteady(self) -> tuple[str, ...]:
        """Return the regions declared `stable` that the next request shows changed for the second time."""
        now = declared_stable(self.view)
        if now == self.shown_steady:
            return ()
        known = {name: self.steady.get(name) for name in now}
        return tuple(name for name, held in known.items() if held and held[1] == 1 and held[0] != now[name])

    def busy_regions(self) -> frozenset[str]:
        """Regions whose summary is being made."""
        if not self.jobs:
            return _NONE
        started = [job.started for job in self.jobs.values()]
        return frozenset(each.region for each in started if each.lane == "compaction" and not each.aside)

    def content(self, source: int, index: int) -> Message:
        """Return what event *source* holds at *index*, as a message.

        Raises:
            DefinitionMissing: No such event is at hand: the journal refers to what it does not hold.
        """
        payload = self._recent.get(source)
        match payload:
            case InferenceCompleted() if index == WHOLE:
                state = None
                if payload.state is not None:
                    # The model that was asked, as in the live reply: a vendor answers under a dated name of it.
                    state = ProviderState(self.serving[0], self.serving[1], payload.state)
                return Message(
                    "assistant", (payload.text,) if payload.text else (), calls_of(source, payload), state=state
                )
            case InferenceCompleted():
                return Message("user", (argument(payload.calls[index].arguments, "content"),))
            case ToolCallCompleted():
                call = call_id(payload.source, payload.index)
                name = self._call_name(payload)
                return Message("tool", (payload.text,), call_id=call, tool_name=name, is_error=payload.is_error)
            case HookRan():
                return Message("user", (payload.text or EMPTY,))
            case MessageReceived() | Nudged():
                return Message("user", (payload.text,))
            case QuestionAnswered():
                return Message("user", () if payload.text is None else (payload.text,))
            case ItemRefused(_, _, item, why):
                return Message("user", (Text.of(f"{heading_of(item, 'refused')}\n{why}"),))
            case ChildEnded():
                heading = self.children[payload.child].heading
                return Message("user", (Text.of(f"{heading}\n{payload.output or first_paragraph(payload.reason)}"),))
            case _:
                raise DefinitionMissing(f"run {self.run_id} refers to event {source}, which holds no text")

    def _call_name(self, completed: ToolCallCompleted) -> str:
        made = self._recent.get(completed.source)
        return made.calls[completed.index].name if isinstance(made, InferenceCompleted) else ""

    # --- changing

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
        if self._day >= 0 and event.at // _DAY_S != self._day:
            self._compose()
        handler = _HANDLERS.get(type(payload))
        if handler is not None:
            handler(self, event, payload)
        elif isinstance(payload, EntryWritten):
            self._write(event, payload, message)

    def _write(self, event: Event, written: EntryWritten, message: Message | None) -> None:
        if message is None:
            blobs = self.shelf.blobs(written.parts)
            if written.source:
                content = self.content(written.source, written.index)
                message = materialise(content, written.cut, written.text, blobs)
                if written.kind not in ("assistant_turn", "tool_result") and message.role != "user":
                    # A result that was routed is plain text where it went.
                    message = Message("user", message.texts, blobs=blobs)
            else:
                message = Message("user", () if written.text is None else (written.text,), blobs=blobs)
        if self.epoch is not None and written.replaces:
            self.epoch.note(self.view, written)
        edges = (0, 0) if self.epoch is None else self._edges_in(written)
        if written.counted != "estimate":
            self.tokenizer = written.counted
        self.view.apply(written, event.seq, event.at, message)
        if self.epoch is not None and edges != self._edges_in(written):
            self.epoch.moved("masking")
        if self.inbox:
            self.inbox = [(seq, mail) for seq, mail in self.inbox if seq != written.source]
        if self.visit is not None and self.visit.points:
            self._hear(written.source)
        if self.turn is not None:
            self.turn.brought |= {written.source}
        if written.kind == "tool_result" and self.turn is not None:
            self.turn.answered |= {next(i for i, call in enumerate(self.turn.calls) if call.call_id == message.call_id)}

    def _edges_in(self, written: EntryWritten) -> tuple[int, int]:
        """Return where the view of the conversation changes, where *written* is a turn of it."""
        state = self.view.states[CONVERSATION]
        if self.epoch is None or state.view is None or written.kind != "assistant_turn":
            return (0, 0)
        edges: Edges = state.view.edges(state)
        return edges.masked, edges.forgotten

    def _hear(self, source: int) -> None:
        """Take note that what a person said at an interaction point stands in the window."""
        assert self.visit is not None  # the caller looked
        for name, point in self.visit.points.items():
            if point.answer is not None and point.answered == source:
                if point.edited and point.answer.text is not None:
                    self.last_text, self.last_text_seq = point.answer.text, source
                if name == TALK:
                    self.turn = self.routing = self.failure = None
                point.heard = name != TALK and not point.edited
                if not point.heard:
                    point.begin_again()

    def on_spawn(self, event: Event, payload: RunSpawned) -> None:
        seeds = tuple([(name, self.program.share(text)) for name, text in payload.seeds])
        self.spawned = msgspec.structs.replace(payload, seeds=seeds)
        self._limit(payload.budget)
        if payload.forked_from is not None:
            self.copied = payload.forked_from[1]

    def on_facts(self, event: Event, payload: FactsRecorded) -> None:
        self.facts = {**self.facts, payload.component: self._looked_up(payload.digest)}

    def on_memory(self, event: Event, payload: MemoryLoaded) -> None:
        self.facts = {**self.facts, MEMORY: {"state": payload.state, **self._looked_up(payload.digest)}}

    def on_script_failed(self, event: Event, payload: ScriptFailed) -> None:
        if payload.function == BUILD:
            self.complained |= {payload.script}

    def on_tools(self, event: Event, payload: ToolsFound) -> None:
        self.own_files = payload.files
        if self._facts is not None:
            files = [msgspec.json.decode(self._facts(digest), type=ToolFile) for _, digest in payload.files]
            self._own = tuple([script_tool(file) for file in files])
        self._restage(self.stage.name)

    def _looked_up(self, digest: str) -> Mapping[str, str]:
        return _NOTHING if self._facts is None else _parsed(self._facts(digest))

    def take_facts_from(self, definition: Callable[[str], bytes]) -> None:
        """Look up under *definition* from now on: the journal has by now what the run was born with."""
        self._facts = definition

    def on_enter(self, event: Event, payload: StageEntered) -> None:
        layout = self.program.stages[payload.stage].layout
        if self.window is None:
            self.window = Window(layout, payload.window_tokens, payload.intake, self.shelf)
        else:
            since = event.seq if layout.fresh else 0
            if self.epoch is not None and (since, layout.knobs) != (self.window.since, self.window.layout.knobs):
                self.epoch.moved("masking")
            self.window.enter(layout, payload.window_tokens, payload.intake, since=since)
        self._serve(payload.provider, payload.model, payload.window_tokens)
        self.window.ratio = self.now_calibration.ratio
        self.visits[payload.stage] = payload.visit
        self.visit = Visit(payload.stage, payload.visit, event.seq, self.ran_s)
        self._restage(payload.stage)
        self.turn = self.routing = self.failure = self.leaving = None

    def _restage(self, stage: str) -> None:
        """Take *stage* as the run sees it: with the tools that it has loaded there."""
        self._stage = loaded(with_own(self._seen(stage), self._own), self.loaded.get(stage, ()))
        self._compose()

    def _compose(self) -> None:
        """Make anew what components show."""
        components = self.stage.components
        self._day = int(self.last_at // _DAY_S) if any(each.name == DATE for each in components) else -1
        if components or self.view.standing:
            self.view.standing, failed = stand(components, self.surroundings(self.last_at))
            self.left_out = {each.name: each.error for each in failed}

    def surroundings(self, at: float) -> Surroundings:
        """Return what components make their texts of, at a time (unix seconds)."""
        blueprint, stage = self.program.blueprint, self.stage
        return Surroundings(
            self.run_id,
            blueprint.name,
            blueprint.description,
            stage.name,
            self.serving[0],
            self.serving[1],
            tuple(sorted(stage.tools)),
            tuple(stage.deferred),
            tuple(each.name for each in stage.components),
            self.made_by.workdir,
            blueprint.read_paths,
            self.facts,
            dt.datetime.fromtimestamp(at, dt.UTC).date().isoformat(),
        )

    def on_change_model(self, event: Event, payload: ModelChanged) -> None:
        self._serve(payload.provider, payload.model, payload.window_tokens)
        self.view.enter(self.stage.layout, payload.window_tokens, payload.intake)
        self.view.ratio = self.now_calibration.ratio
        self.failure = None
        self._compose()

    def _serve(self, provider: str, model: str, window_tokens: int) -> None:
        if self.serving[:2] != (provider, model):
            self.epoch = None  # nothing was sent to that one yet, and another one's thinking is not sent to it
        if self.view.layout.regions[CONVERSATION].kind == "custom":
            self.epoch = None  # what a script shows of the conversation brings no thinking back
        self.serving = (provider, model, window_tokens)

    def on_leave(self, event: Event, payload: StageLeft) -> None:
        self.turn = self.routing = self.failure = None
        self.left_error = payload.error
        for flag in payload.flags:
            self.raise_flag(flag)
        known = self.flags.get("required_regions_abandoned", ())
        still = {*(known if isinstance(known, tuple) else ()), *payload.abandoned}
        left = tuple(sorted(name for name in still if self.view.states[name].empty))
        self.flags.pop("required_regions_abandoned", None)
        if left:
            self.flags["required_regions_abandoned"] = left

    def on_choose(self, event: Event, payload: TransitionChosen) -> None:
        self.leaving = payload

    def on_epoch(self, event: Event, payload: PromptEpoch) -> None:
        if self._definition is not None:
            for region, digest in payload.renders:
                self.view.show(region, load_rendering(self._definition(digest)))
        self.epoch = Epoch(self.view, self.stage.offered, payload, self.epoch)
        self.epochs += 1

    def on_amend(self, event: Event, payload: PromptAmended) -> None:
        assert self.epoch is not None  # only an epoch is amended
        self.epoch.amend(self.view, payload)

    # --- agentic functions

    def on_enter_frame(self, event: Event, payload: FrameEntered) -> None:
        self.frames.enter(event, payload)

    def on_leave_frame(self, event: Event, payload: FrameLeft) -> None:
        self.frames.leave(event, payload)
        if payload.frame == self.frames.root and payload.output is not None:
            value: object = json.loads(str(payload.output))
            text = value if isinstance(value, str) else str(payload.output)
            self.output, self.output_seq = None if value is None else Text.of(text), event.seq

    def on_record(self, event: Event, payload: StepRecorded) -> None:
        self.restarts = []
        self.frames.record(event, payload)

    def on_open_call(self, event: Event, payload: CallOpened) -> None:
        self.frames.open(event, payload)

    def on_started(self, event: Event, payload: InferenceStarted) -> None:
        if payload.call:
            self.frames.ask(event, payload)
            return
        if self.epoch is not None and payload.purpose in ("stage", "routing"):
            if (
                payload.purpose == "stage"
                and self.epoch.prompt(self.view).digest_on(payload.model) != payload.prompt_digest
            ):
                self.epoch.differs()
            self.epoch.sent(self.view)
        if payload.purpose in ("stage", "routing"):
            self.renders = dict(payload.renders)
        if payload.purpose != "stage":
            return
        # What the request shows is in the window; entries to come refer to events to come, and to held mail.
        self._recent = dict(self.inbox)
        self.failure = None
        steady = declared_stable(self.view)
        if steady is not self.shown_steady:
            self.shown_steady = steady
            for name, digest in steady.items():
                held, changes = self.steady.get(name, (digest, 0))
                self.steady[name] = (digest, changes + (held != digest))
        self.asked = (payload.estimated, payload.base)
        visit = self.visit
        if visit is not None and not visit.iterations and not visit.digests:
            visit.digests = {name: self.view.states[name].digest() for name in self.stage.watched}

    @property
    def view_tokens(self) -> int:
        """Estimated tokens of what the stage's regions hold."""
        states = self.view.states
        held = sum([states[name].charged for name in self.view.layout.regions])
        return held + self.view.standing_tokens if self.view.standing else held

    def on_completed(self, event: Event, payload: InferenceCompleted) -> None:
        if event.seq > self.copied:
            self._bill(payload)
        call = self.frames.hear(event, payload)
        if call is not None:
            self.restarts = []
            if payload.billed.input:
                self._learn(self.frames.replies[event.seq].model, *call.asked, payload.billed.input)
        elif payload.purpose == "stage":
            assert self.visit is not None  # a stage's reply comes inside a visit
            self._recent[event.seq] = payload
            self.turn = Turn(event.seq, payload)
            self.visit.iterations += 1
            self.visit.hooks -= {"on_stage_exit"}
            self.visit.tool_calls += len(payload.calls)
            self.visit.called_tool = self.visit.called_tool or bool(payload.calls)
            self.restarts = []
            if payload.text:
                self.last_text, self.last_text_seq = payload.text, event.seq
            if payload.billed.input:
                self._learn(self.serving[1], *self.asked, payload.billed.input)
        elif payload.purpose == "routing":
            self.routing = payload

    def _bill(self, payload: InferenceCompleted) -> None:
        self.usage = self.usage + payload.billed
        self.cost = None if self.cost is None or payload.cost is None else self.cost + payload.cost

    def on_hook(self, event: Event, payload: HookRan) -> None:
        self._recent[event.seq] = payload
        if payload.hook in ("on_completion", "on_error"):
            self.hooks_at_end[payload.hook] = payload
            if payload.hook == "on_completion" and payload.text is not None:
                if self.output is not None:
                    self.output, self.output_seq = payload.text, event.seq
                self.last_text, self.last_text_seq = payload.text, event.seq
        elif self.visit is not None:
            self.visit.hooks |= {payload.hook}
        if payload.hook == "on_tool_call" and payload.action == "cancel":
            assert self.turn is not None  # its calls are of the newest reply
            self.turn.vetoed = payload.reason or "no reason was given"
        elif payload.action in ("cancel", "failed"):
            why = f": {payload.reason}" if payload.reason else ""
            self.stopped = f"the hook `{payload.hook}` of stage {payload.stage!r} {_STOPS[payload.action]}{why}"
        if payload.source and payload.action == "modify":
            self._revise(event, payload)

    def _revise(self, event: Event, payload: HookRan) -> None:
        """Take the newest reply as a hook left it."""
        reply = self._recent.get(payload.source)
        assert isinstance(reply, InferenceCompleted)  # it was journaled right before
        text = reply.text if payload.text is None else payload.text
        calls = reply.calls if payload.calls is None else payload.calls
        revised = msgspec.structs.replace(reply, text=text, calls=calls, state=None)
        self._recent[payload.source] = revised
        self.turn = Turn(payload.source, revised)
        if payload.text is not None:
            self.last_text, self.last_text_seq = payload.text, event.seq

    def on_failed(self, event: Event, payload: InferenceFailed) -> None:
        if not self.frames.miss(payload.started) and payload.purpose in ("stage", "routing"):
            self.failure = payload

    def on_measured(self, event: Event, payload: TokensMeasured) -> None:
        # The vendor's own count is of what goes out next, and no average is as good.
        exact = not payload.how.startswith("tiktoken:")
        self._learn(payload.model, payload.estimated, payload.base, payload.tokens, exact=exact)

    def _learn(self, model: str, estimated: int, base: int, measured: int, *, exact: bool = False) -> None:
        self.calibration[model] = self.calibrated(model).observed(estimated, base, measured, exact=exact)
        if model == self.serving[1]:
            self.view.ratio = self.calibration[model].ratio

    def on_call_started(self, event: Event, payload: ToolCallStarted) -> None:
        turn = self.turn
        if not self.frames.start(payload) and turn is not None and payload.source == turn.seq:
            turn.started |= {payload.index}
            call = turn.calls[payload.index]
            if call.name == AGENT_WAIT:
                turn.waiting[payload.index] = str(argument(call.arguments, "agent_id"))

    def on_call_completed(self, event: Event, payload: ToolCallCompleted) -> None:
        self.restarts = []
        if self.frames.complete(event, payload):
            return
        self._recent[event.seq] = payload
        if self.turn is not None and payload.source == self.turn.seq:
            self.turn.results[payload.index] = payload
            if self.visit is not None and (not payload.is_error or payload.gate == "permission"):
                self.visit.worked |= {tool_name(self.turn.calls[payload.index].name)}
            self.turn.written[payload.index] = event.seq
            call = self.turn.calls[payload.index]
            tool = self.stage.tools.get(tool_name(call.name))
            only_reads = tool is not None and tool.effects.reads and tool.effects.repeatable
            self.repeats.ended(call, is_error=payload.is_error, only_reads=only_reads)
            if self.visit is not None and not payload.is_error and tool_name(call.name) in MODIFYING:
                path = str(argument(call.arguments, "path"))
                self.visit.edits[path] = self.visit.edits.get(path, 0) + 1
            if call.name == LOAD_TOOLS and self.visit is not None and not payload.is_error:
                self._load(self.visit.stage, call.arguments)
            if call.name == "context_list" and not payload.is_error:
                self.view.note_listed(str(argument(call.arguments, "region")))

    def _load(self, stage: str, arguments: Text) -> None:
        """Put the tools that a call names on offer in *stage*."""
        before = self.loaded.get(stage, ())
        known, _ = loadable(self.stage, texts(arguments, "names"))
        new = tuple(name for name in known if name not in before)
        if new:
            self.loaded = {**self.loaded, stage: (*before, *new)}
            self._stage = loaded(self.stage, new)

    def on_nudge(self, event: Event, payload: Nudged) -> None:
        self._recent[event.seq] = payload
        self.turn = self.routing = self.failure = None
        if payload.reason == "repetition":
            self.repeats.said()
        if self.visit is not None:
            self.visit.asked[payload.reason] = self.visit.asked.get(payload.reason, 0) + 1
            if payload.reason == "directive":
                for point in self.visit.points.values():
                    if point.answer is not None and point.answered == payload.answer:
                        point.begin_again()

    def on_receive(self, event: Event, payload: MessageReceived) -> None:
        self._recent[event.seq] = payload
        self.inbox.append((event.seq, payload))

    def on_ask(self, event: Event, payload: QuestionAsked) -> None:
        self.questions[event.seq] = payload
        if payload.point and self.visit is not None:
            point = self.visit.points.setdefault(payload.point, PointState())
            point.question, point.answered, point.answer = event.seq, 0, None
            point.edited = payload.about == "edit"
        elif self.turn is not None and payload.source == self.turn.seq:
            self.turn.asked[payload.index] = event.seq
            self.turn.answers.pop(payload.index, None)

    def on_timer(self, event: Event, payload: TimerSet) -> None:
        self.timers[event.seq] = payload

    def on_fire(self, event: Event, payload: TimerFired) -> None:
        self.timers.pop(payload.timer, None)

    def on_answer(self, event: Event, payload: QuestionAnswered) -> None:
        asked = self.questions.pop(payload.question)
        self._recent[event.seq] = payload
        if asked.point and self.visit is not None:
            point = self.visit.points[asked.point]
            point.question, point.answered, point.answer = 0, event.seq, payload
        elif self.turn is not None and asked.source == self.turn.seq:
            self.turn.answers[asked.index] = payload

    def on_grant(self, event: Event, payload: GrantGiven) -> None:
        scope = payload.stage if payload.scope == "stage" else ""
        self.grants.setdefault(scope, set()).update(payload.keys)

    def granted(self, keys: Iterable[str]) -> bool:
        """Say whether what needs approval under *keys* (one or more) was granted before, all of it."""
        assert self.visit is not None  # calls are made inside a visit
        known = self.grants.get("", set()) | self.grants.get(self.visit.stage, set())
        wanted = set(keys)
        return bool(wanted) and wanted <= known

    def on_submit(self, event: Event, payload: OutputSubmitted) -> None:
        made = self._recent.get(payload.source)
        if isinstance(made, InferenceCompleted):
            text = argument(made.calls[payload.index].arguments, "content")
            self.output = text if payload.truncated is None else Text.of(str(text)[: payload.truncated])
        self.output_seq = event.seq
        self.output_format, self.artifacts = payload.format, payload.artifacts
        if self.visit is not None:
            self.visit.output_submitted = True

    def on_child_spawned(self, event: Event, payload: ChildSpawned) -> None:
        self.children[payload.child] = Child(payload)
        turn = self.turn
        if payload.waited and payload.item is None and turn is not None and payload.source == turn.seq:
            turn.waiting[payload.index] = payload.child
        if self.visit is not None:
            self.visit.children += 1

    def on_child_ended(self, event: Event, payload: ChildEnded) -> None:
        self._recent[event.seq] = payload
        child = self.children[payload.child]
        self.children[payload.child] = Child(child.spawned, payload, event.seq)

    def on_item_refused(self, event: Event, payload: ItemRefused) -> None:
        self._recent[event.seq] = payload
        if self.turn is not None and payload.source == self.turn.seq:
            self.turn.refused += ((event.seq, payload),)

    def on_job_started(self, event: Event, payload: LaneStarted) -> None:
        self.jobs[event.seq] = Job(event.seq, payload)

    def on_job_ended(self, event: Event, payload: LaneCompleted | LaneDegraded) -> None:
        job = self.jobs.pop(payload.job, None)
        if isinstance(payload, LaneDegraded) and payload.reason == "not_smaller" and payload.region == CONVERSATION:
            state = self.view.states[CONVERSATION]
            self.in_vain = 0 if state.view is None else state.view.edges(state).turns
        if job is not None and payload.lane == "refresh" and self.visit is not None:
            self.visit.refreshed |= {job.started.region}

    def on_gate_blocked(self, event: Event, payload: GateBlocked) -> None:
        if self.visit is not None:
            self.visit.gates[payload.target] = payload.attempt

    def on_gate_forced(self, event: Event, payload: GateForced) -> None:
        self.raise_flag("gates_forced")

    def raise_flag(self, name: str) -> None:
        """Count *name* once more among the run's flags."""
        known = self.flags.get(name, 0)
        self.flags[name] = known + 1 if isinstance(known, int) else known

    def on_titled(self, event: Event, payload: RunTitled) -> None:
        self.title = payload.title

    def on_pause(self, event: Event, payload: RunPaused) -> None:
        self.phase, self.paused = "paused", payload

    def on_resume(self, event: Event, payload: RunResumed) -> None:
        self.phase, self.paused, self.failure = "running", None, None
        self._limit(payload.budget)

    def _limit(self, given: BudgetGiven | None) -> None:
        if given is not None:
            self.limited += (given,)
            self.budget = _limited(self.budget, given)

    def on_change_blueprint(self, event: Event, payload: BlueprintChanged) -> None:
        self.program = self._made(payload.definition)
        self.spawned = payload.onto(self.made_by)
        self.budget = reduce(_limited, self.limited, self.program.blueprint.budget)
        self.repeats = Repeats(self.program.blueprint.repetition)
        self.steady, self.shown_steady = {}, {}  # what stands in the prompt changed by somebody's will
        self.epoch = None  # what was sent was made of another blueprint; what is sent next begins anew
        visit = self.visit
        assert visit is not None  # a run is in a stage from its birth on
        before = self.stage
        self._restage(visit.stage)
        visit.refreshed |= {*self.stage.refreshing} - {*before.refreshing}  # from the next entry on
        layout = self.stage.layout
        since = visit.entered_seq if layout.fresh else 0
        self.view.enter(layout, self.view.window_tokens, self.view.intake, since=since)
        self.view.redraw()
        if visit.iterations:
            now = {name: self.view.states[name].digest() for name in self.stage.watched}
            visit.digests = {**now, **visit.digests}  # a gate that is new counts what is done from here on

    def _made(self, digest: str) -> Program:
        if self._program_of is not None:
            return self._program_of(digest)
        if self._definition is None:
            raise DefinitionMissing(f"run {self.run_id} goes on with the definition {digest!r}, which is not at hand")
        return recorded(self._definition(digest))

    def _seen(self, stage: str) -> StageProgram:
        """Return *stage* as this run sees it."""
        made = self.made_by
        asked = OutputAsked(made.output_format, made.output_instructions, made.output_schema)
        remembers = MEMORY in self.facts
        return self.program.seen(stage, unattended=made.unattended, asked=asked, remembers=remembers)

    def on_budget_reached(self, event: Event, payload: BudgetReached) -> None:
        self.raise_flag("budget_reached")

    def on_restart(self, event: Event, payload: RunRestarted) -> None:
        self.restarts.append((event.seq, payload.error))
        self.crashes.append(event.at)

    def on_end(self, event: Event, payload: RunEnded) -> None:
        self.phase, self.ended = "ended", payload
        self.questions.clear()
        self.timers.clear()

    def on_part(self, event: Event, payload: PartStored) -> None:
        self.shelf.keep(event.seq, payload)

    def on_seed(self, event: Event, payload: SeedResolved | SeedRefreshed) -> None:
        blocks = [msgspec.structs.replace(block, text=self.program.share(block.text)) for block in payload.blocks]
        self.on_in_window(event, msgspec.structs.replace(payload, blocks=tuple(blocks)))

    def on_in_window(self, event: Event, payload: Any) -> None:
        if self.epoch is not None:
            self.epoch.note(self.view, payload)
        self.view.apply(payload, event.seq, event.at)

    # --- comparing

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
            "components": ([str(one.digest.hex()) for _, one in self.view.standing], dict(self.left_out), self._day),
            "frames": self.frames.dump(),
            "ended": self.ended,
        }


_HANDLERS: Mapping[type[Payload], Callable[[RunState, Event, Any], None]] = {
    RunSpawned: RunState.on_spawn,
    FactsRecorded: RunState.on_facts,
    MemoryLoaded: RunState.on_memory,
    RunTitled: RunState.on_titled,
    RunPaused: RunState.on_pause,
    RunResumed: RunState.on_resume,
    RunRestarted: RunState.on_restart,
    RunEnded: RunState.on_end,
    BlueprintChanged: RunState.on_change_blueprint,
    BudgetReached: RunState.on_budget_reached,
    ChildSpawned: RunState.on_child_spawned,
    ChildEnded: RunState.on_child_ended,
    ItemRefused: RunState.on_item_refused,
    OutputSubmitted: RunState.on_submit,
    StageEntered: RunState.on_enter,
    StageLeft: RunState.on_leave,
    TransitionChosen: RunState.on_choose,
    GateBlocked: RunState.on_gate_blocked,
    GateForced: RunState.on_gate_forced,
    Nudged: RunState.on_nudge,
    ModelChanged: RunState.on_change_model,
    LayoutChanged: RunState.on_in_window,
    SeedResolved: RunState.on_seed,
    SeedRefreshed: RunState.on_seed,
    EntriesEvicted: RunState.on_in_window,
    EntriesReleased: RunState.on_in_window,
    RegionReset: RunState.on_in_window,
    PartStored: RunState.on_part,
    ItemChanged: RunState.on_in_window,
    ContextCompacted: RunState.on_in_window,
    HookRan: RunState.on_hook,
    ScriptFailed: RunState.on_script_failed,
    FrameEntered: RunState.on_enter_frame,
    FrameLeft: RunState.on_leave_frame,
    StepRecorded: RunState.on_record,
    CallOpened: RunState.on_open_call,
    InferenceStarted: RunState.on_started,
    InferenceCompleted: RunState.on_completed,
    InferenceFailed: RunState.on_failed,
    TokensMeasured: RunState.on_measured,
    PromptEpoch: RunState.on_epoch,
    PromptAmended: RunState.on_amend,
    ToolCallStarted: RunState.on_call_started,
    ToolCallCompleted: RunState.on_call_completed,
    MessageReceived: RunState.on_receive,
    QuestionAsked: RunState.on_ask,
    TimerSet: RunState.on_timer,
    TimerFired: RunState.on_fire,
    QuestionAnswered: RunState.on_answer,
    GrantGiven: RunState.on_grant,
    ToolsFound: RunState.on_tools,
    LaneStarted: RunState.on_job_started,
    LaneCompleted: RunState.on_job_ended,
    LaneDegraded: RunState.on_job_ended,
}


def _limited(budget: Budget, given: BudgetGiven) -> Budget:
    """Return *budget* with the limits of *given* in place of its own."""
    limits = {name: value for name in given.__struct_fields__ if (value := getattr(given, name)) is not None}
    return replace(budget, **limits)


@lru_cache(maxsize=256)
def _parsed(facts: bytes) -> Mapping[str, str]:
    """Return *facts* as they are kept; runs that were told the same share them."""
    parsed: dict[str, str] = json.loads(facts)
    return MappingProxyType(parsed)


_STOPS: Mapping[str, str] = {"cancel": "stopped the run", "failed": "failed"}


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
