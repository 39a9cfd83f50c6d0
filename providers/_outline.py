"""A request as the planner of cache markers sees it: spots in front, and spots of what is said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from shoal.providers._breakpoints import BYTES_PER_TOKEN, NO_FRONT, Front, Marker, Spot
from shoal.providers._conversation import Spoken
from shoal.providers._values import digest

_NEAR = 2  # parts at the end of a conversation that are looked into element by element


@final
class Outline(msgspec.Struct, frozen=True):
    """A request as spots, with what each of them is.

    Args:
        front: What stands in front of the conversation.
        said: The conversation, and what stands behind it.
        elements: Of each spot of *said* that is in the conversation: index of its part and of its element in that.
    """

    front: Front = NO_FRONT
    said: tuple[Spot, ...] = ()
    elements: tuple[tuple[int, int], ...] = ()

    def in_front(self, markers: Sequence[Marker]) -> dict[int, Marker]:
        """Return those of *markers* that stand in front of the conversation, by their spot."""
        return {marker.index: marker for marker in markers if marker.index < len(self.front.spots)}

    def behind(self, markers: Sequence[Marker]) -> dict[tuple[int, int], Marker]:
        """Return those of *markers* that stand in the conversation, by part and element."""
        front = len(self.front.spots)
        return {self.elements[marker.index - front]: marker for marker in markers if marker.index >= front}

    def prefixes(self, markers: Sequence[Marker]) -> tuple[bytes, ...]:
        """Return what stands for each marked prefix in front of the conversation, shortest first."""
        return tuple([self.front.chain[index] for index in self.in_front(markers)])

    def leading(self, least_tokens: int) -> tuple[bytes, ...]:
        """Return the same for each prefix that a cache without markers may share; *least_tokens* is its shortest."""
        return tuple([self.front.chain[place.index] for place in self.front.places if place.tokens >= least_tokens])


def under(key: str | None, prefixes: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return *prefixes* as those of the one machine to which requests with the cache *key* go."""
    return prefixes if key is None else tuple([digest(key.encode(), prefix) for prefix in prefixes])


NO_OUTLINE = Outline()


def outline(
    front: Front, spoken: Sequence[Spoken], *, assistant: str, asks: bool = False, tail_bytes: int = 0
) -> Outline:
    """Return a request as spots.

    Args:
        front: What stands in front of the conversation.
        spoken: The conversation, without the tail.
        assistant: The run in which assistants speak.
        asks: Its last element is a question that no later request shows.
        tail_bytes: Bytes of the tail, which no marker covers.
    """
    far = max(0, len(spoken) - _NEAR)
    spots = [part.spot for part in spoken[:far]]
    elements = [(index, len(part.cuts) - 1) for index, part in enumerate(spoken[:far])]
    before = _before_last_turn(spoken, far, assistant)
    for index in range(far, len(spoken)):
        size = 0
        for at, cut in enumerate(spoken[index].cuts):
            tokens = (cut.size - size) // BYTES_PER_TOKEN
            spots.append(Spot("messages", tokens, markable=cut.markable, ended=before == (index, at)))
            elements.append((index, at))
            size = cut.size
    if asks and spots:
        spots[-1] = msgspec.structs.replace(spots[-1], cacheable=False)
    if tail_bytes:
        spots.append(Spot("messages", tail_bytes // BYTES_PER_TOKEN, cacheable=False))
    return Outline(front, tuple(spots), tuple(elements))


def _before_last_turn(spoken: Sequence[Spoken], far: int, assistant: str) -> tuple[int, int] | None:
    """Return the element in front of the last assistant turn, at which the request that it answered ended."""
    spoke = False
    for index in range(len(spoken) - 1, far - 1, -1):
        cuts = spoken[index].cuts
        for at in range(len(cuts) - 1, -1, -1):
            if cuts[at].run == assistant:
                spoke = True
            elif spoke:
                return index, at
    return None
