"""What a model says, and what it is asked, in no vendor's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

if TYPE_CHECKING:
    from shoal.testing.wire._faults import Fault

Dialect: TypeAlias = Literal["anthropic", "chat", "responses", "gemini"]
"""Anthropic Messages, OpenAI Chat Completions, OpenAI Responses, Gemini generateContent."""


@final
@dataclass(frozen=True, slots=True)
class Text:
    """Words that the model says."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning: shown, or with *redacted* only as an opaque block that has to come back."""

    text: str
    redacted: bool = False


@final
@dataclass(frozen=True, slots=True)
class Call:
    """A tool that the model wants run.

    Args:
        name: The tool.
        arguments: What it is given; a string is sent as it is, so that a test can send what is no JSON.
        call_id: Its id; `None` numbers it.
    """

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])
    call_id: str | None = None


@final
@dataclass(frozen=True, slots=True)
class Raw:
    """A block, item or part in the vendor's own words, sent as it is: server tools, types that nobody knows yet."""

    value: Mapping[str, Any]


Part: TypeAlias = Text | Thinking | Call | Raw


@final
@dataclass(frozen=True, slots=True)
class Turn:
    """One reply of the model.

    Args:
        parts: What it holds, in order; empty for an empty turn.
        stop: Why it stops: `end`, `tools`, `length`, `stop_sequence`, `refusal`, `pause`, `window`, `filter`, or a word
            of the vendor's own. `None` follows from *parts* and the request's limits.
        detail: Explanation of a refusal, its category, or the stop sequence, where the vendor gives one.
        delay_s: Seconds before the first byte.
        output_tokens: What is billed for it; `None` counts *parts*.
        faults: What goes wrong with this reply, in addition to what the server was told.
    """

    parts: tuple[Part, ...] = ()
    stop: str | None = None
    detail: str | None = None
    delay_s: float = 0.0
    output_tokens: int | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tools it wants run, in order."""
        return tuple(part for part in self.parts if isinstance(part, Call))


@final
@dataclass(frozen=True, slots=True)
class Failure:
    """An HTTP error in the vendor's shape, instead of a turn.

    Args:
        status: The HTTP status, 400 or more.
        kind: The vendor's type or code, such as `overloaded_error`; `None` is what the vendor has for *status*.
        message: The text; `None` is a plain one.
        retry_after: Value of the header: seconds, a date, or anything else a server might send; `None` leaves it out.
        headers: Further headers, such as `x-should-retry`.
        details: More fields of the error object, as the vendor has them.
    """

    status: int
    kind: str | None = None
    message: str | None = None
    retry_after: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


@final
@dataclass(frozen=True, slots=True)
class Offered:
    """A tool that the model may call; *schema* is JSON Schema."""

    name: str
    description: str
    schema: Mapping[str, Any]


@final
@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back. *name* is that of its call; empty if there is none."""

    call_id: str
    name: str
    text: str
    is_error: bool = False


@final
@dataclass(frozen=True, slots=True)
class Said:
    """One message of the conversation. *role* is `system`, `user` or `assistant`; results are the user's."""

    role: str
    text: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class Ask:
    """What the model is asked, for a brain to decide on.

    Args:
        dialect: The API that it came through.
        model: The model's name.
        said: The conversation, oldest first, with the system's texts at its head.
        tools: What may be called.
        choice: `auto`, `any`, `none`, or the name of the tool that must be called.
        max_tokens: Longest reply; `None` if the request sets no limit.
        number: How many requests for a reply the server took before this one.
        body: The request as it came.
    """

    dialect: Dialect
    model: str
    said: tuple[Said, ...]
    tools: tuple[Offered, ...]
    choice: str
    max_tokens: int | None
    number: int
    body: Mapping[str, Any]

    @property
    def system(self) -> str:
        """The system's texts, joined by blank lines."""
        return "\n\n".join(said.text for said in self.said if said.role == "system")

    @property
    def task(self) -> str:
        """The first text of the user; empty if there is none."""
        return next((said.text for said in self.said if said.role == "user" and said.text), "")

    @property
    def text(self) -> str:
        """The newest text of the user; empty if there is none."""
        return next((said.text for said in reversed(self.said) if said.role == "user" and said.text), "")

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call in the conversation, oldest first."""
        return tuple(call for said in self.said for call in said.calls)

    @property
    def results(self) -> tuple[Result, ...]:
        """The results behind the newest reply of the model: empty unless it waits for nothing else."""
        found: list[Result] = []
        for said in reversed(self.said):
            if said.role == "assistant":
                break
            found[:0] = said.results
        return tuple(found)


Brain: TypeAlias = Callable[[Ask], "Turn | Failure"]
"""Decides what the model says. A function of yours will do: it may look at the whole request."""
