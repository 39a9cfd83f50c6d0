"""One request, and where in its blueprint it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, TypeAlias, final

import msgspec

from shoal.providers._text import Text
from shoal.providers._values._digest import digest, to_bytes
from shoal.providers._values._parts import Block, Segment
from shoal.providers._values._tools import NO_TOOLS, OutputFormat, ToolSet

Purpose: TypeAlias = Literal["stage", "routing", "compaction", "titling"]


@final
class PolicyStep(msgspec.Struct, frozen=True):
    """One step of what the offline provider does in a stage; exactly one of *call*, *extract*, *say*, *route* is set.

    Args:
        call: A tool to call.
        args: Its arguments; strings in it are templates.
        for_each: Where the items of repeated calls come from: `result(STEP)` or `region(NAME)`.
        extract: A region to take sentences from.
        sentences: How many sentences, 1 or more.
        into: The tool whose one text argument takes them; `None` says them.
        say: A template to answer with.
        route: `overlap`, or the stage to choose where the model is asked for one.
        pages: How often *call* is made at most: a result that ends in a line `[continue with NAME=VALUE]` has the
            step repeated with that argument. 1 or more.
    """

    call: str | None = None
    args: Mapping[str, Any] = {}
    for_each: str | None = None
    extract: str | None = None
    sentences: int = 3
    into: str | None = None
    say: str | None = None
    route: str | None = None
    pages: int = 1


OWN_WORD = "[System] "
"""How a message begins that nobody but the runtime says, such as a nudge."""


@final
class Situation(msgspec.Struct, frozen=True):
    """Where in its blueprint a request stands; for providers that follow a policy instead of a model.

    Args:
        blueprint: Name of the blueprint.
        stage: Name of the stage.
        iteration: How many requests of this visit of the stage were answered before this one.
        policy: The stage's steps; `None` where the blueprint gives none.
        regions: What stands in each region that the stage sees, by name, without what the runtime says of its own.
        task: The run's task; empty where it has none.
        output_tool: The tool that takes the output which the stage owes; `None` where it owes none.
        choices: Of a routing question: the stages that may be named, with their hints.
        material: Of a summary: what is to be summarised, without what the runtime says of its own; `None` for what the
            messages say.
    """

    blueprint: str
    stage: str
    iteration: int
    policy: tuple[PolicyStep, ...] | None
    regions: Mapping[str, str]
    task: str = ""
    output_tool: str | None = None
    choices: Mapping[str, str] = {}
    material: str | None = None


@final
class Trace(msgspec.Struct, frozen=True):
    """Which span a request belongs to, for servers that may know.

    Args:
        traceparent: The header. Source: W3C Trace Context, level 2, section 3.2.
        hosts: Hosts that get it, lower case and without ports; all others learn nothing.
    """

    traceparent: str
    hosts: frozenset[str]


@final
class Request(msgspec.Struct, frozen=True):
    """One request, in no vendor's words.

    Args:
        model: The model.
        system: Blocks of the system section, in the order in which they are sent.
        messages: Segments of messages, in the order in which they are sent.
        tail: Text that stands behind the conversation in this request only; `None` for nothing.
        tools: The tools on offer.
        max_tokens: Reply budget in tokens, 1 or more.
        temperature: `None` leaves it to the model.
        purpose: What the reply is for.
        run_id: The run that asks; reaches no vendor.
        situation: Where in its blueprint the request stands; called by policy-driven providers only.
        options: Further fields of the vendor's request body, by name.
        timeout_s: Total seconds for one attempt.
        output: The form of the reply; `None` leaves it free. Left out where the profile says that the model takes none.
        stages_ahead: A later stage of the run may send the same tools to the same model.
        allowed_tools: Of *tools*, the ones that may be called, by name; `None` for all. A vendor that cannot be told
            offers all of them, and whoever asked has to refuse the others.
        trace: The span that it belongs to; `None` says nothing to anybody.
    """

    model: str
    system: tuple[Block, ...] = ()
    messages: tuple[Segment, ...] = ()
    tail: Text | None = None
    tools: ToolSet = NO_TOOLS
    max_tokens: int = 4096
    temperature: float | None = None
    purpose: Purpose = "stage"
    run_id: str = ""
    situation: SituationSource | None = None
    options: Mapping[str, Any] = {}
    timeout_s: float = 900.0
    output: OutputFormat | None = None
    stages_ahead: bool = False
    allowed_tools: tuple[str, ...] | None = None
    trace: Trace | None = None

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for tools, system section, messages and tail: a chain over their digests."""
        return digest(
            to_bytes(self.model),
            self.tools.digest,
            *[block.digest for block in self.system],
            b"|",
            *[segment.digest for segment in self.messages],
            b"" if self.tail is None else self.tail.digest,
        )


class SituationSource(Protocol):
    """Makes the `Situation` of a request when somebody asks; a request to a vendor never does."""

    def __call__(self) -> Situation: ...
