"""A request as the planner of cache markers sees it: spots in front, and spots of what is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, final

import msgspec

from shoal.providers._breakpoints import BYTES_PER_TOKEN, NO_FRONT, Front, Marker, Spot
from shoal.providers._elements import Placed, Spoken
from shoal.providers._text import Text
from shoal.providers._values import Purpose, digest
from shoal.providers._wire import Wire

T = TypeVar("T")

_NEAR = 2  # parts at the end of a conversation that are looked into element by element


@final
class Outline(msgspec.Struct, frozen=True, gc=False):
    """A request as spots, with what each of them is.

    Args:
        front: What stands in front of the conversation.
        said: The conversation, and what stands behind it, as n spots.
        parts: The conversation as it was encoded, to which the spots of *said* belong.
        far: How many spots, from the first on, are stretches of it; behind them each is an element.
        ended: The spot of *said* at which the run's request before this one ended; -1 where that is unknown.
    """

    front: Front = NO_FRONT
    said: Sequence[Spot] = ()
    parts: Sequence[Spoken] = ()
    far: int = 0
    ended: int = -1

    def placed(self, behind: Sequence[int], marker: bytes) -> list[Placed]:
        """Return where in the conversation the markers *behind* spots of it stand; *marker* is the bytes of each."""
        parts, first = self.parts, max(0, len(self.parts) - _NEAR)
        places: list[Placed] = []
        for spot in behind:
            at, element = first, spot - self.far
            if element < 0:
                at, element = self._far_off(spot)
            while element >= len(parts[at].cuts):
                element -= len(parts[at].cuts)
                at += 1
            places.append((at, element, marker))
        return places

    def _far_off(self, spot: int) -> tuple[int, int]:
        """Return the part and the element in it with which the stretch *spot* ends."""
        at = 0
        while spot >= len(self.parts[at].stretches()):
            spot -= len(self.parts[at].stretches())
            at += 1
        return at, self.parts[at].last_of(spot)

    def encoded(
        self,
        ahead: tuple[Marker, ...],
        tools: T,
        make: Callable[[T, Front, tuple[Marker, ...]], Wire],
        *,
        key: str | None = None,
        least_tokens: int | None = None,
    ) -> tuple[Wire, tuple[bytes, ...]]:
        """Return what stands in front of the conversation, encoded once for the same markers, and what it shares.

        Args:
            ahead: The markers in it.
            tools: The encoded tools.
            make: Encodes it.
            key: See `under`.
            least_tokens: The shortest prefix that a cache without markers shares; `None` where only markers share one.

        Returns:
            Its bytes; 16 bytes for each prefix of it that another request may share, shortest first.
        """
        front, asked = self.front, (ahead, key)
        made: tuple[Wire, tuple[bytes, ...]] | None = front.planned.get(asked)
        if made is None:
            wire: Wire | None = front.made.get(ahead)
            if wire is None:
                wire = front.made[ahead] = make(tools, front, ahead)
            shared = self.prefixes(ahead) if least_tokens is None else self.leading(least_tokens)
            made = front.planned[asked] = wire, under(key, shared)
        return made

    def prefixes(self, ahead: Sequence[Marker]) -> tuple[bytes, ...]:
        """Return what stands for each prefix that *ahead*, markers in front of the conversation, mark."""
        chain = self.front.chain
        return tuple([chain[marker.index] for marker in ahead])

    def leading(self, least_tokens: int) -> tuple[bytes, ...]:
        """Return the same for each prefix that a cache without markers may share; *least_tokens* is its shortest."""
        return tuple([self.front.chain[place.index] for place in self.front.places if place.tokens >= least_tokens])


def under(key: str | None, prefixes: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return *prefixes* as those of the one machine to which requests with the cache *key* go."""
    return prefixes if key is None else tuple([digest(key.encode(), prefix) for prefix in prefixes])


NO_OUTLINE = Outline()


def outline(front: Front, spoken: Sequence[Spoken], purpose: Purpose, tail: Text | None = None) -> Outline:
    """Return a request as spots.

    Args:
        front: What stands in front of the conversation.
        spoken: The conversation, without the tail; assistants speak in the run `assistant`.
        purpose: What the request is for. One that routes ends in a question that no later request shows.
        tail: The tail, which no marker covers; `None` for nothing.
    """
    near = spoken[-_NEAR:]
    spots: list[Spot] = []
    for part in spoken[:-_NEAR]:
        spots += part.stretched or part.stretches()
    far = len(spots)
    speaks = False
    for part in near:
        spots += part.spots or part.as_spots()
        speaks = speaks or "assistant" in part.runs
    ended = _before_answer([cut.run for part in near for cut in part.cuts]) if speaks else -1
    if purpose == "routing" and spots:
        spots[-1] = msgspec.structs.replace(spots[-1], cacheable=False)
    if tail is not None:
        spots.append(Spot("messages", len(tail) // BYTES_PER_TOKEN, cacheable=False))
    return Outline(front, spots, spoken, far, ended if ended < 0 else far + ended)


def _before_answer(runs: Sequence[str]) -> int:
    """Return which of *runs* stands in front of the last assistant turn, where the request for that ended; or -1."""
    at = len(runs) - 1
    while at >= 0 and runs[at] != "assistant":
        at -= 1
    while at >= 0 and runs[at] == "assistant":
        at -= 1
    return at
