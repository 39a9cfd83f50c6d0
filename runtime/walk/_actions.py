"""What a run may do next."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from shoal.blueprints import Edge


@final
class Wait(msgspec.Struct, frozen=True):
    """Nothing: the run is paused, or over."""


@final
class Refresh(msgspec.Struct, frozen=True):
    """Resolve the seeds of these regions again."""

    regions: tuple[str, ...]


@final
class Infer(msgspec.Struct, frozen=True):
    """Ask the model for the stage's next turn."""


@final
class RunFunction(msgspec.Struct, frozen=True):
    """Run the agentic function that the run is."""


@final
class RunCalls(msgspec.Struct, frozen=True):
    """Run the open calls of the newest reply."""


@final
class RunFanOut(msgspec.Struct, frozen=True):
    """Hand the items of this call to workers."""

    index: int


@final
class WriteResults(msgspec.Struct, frozen=True):
    """Put the results of the newest reply's calls where they belong."""


@final
class Ask(msgspec.Struct, frozen=True):
    """Ask the stage again. *counted* is the reason under which it is counted."""

    counted: str
    text: str


@final
class Route(msgspec.Struct, frozen=True):
    """Ask the model which of these edges to take."""

    edges: tuple[Edge, ...]


@final
class Hold(msgspec.Struct, frozen=True):
    """A gate holds the edge to *target* for the *attempt*-th time: say *text* and let the stage go on."""

    target: str
    requirement: str
    attempt: int
    text: str


@final
class Leave(msgspec.Struct, frozen=True):
    """Leave the stage.

    Args:
        reason: Why, as `StageLeft` says it.
        target: The next stage; `None` ends the run.
        condition: The edge's condition, or `linear`, `merge`, `terminal`.
        edge: The edge; `None` where none is taken.
        by: Who chose.
        flags: What was let through.
        error: What went wrong; empty for nothing.
        forced: What the edge's gate still asks for; empty where it holds nothing back.
    """

    reason: Literal["done", "error", "max_iterations", "stuck"]
    target: str | None
    condition: str
    edge: Edge | None = None
    by: Literal["edge", "model", "default"] = "edge"
    flags: tuple[str, ...] = ()
    error: str = ""
    forced: str = ""


@final
class EnterNext(msgspec.Struct, frozen=True):
    """The edge is taken and its summaries are through: enter the next stage."""

    target: str


@final
class WaitForJobs(msgspec.Struct, frozen=True):
    """Wait for the summaries that the edge ordered."""


@final
class AskPoint(msgspec.Struct, frozen=True):
    """Ask a person at this interaction point; *edit* hands them the stage's text to change."""

    point: str
    edit: bool = False


@final
class Direct(msgspec.Struct, frozen=True):
    """Send the stage back with what a person's answer stands for. *answer* is the seq of that answer."""

    answer: int
    text: str


@final
class Hear(msgspec.Struct, frozen=True):
    """Put what a person said at this interaction point into the conversation."""

    point: str


@final
class RunHook(msgspec.Struct, frozen=True):
    """Ask this hook of the stage. *status* and *reason* are those of the end that the run comes to."""

    hook: str
    status: str = ""
    reason: str = ""


@final
class Pause(msgspec.Struct, frozen=True):
    """Wait for a person."""

    reason: str
    remedy: str
    numbers: tuple[tuple[str, int | float | str], ...] = ()


@final
class Finish(msgspec.Struct, frozen=True):
    """End the run."""

    status: Literal["complete", "complete_interactive", "error", "cancelled"]
    reason: str


Action: TypeAlias = (
    Wait
    | Refresh
    | Infer
    | RunFunction
    | RunCalls
    | RunFanOut
    | WriteResults
    | Ask
    | Route
    | Hold
    | Leave
    | EnterNext
    | AskPoint
    | Direct
    | Hear
    | WaitForJobs
    | RunHook
    | Pause
    | Finish
)
