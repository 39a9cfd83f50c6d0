"""What a request is built from: segments of messages, and blocks of the system section."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, final

from shoal.providers._text import Text, join
from shoal.providers._values._digest import Remembering
from shoal.providers._values._message import Message

Volatility: TypeAlias = Literal["stable", "grows", "rewritten"]
Reach: TypeAlias = Literal["any", "run", "stage"]


@final
class Segment(Remembering, frozen=True, gc=False, eq=False):
    """A run of messages that stays together: whole turn groups, oldest first.

    Args:
        owner: The region (or component) that the messages belong to.
        messages: The messages, 1 or more.
        tokens: Estimate of what they cost, 0 or more.
        closed: No message will be added; only the last segment of a conversation is open.
    """

    owner: str
    messages: tuple[Message, ...]
    tokens: int
    closed: bool = False

    def _pieces(self) -> Iterable[bytes]:
        return [message.digest for message in self.messages]


@final
class Block(Remembering, frozen=True, gc=False, eq=False):
    """One block of the system section.

    Args:
        owner: The region or component that it belongs to.
        texts: What it says, n pieces in order; joined they are the text.
        tokens: Estimate of what it costs, 0 or more.
        volatility: How its content moves; decides its place and where cache markers go.
        cacheable: False ends the prefix that a cache may hold.
        frozen: Its bytes will not change while it is in the window.
        reach: Where the same text may stand: in any run, in this run only, or in this stage only.
    """

    owner: str
    texts: tuple[Text, ...]
    tokens: int
    volatility: Volatility = "rewritten"
    cacheable: bool = True
    frozen: bool = False
    reach: Reach = "any"

    @property
    def text(self) -> str:
        """What it says, as one string."""
        return join(self.texts)

    def _pieces(self) -> Iterable[bytes]:
        return [text.digest for text in self.texts]
