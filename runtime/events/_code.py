"""Events of agentic functions: their frames, what they asked, and what they recorded."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers import Text

Expose: TypeAlias = Literal["io", "llm", "full", "hidden"]
"""What others see of a function: arguments and result, its exchanges with models, both, or nothing."""
FrameStatus: TypeAlias = Literal["done", "error", "cancelled"]
StepKind: TypeAlias = Literal["step", "now", "random", "sleep", "spawn", "again", "failed"]


@final
class FrameEntered(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An agentic function began; the seq of this event is the number of its frame.

    Args:
        function: Its name.
        arguments: Its arguments as a JSON object.
        parent: The frame that called it; 0 for the run's own function.
        call: Number of the call in that frame; 0 where a model called it, and for the run's own.
        digest: Digest of function and arguments.
        source: Seq of the reply whose tool call called it; 0 where code did.
        index: Number of that tool call.
        expose: What others see of it.
        callers: How many exchanges from before it began it sees; `None` for no cap.
        subcalls: How many of those made since, below it, it sees; `None` for no cap.
        job: What it does, one sentence; empty for nothing.
        system: What it says of itself to every model that it asks; empty for nothing.
    """

    function: str
    arguments: Text
    parent: int = 0
    call: int = 0
    digest: str = ""
    source: int = 0
    index: int = 0
    expose: Expose = "io"
    callers: int | None = None
    subcalls: int | None = None
    job: str = ""
    system: str = ""


@final
class FrameLeft(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An agentic function ended.

    Args:
        frame: Its frame.
        status: How.
        output: What it returned, as JSON; `None` where it returned nothing because it failed.
        key: What is kept of that in the call tree.
        error: Class of what it raised; empty where it did not.
        reason: What that said.
    """

    frame: int
    status: FrameStatus
    output: Text | None = None
    key: str = ""
    error: str = ""
    reason: str = ""


@final
class StepRecorded(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A function did something once, and what came of it is returned whenever it comes here again.

    Args:
        frame: The frame.
        call: Number of the call in it.
        step: What it was: `again` asks a model once more in a call that is under way, `failed` ends a call.
        digest: Digest of what was asked for.
        value: What came of it, as JSON; of `again`, what the model is told. `None` where it failed.
        error: Class of what was raised; empty where nothing was.
        reason: What that said.
    """

    frame: int
    call: int
    step: StepKind
    digest: str
    value: Text | None = None
    error: str = ""
    reason: str = ""


@final
class CallOpened(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A function asks a model; the seq of this event is the number by which requests name the call.

    Args:
        frame: The frame.
        call: Number of the call in it.
        blocks: What opens the user message of the call, and is in no later one: owner and text, in order.
        at: The time that the call is told, unix seconds.
        digest: Digest of what was asked for.
        tools: Digest under which the journal holds the tools on offer; empty for none.
        provider: Who serves it.
        model: The model.
        steady: What was sent stays as it is until the call is over, since the model binds its thinking to it.
    """

    frame: int
    call: int
    blocks: tuple[tuple[str, Text], ...]
    at: float
    digest: str = ""
    tools: str = ""
    provider: str = ""
    model: str = ""
    steady: bool = False
