"""What is known of a run: plain values, and what follows from them at once; the handlers beside it change them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from shoal.errors import DefinitionMissing
from shoal.providers import EMPTY, Text, Usage
from shoal.runtime.context import (
    Calibration,
    Epoch,
    LoadPart,
    Prompt,
    Shelf,
    Surroundings,
    Window,
    assemble,
    declared_stable,
    nowhere,
)
from shoal.runtime.events import (
    BudgetGiven,
    HookRan,
    InferenceCompleted,
    InferenceFailed,
    MessageReceived,
    Payload,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunSpawned,
    TimerSet,
    TransitionChosen,
)
from shoal.runtime.program import Program, StageProgram
from shoal.runtime.state._frames import Frames
from shoal.runtime.state._repetition import Repeats
from shoal.runtime.state._visit import Child, Job, Turn, Visit
from shoal.runtime.tools import Tool

Phase: TypeAlias = Literal["running", "paused", "ended"]
# Most runs have none of what these stand for, and there are many runs.
NOTHING: Mapping[str, Any] = MappingProxyType({})
_NONE: frozenset[str] = frozenset()


class RunRecord:
    """What is known of one run.

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
        "artifacts",
        "asked",
        "budget",
        "calibration",
        "children",
        "complained",
        "copied",
        "cost",
        "crashes",
        "day",
        "definition",
        "ended",
        "epoch",
        "epochs",
        "facts",
        "facts_under",
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
        "own_tools",
        "paused",
        "phase",
        "program",
        "program_of",
        "questions",
        "ran_s",
        "recent",
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
        "staged",
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
        self.run_id = run_id
        self.program = program
        """What it is made of."""
        self.definition = definition
        """Returns what the journal holds under a digest; `None` where no journal is at hand."""
        self.facts_under = definition if facts is None else facts
        """Returns what was looked up for components, under a digest; `None` where no journal is at hand."""
        self.program_of = program_of
        """Returns what a digest stands for, made ready to run; `None` for whoever only looks at the run."""

        # The run as a whole.
        self.seq = 0
        self.phase: Phase = "running"
        self.last_at: float = 0.0
        """When its newest event happened, in unix seconds."""
        self.ran_s: float = 0.0
        """How long it has been running up to its newest event, in seconds, without pauses and without a host."""
        self.spawned: RunSpawned | None = None
        self.copied = 0
        """How many of its events are another run's history, which was billed there."""
        self.title: str | None = None
        self.paused: RunPaused | None = None
        self.ended: RunEnded | None = None
        self.restarts: list[tuple[int, str]] = []
        """Seq and error of each restart since the run last got on."""
        self.crashes: list[float] = []
        """When its actor crashed, in unix seconds."""

        # What it may use, what it used, and what it gives.
        self.budget = program.blueprint.budget
        """Limits for it and everything below it."""
        self.limited: tuple[BudgetGiven, ...] = ()
        """Limits that somebody gave in place of the blueprint's, oldest first."""
        self.usage = Usage()
        self.cost: Decimal | None = Decimal(0)
        self.output: Text | None = None
        self.output_seq = 0
        self.output_format: str | None = None
        self.artifacts: tuple[str, ...] = ()
        self.last_text: Text = EMPTY
        self.last_text_seq = 0
        self.flags: dict[str, int | tuple[str, ...]] = {}

        # Where it stands: its stage, the visit of that, and the newest reply.
        self.staged: StageProgram | None = None
        """The stage as the run sees it, with what was loaded there; `None` in front of the first."""
        self.serving: tuple[str, str, int] = ("", "", 0)
        """Provider, model and window of the stage."""
        self.visits: dict[str, int] = {}
        self.visit: Visit | None = None
        self.turn: Turn | None = None
        self.routing: InferenceCompleted | None = None
        self.failure: InferenceFailed | None = None
        self.leaving: TransitionChosen | None = None
        """The edge that is being taken, between leaving a stage and entering the next."""
        self.left_error = ""
        """What the newest stage that was left failed with."""
        self.repeats = Repeats(program.blueprint.repetition)
        """What was called since the run last got on."""
        self.stopped: str | None = None
        """Why a hook stopped the run; `None` where none did."""
        self.hooks_at_end: dict[str, HookRan] = {}
        """What the hooks of the run's end decided, by hook: each is asked once."""
        self.frames = Frames()
        """What its agentic functions did; empty where it walks the stages of a blueprint."""

        # Its window, and what of that was shown.
        self.window: Window | None = None
        self.shelf = Shelf(load)
        """The stored parts."""
        self.recent: dict[int, Payload] = {}
        """Events whose text an entry may still refer to."""
        self.epoch: Epoch | None = None
        """What was sent to the stage's model, where that binds its thinking to it; `None` for any other model."""
        self.epochs = 0
        """How many epochs there were."""
        self.steady: dict[str, tuple[bytes, int]] = {}
        """Of regions declared `stable`: what stood for each in the newest request, and how often it had changed."""
        self.shown_steady: Mapping[str, bytes] = {}
        """What stood for each of them in the newest request."""
        self.renders: Mapping[str, str] = {}
        """What scripts rendered of custom regions for the newest request: digests by region."""
        self.asked: tuple[int, int] = (0, 0)
        """Estimates of the newest request of the stage: its regions, and what is in none."""
        self.calibration: dict[str, Calibration] = {}
        self.tokenizer: str | None = None
        """Who counted what was written last, where that was no estimate."""
        self.in_vain = -1
        """How many turns the conversation had when compacting it gained nothing; -1 where it never did."""

        # What components and tools of its own it has.
        self.facts: Mapping[str, Mapping[str, str]] = NOTHING
        """What was looked up for components when it began, by component."""
        self.left_out: Mapping[str, str] = NOTHING
        """Components that raised and are left out of the prompt, and what they raised."""
        self.complained: frozenset[str] = frozenset()
        """Components of which an event has said that they are left out."""
        self.day = -1
        """The day that a component says, in days since 1970; -1 where none says it."""
        self.loaded: Mapping[str, tuple[str, ...]] = NOTHING
        """Deferred tools that were loaded, by stage, in that order."""
        self.own_files: tuple[tuple[str, str], ...] = ()
        """Scripts of its own folder that are its tools: paths, and what the journal holds each under."""
        self.own_tools: tuple[Tool, ...] = ()

        # Others: people, children, lanes.
        self.inbox: list[tuple[int, MessageReceived]] = []
        self.questions: dict[int, QuestionAsked] = {}
        """Questions that wait for a person, by seq."""
        self.timers: dict[int, TimerSet] = {}
        """Timers that have not fired, by seq."""
        self.grants: dict[str, set[str]] = {}
        """What was granted: keys by stage; those of the whole run under the empty name."""
        self.children: dict[str, Child] = {}
        self.jobs: dict[int, Job] = {}

    def __repr__(self) -> str:
        stage = self.visit.stage if self.visit else "-"
        return f"<RunState {self.run_id} {self.phase} stage={stage} seq={self.seq}>"

    @property
    def stage(self) -> StageProgram:
        """The stage that the run is in."""
        assert self.staged is not None  # a run is entered with its first event
        return self.staged

    @property
    def visiting(self) -> Visit:
        """The visit of that stage."""
        assert self.visit is not None  # see `stage`
        return self.visit

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
        if self.definition is None:
            raise DefinitionMissing(f"what run {self.run_id} holds under {digest!r} is not at hand")
        return self.definition(digest)

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

    @property
    def view_tokens(self) -> int:
        """Estimated tokens of what the stage's regions hold."""
        states = self.view.states
        held = sum([states[name].charged for name in self.view.layout.regions])
        return held + self.view.standing_tokens if self.view.standing else held

    def granted(self, keys: Iterable[str]) -> bool:
        """Say whether what needs approval under *keys* (one or more) was granted before, all of it."""
        assert self.visit is not None  # calls are made inside a visit
        known = self.grants.get("", set()) | self.grants.get(self.visit.stage, set())
        wanted = set(keys)
        return bool(wanted) and wanted <= known

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

    def raise_flag(self, name: str) -> None:
        """Count *name* once more among the run's flags."""
        known = self.flags.get(name, 0)
        self.flags[name] = known + 1 if isinstance(known, int) else known
