"""What the events of agentic functions add up to: their frames, the calls in each, and what came of every call."""

from __future__ import annotations

from typing import TypeAlias, final

import msgspec

from shoal.providers import EMPTY, Message, Text, ToolCall
from shoal.runtime.events import (
    CallOpened,
    Event,
    FrameEntered,
    FrameLeft,
    InferenceCompleted,
    InferenceStarted,
    StepRecorded,
    ToolCallCompleted,
    ToolCallStarted,
)
from shoal.runtime.state._visit import calls_of


@final
class Round(msgspec.Struct, gc=False):
    """One reply in a call, and what came of the tools that it called.

    Args:
        seq: Seq of the reply.
        reply: The reply.
        provider: Who was asked.
        model: The model that was asked.
        calls: The tools it called, under their own ids.
        started: Calls that are journaled as started.
        results: Results by number of the call, each with its seq.
    """

    seq: int
    reply: InferenceCompleted
    provider: str
    model: str
    calls: tuple[ToolCall, ...]
    started: frozenset[int] = frozenset()
    results: dict[int, tuple[int, ToolCallCompleted]] = {}

    @property
    def open_calls(self) -> tuple[int, ...]:
        """Numbers of the calls without a result, in order."""
        return tuple([index for index in range(len(self.calls)) if index not in self.results])


@final
class Again(msgspec.Struct, frozen=True, gc=False):
    """What a model was told that is asked once more in the same call."""

    seq: int
    text: Text


Said: TypeAlias = Round | Again


@final
class Call(msgspec.Struct, gc=False):
    """One call of a model by a function.

    Args:
        seq: Seq of its `CallOpened`.
        opened: How it was opened.
        said: What was said in it, oldest first.
        asked: Estimates of its newest request: what is in it, and what frames that.
        failed: What it ended with, where that is a failure.
    """

    seq: int
    opened: CallOpened
    said: list[Said] = []
    asked: tuple[int, int] = (0, 0)
    failed: StepRecorded | None = None

    @property
    def rounds(self) -> int:
        """How many replies there were."""
        return sum(isinstance(each, Round) for each in self.said)

    def whole_at(self, seq: int) -> tuple[Said, ...]:
        """Return what was said in it in front of event *seq*; nothing where it was under way then, or had failed."""
        said = tuple([each for each in self.said if each.seq < seq])
        last = said[-1] if said else None
        if not isinstance(last, Round) or last.calls or (self.failed is not None):
            return ()
        return said


@final
class Frame(msgspec.Struct, gc=False):
    """One agentic function that was called.

    Args:
        seq: Seq of its `FrameEntered`, by which the frame is known.
        entered: How it was called.
        at: When, unix seconds.
        path: The frames from the run's own to this one, this one included.
        left: How it ended, and the seq of that; `None` while it runs.
        calls: Calls of models by number: seqs of their `CallOpened`.
        steps: What it recorded, by number.
        called: Functions that it called, by number.
        by_tool: Functions that a model called for it: by seq of the reply and number of the call.
        below: All of these, in order.
        kinds: What each number stands for: the kind of the call, and its digest.
    """

    seq: int
    entered: FrameEntered
    at: float
    path: tuple[int, ...]
    left: tuple[int, FrameLeft] | None = None
    calls: dict[int, int] = {}
    steps: dict[int, StepRecorded] = {}
    called: dict[int, int] = {}
    by_tool: dict[tuple[int, int], int] = {}
    below: list[int] = []
    kinds: dict[int, tuple[str, str]] = {}

    def running_at(self, seq: int) -> bool:
        """Say whether it had not ended in front of event *seq*."""
        return self.left is None or self.left[0] >= seq

    def note(self, number: int, kind: str, digest: str) -> None:
        """Take note of what a number stands for."""
        self.kinds.setdefault(number, (kind, digest))


@final
class Frames:
    """The frames of one run, and the calls of models in them."""

    __slots__ = ("_requests", "calls", "drawn", "frames", "made", "newest", "replies", "root")

    def __init__(self) -> None:
        self.frames: dict[int, Frame] = {}
        """By seq."""
        self.calls: dict[int, Call] = {}
        """By seq, which is the order in which they were opened."""
        self.root = 0
        """The frame of the run's own function; 0 before it began."""
        self.newest = 0
        """The call of which the newest event is; 0 before the first."""
        self.replies: dict[int, Round] = {}
        """Every reply in a call, by its seq."""
        self.made: dict[tuple[int, bool, int], tuple[Message, ...]] = {}
        """Messages that were made of replies, so that each is made and encoded once."""
        self.drawn: dict[tuple[int, int, bool], tuple[str, ...]] = {}
        """Lines of the call tree of functions that are over, which never change again: by frame, depth, and whether it
        keeps what it said."""
        self._requests: dict[int, tuple[int, InferenceStarted]] = {}

    def __repr__(self) -> str:
        return f"<Frames {len(self.frames)} with {len(self.calls)} calls>"

    # --- changing

    def enter(self, event: Event, payload: FrameEntered) -> None:
        """Take note that a function began."""
        above = self.frames.get(payload.parent)
        path = (*(() if above is None else above.path), event.seq)
        self.frames[event.seq] = Frame(event.seq, payload, event.at, path)
        if above is None:
            self.root = event.seq
            return
        above.below.append(event.seq)
        if payload.source:
            above.by_tool[payload.source, payload.index] = event.seq
        else:
            above.called[payload.call] = event.seq
            above.note(payload.call, payload.function, payload.digest)

    def leave(self, event: Event, payload: FrameLeft) -> None:
        """Take note that a function ended."""
        self.frames[payload.frame].left = (event.seq, payload)

    def record(self, event: Event, payload: StepRecorded) -> None:
        """Take note of what a function recorded."""
        frame = self.frames[payload.frame]
        opened = frame.calls.get(payload.call)
        if opened is None:
            frame.steps[payload.call] = payload
            # A call that nobody could serve was never opened.
            frame.note(payload.call, "infer" if payload.step == "failed" else payload.step, payload.digest)
        elif payload.step == "again":
            self.calls[opened].said.append(Again(event.seq, payload.value or EMPTY))
        else:
            self.calls[opened].failed = payload

    def open(self, event: Event, payload: CallOpened) -> None:
        """Take note that a function asks a model."""
        frame = self.frames[payload.frame]
        frame.calls[payload.call] = event.seq
        frame.note(payload.call, "infer", payload.digest)
        self.calls[event.seq] = Call(event.seq, payload)
        self.newest = event.seq

    def ask(self, event: Event, payload: InferenceStarted) -> None:
        """Take note that a request of a call goes out."""
        self._requests[event.seq] = (payload.call, payload)
        self.newest = payload.call
        self.calls[payload.call].asked = (payload.estimated, payload.base)

    def hear(self, event: Event, payload: InferenceCompleted) -> Call | None:
        """Take note of a reply; return the call that it belongs to, `None` where it belongs to none."""
        asked = self._requests.pop(payload.started, None)
        if asked is None:
            return None
        number, started = asked
        self.newest = number
        call = self.calls[number]
        made = Round(event.seq, payload, started.provider, started.model, calls_of(event.seq, payload))
        call.said.append(made)
        self.replies[event.seq] = made
        return call

    def miss(self, started: int) -> bool:
        """Take note that a request came to nothing; say whether it was one of a call."""
        return self._requests.pop(started, None) is not None

    def start(self, payload: ToolCallStarted) -> bool:
        """Take note that a tool is about to run; say whether a call asked for it."""
        made = self.replies.get(payload.source)
        if made is not None:
            made.started |= {payload.index}
        return made is not None

    def complete(self, event: Event, payload: ToolCallCompleted) -> bool:
        """Take note that a tool came to an end; say whether a call asked for it."""
        made = self.replies.get(payload.source)
        if made is not None:
            made.results[payload.index] = (event.seq, payload)
        return made is not None

    # --- comparing

    def dump(self) -> dict[str, object]:
        """Return all of it as plain values; equal ones give equal dumps."""
        return {
            "root": self.root,
            "newest": self.newest,
            "frames": {seq: msgspec.structs.astuple(frame) for seq, frame in self.frames.items()},
            "calls": {seq: msgspec.structs.astuple(call) for seq, call in self.calls.items()},
            "requests": dict(self._requests),
        }
