"""Events of tools and people: calls, messages, questions and grants."""

from __future__ import annotations

from typing import Literal, final

import msgspec

from shoal.providers import Text


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
