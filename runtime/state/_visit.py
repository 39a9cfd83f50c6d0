"""What a visit of a stage is about: the newest reply and how far its calls are, children, jobs, and what is counted.

All of it is plain values that `RunState` changes, and that others look at.
"""

from __future__ import annotations

import json
from typing import cast, final

import msgspec

from shoal.providers import EMPTY, Text, ToolCall
from shoal.runtime.events import (
    ChildEnded,
    ChildSpawned,
    InferenceCompleted,
    ItemRefused,
    LaneStarted,
    QuestionAnswered,
    ToolCallCompleted,
)
from shoal.runtime.tools import shown_name

MODIFYING = frozenset({"write_file", "edit_file"})
"""Built-in tools that change a file."""

TALK = "talk"
"""The interaction point that a stage of mode `interactive` has at its end."""


@final
class Turn(msgspec.Struct, gc=False, eq=False):
    """The newest reply of the stage, and how far its calls are.

    Args:
        seq: Seq of the reply.
        reply: The reply.
        calls: Its calls, under their own ids.
        started: Calls that were started.
        results: The result of each call that has one.
        written: Seq of each result, by call.
        answered: Calls whose result stands in the conversation.
        brought: Sources of what was written since.
        asked: Seq of the question that a call waits for, by call.
        answers: What a person said to a call's question, by call.
        waiting: The run whose end a call waits for, by call.
        vetoed: Why a hook stopped the calls; `None` where none did.
        refused: Items of a fan-out that could not be handed out, each behind its seq.
    """

    seq: int
    reply: InferenceCompleted
    calls: tuple[ToolCall, ...] = ()
    started: frozenset[int] = frozenset()
    results: dict[int, ToolCallCompleted] = {}
    written: dict[int, int] = {}
    answered: frozenset[int] = frozenset()
    brought: frozenset[int] = frozenset()
    asked: dict[int, int] = {}
    answers: dict[int, QuestionAnswered] = {}
    waiting: dict[int, str] = {}
    vetoed: str | None = None
    refused: tuple[tuple[int, ItemRefused], ...] = ()

    def __post_init__(self) -> None:
        self.calls = calls_of(self.seq, self.reply)

    @property
    def open_calls(self) -> tuple[int, ...]:
        """Numbers of the calls without a result, in call order."""
        return tuple([index for index in range(len(self.calls)) if index not in self.results])

    def asking(self, index: int) -> bool:
        """Say whether call *index* waits for a person."""
        return index in self.asked and index not in self.answers


def heading_of(name: str, status: str) -> str:
    """Return the line that stands over a worker's answer: one line, whatever *name* holds, so that it forges none."""
    return f"--- {shown_name(name) or repr(name)} ({status}) ---"


@final
class Child(msgspec.Struct, frozen=True):
    """A child run as its parent knows it."""

    spawned: ChildSpawned
    ended: ChildEnded | None = None
    ended_seq: int = 0

    @property
    def open(self) -> bool:
        """It has not ended, and its parent's end would end it."""
        return self.ended is None and not self.spawned.detached

    @property
    def heading(self) -> str:
        """The line that stands over its answer where a region shows it."""
        status = "running" if self.ended is None else self.ended.status
        return heading_of(self.spawned.item or self.spawned.name, status)


@final
class Job(msgspec.Struct, frozen=True):
    """A lane job that is under way: the seq of its `LaneStarted`, and that event."""

    job: int
    started: LaneStarted


@final
class PointState(msgspec.Struct):
    """How far an interaction point is in one visit of its stage.

    Args:
        rounds: How often its answer sent the stage back.
        question: Seq of the question that is open; 0 for none.
        answered: Seq of the answer that is not seen to yet; 0 for none.
        answer: That answer.
        edited: The answer is an edited text.
        heard: The answer stands in the conversation, and the point lets its stage go.
    """

    rounds: int = 0
    question: int = 0
    answered: int = 0
    answer: QuestionAnswered | None = None
    edited: bool = False
    heard: bool = False

    def begin_again(self) -> None:
        """Its answer was seen to, and it will be asked again."""
        self.rounds += 1
        self.answered, self.answer, self.edited = 0, None, False


@final
class Visit(msgspec.Struct, gc=False, eq=False):
    """What is counted within one visit of a stage, and forgotten with it.

    Args:
        stage: The stage.
        number: Which visit of it this is, 1 or more.
        entered_seq: Seq of the event that began it.
        began_s: How long the run had been running when it entered, in seconds.
        iterations: Requests so far.
        tool_calls: Calls so far.
        called_tool: Some reply called a tool.
        output_submitted: An answer was submitted.
        asked: How often the stage was asked again, by reason.
        gates: How often a gate held, by the edge's target.
        hooks: Hooks that were asked; that of the exit once more whenever the stage went on.
        refreshed: Regions whose refresh came to an end in this visit.
        children: How many children it has spawned.
        edits: How often each file was written or edited, by the path that the call named.
        worked: Tools of which a call succeeded, or was stopped by a permission.
        points: How far its interaction points are, by name.
        digests: Digests of the regions that gates of this stage watch, as of its first request.
    """

    stage: str
    number: int
    entered_seq: int
    began_s: float = 0.0
    iterations: int = 0
    tool_calls: int = 0
    called_tool: bool = False
    output_submitted: bool = False
    asked: dict[str, int] = {}
    gates: dict[str, int] = {}
    hooks: frozenset[str] = frozenset()
    refreshed: frozenset[str] = frozenset()
    children: int = 0
    edits: dict[str, int] = {}
    worked: frozenset[str] = frozenset()
    points: dict[str, PointState] = {}
    digests: dict[str, bytes] = {}


# --- calls


def call_id(seq: int, index: int) -> str:
    """Return Shoal's own id of call *index* of the reply *seq*: unique in its run, and the same on every replay."""
    return f"call_{seq}_{index}"


def calls_of(seq: int, reply: InferenceCompleted) -> tuple[ToolCall, ...]:
    """Return the calls of the reply *seq* under their own ids."""
    return tuple(
        ToolCall(call_id(seq, index), call.name, call.arguments, call.vendor_id)
        for index, call in enumerate(reply.calls)
    )


def texts(arguments: Text, name: str) -> tuple[str, ...]:
    """Return one argument of a call that is a list of texts; empty where it is missing or something else."""
    try:
        parsed: object = json.loads(str(arguments) or "{}")
    except (ValueError, RecursionError):
        return ()
    value = cast("dict[str, object]", parsed).get(name) if isinstance(parsed, dict) else None
    items = cast("list[object]", value) if isinstance(value, list) else []
    return tuple([item for item in items if isinstance(item, str)])


def argument(arguments: Text, name: str) -> Text:
    """Return one text argument of a call; empty where it is missing or no text."""
    try:
        parsed: object = json.loads(str(arguments) or "{}")
    except (ValueError, RecursionError):
        return EMPTY
    value = cast("dict[str, object]", parsed).get(name) if isinstance(parsed, dict) else None
    return Text.of(value) if isinstance(value, str) else EMPTY
