"""What comes back: pieces as they stream, the reply, and what was billed."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers._text import Text
from shoal.providers._values._message import ProviderState, ToolCall

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "refusal", "error"]


@final
class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one exchange in disjoint buckets, each 0 or more.

    Args:
        uncached: Input that was neither read from a cache nor written to one.
        cache_read: Input that was read from a cache.
        cache_write: Input that was written to a cache, with the vendor's shortest lifetime.
        cache_write_long: Input that was written to a cache, with a longer lifetime.
        output: Everything the model wrote, reasoning included.
        reasoning: The part of *output* that was reasoning.
    """

    uncached: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def input(self) -> int:
        """Everything that was sent."""
        return self.uncached + self.cache_read + self.cache_write + self.cache_write_long

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.uncached + other.uncached,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cache_write_long + other.cache_write_long,
            self.output + other.output,
            self.reasoning + other.reasoning,
        )


@final
class Reply(msgspec.Struct, frozen=True, gc=False):
    """What a model answered.

    Args:
        text: What it said; empty where it only called tools.
        calls: The tools it asked for, in its order, with the vendor's ids.
        reasoning: Its visible reasoning; empty where there is none.
        state: What the vendor wants back byte for byte; `None` where there is nothing.
        parts: What it made beside text, such as pictures: the bytes of each, in its order.
    """

    text: Text
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    state: ProviderState | None = None
    parts: tuple[bytes, ...] = ()


@final
class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of text, as it streams: progress, not a result."""

    text: str


@final
class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of visible reasoning, as it streams."""

    text: str


@final
class Completed(msgspec.Struct, frozen=True, gc=False):
    """The end of a stream that arrived whole.

    Args:
        reply: What the model answered.
        usage: What was billed.
        finish: Why it stopped. `tool_calls` wherever *reply* holds calls, whatever the vendor called it.
        model: The model that answered, by the vendor's word.
        request_id: The vendor's id; `None` where it gave none.
        simulated: No language model was used (offline and scripted providers).
        estimated: The vendor counted nothing; *usage* is an estimate of ours.
    """

    reply: Reply
    usage: Usage
    finish: Finish = "stop"
    model: str = ""
    request_id: str | None = None
    simulated: bool = False
    estimated: bool = False


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | Completed
