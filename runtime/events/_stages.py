"""Events of stages: their visits, edges, gates and timers, and what was looked up for them."""

from __future__ import annotations

from typing import Literal, final

import msgspec

from shoal.providers import TEXT_ONLY, Intake, Text


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
