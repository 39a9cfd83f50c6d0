"""Where cache markers stand in a request.

A cache holds exact prefixes, and writes one at each marker. So a marker belongs behind what a later request will still
begin with: what is stable, what is frozen, what has not moved so far, and the end. A marker behind bytes that change
is paid for and never read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers._conversation import Spoken
from shoal.providers._values import Block, ModelProfile, Request, Volatility

BYTES_PER_TOKEN = 4
MAX_RUNS = 1024

Section: TypeAlias = Literal["tools", "system", "messages"]
_STILL: frozenset[Volatility] = frozenset({"stable", "grows"})


@final
class Spot(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a request, with the place behind it at which a marker may stand.

    Args:
        section: Where it stands.
        tokens: Estimate of what it costs, 0 or more.
        positions: How many of the vendor's blocks it is, 1 or more.
        volatility: How its content moves.
        frozen: Its bytes will not change while it is in the window.
        cacheable: False ends the prefix that a cache may hold.
        markable: The vendor takes a marker here.
        moved: Its bytes changed since this run's last request, or in an earlier one.
        ended: The run's request before this one ended here.
    """

    section: Section
    tokens: int
    positions: int = 1
    volatility: Volatility = "rewritten"
    frozen: bool = False
    cacheable: bool = True
    markable: bool = True
    moved: bool = False
    ended: bool = False


@final
class Marker(msgspec.Struct, frozen=True, gc=False):
    """A marker behind the spot *index*; *long* asks for the vendor's longer lifetime."""

    index: int
    long: bool = False


@final
class MarkerRules(msgspec.Struct, frozen=True, gc=False):
    """What a vendor's cache makes of markers.

    Args:
        most: The most markers that it writes at.
        look_back: How many positions in front of a marker it looks for an entry, the marker's own included; `None`
            where an entry is found at a marker only.
        margin: How many of those are left as they are, since a vendor may count what we do not.
        long_stable: The end of what is stable is written with the longer lifetime.
    """

    most: int = 4
    look_back: int | None = 20
    margin: int = 2
    long_stable: bool = False


ANTHROPIC = MarkerRules()
OPENAI = MarkerRules(look_back=None)


def plan_breakpoints(
    spots: Sequence[Spot], profile: ModelProfile, rules: MarkerRules = ANTHROPIC
) -> tuple[Marker, ...]:
    """Return where markers go, first to last.

    Wanted, in this order while markers are left: the end of the prefix; the end of the request before, where the
    vendor would not find it from there; what stands in front of the first system block that has moved; the end of the
    frozen chunks; the end of the system section; the end of what is stable. Each steps back to the nearest place
    that takes a marker. None stands where the prefix is under the model's minimum.

    Args:
        spots: The request in order, tools first.
        profile: The model's; without `markers` in it there are none.
        rules: The vendor's.
    """
    if profile.cache != "markers":
        return ()
    held = next((index for index, spot in enumerate(spots) if not spot.cacheable), len(spots))
    places = [_snapped(spots, place) for place in _wanted(spots[:held], rules)]
    least = _first_above(spots, profile.min_cacheable_tokens)
    chosen = list(dict.fromkeys([place for place in places if place >= least]))[: rules.most]
    stable = _snapped(spots, _reach(spots, frozen=False))
    return tuple([Marker(place, rules.long_stable and place == stable) for place in sorted(chosen)])


def _wanted(spots: Sequence[Spot], rules: MarkerRules) -> list[int]:
    tip = len(spots) - 1
    wanted = [tip]
    before = max([index for index, spot in enumerate(spots) if spot.ended], default=-1)
    distance = sum([spot.positions for spot in spots[before + 1 :]])
    if before >= 0 and (rules.look_back is None or distance >= rules.look_back - rules.margin):
        wanted.append(before)
    system = sum([spot.section != "messages" for spot in spots])
    frozen = _reach(spots, frozen=True)
    moved = next((index for index in range(frozen + 1, system) if spots[index].moved), None)
    if moved is not None:
        wanted.append(moved - 1)
    return [*wanted, frozen, system - 1, _reach(spots, frozen=False)]


def _reach(spots: Sequence[Spot], *, frozen: bool) -> int:
    """Return the last spot up to which all are stable, or frozen where *frozen* says that this is enough; or -1."""
    for index, spot in enumerate(spots):
        still = spot.section != "messages" and (
            spot.volatility == "stable" or (frozen and spot.volatility == "grows" and spot.frozen)
        )
        if not still:
            return index - 1
    return len(spots) - 1


def _snapped(spots: Sequence[Spot], place: int) -> int:
    while place >= 0 and not spots[place].markable:
        place -= 1
    return place


def _first_above(spots: Sequence[Spot], least_tokens: int) -> int:
    """Return the first spot up to whose end a prefix has *least_tokens*; past the end where none has."""
    tokens = 0
    for index, spot in enumerate(spots):
        tokens += spot.tokens
        if tokens >= least_tokens:
            return index
    return len(spots)


# --- a request as spots


@final
class Outline(msgspec.Struct, frozen=True):
    """A request as spots, with what each of them is.

    Args:
        spots: The request in order.
        blocks: How many spots stand in front of the messages, tools included.
        elements: Of each spot behind those: index of its part and of its element in that.
    """

    spots: tuple[Spot, ...]
    blocks: int
    elements: tuple[tuple[int, int], ...]


_NEAR = 2  # parts at the end of a conversation that are looked into element by element


def outline(
    tools: Spot | None, system: Sequence[Spot], spoken: Sequence[Spoken], *, assistant: str, tail_bytes: int = 0
) -> Outline:
    """Return a request as spots.

    Args:
        tools: The tools; `None` where there are none.
        system: One spot a block that is sent.
        spoken: The conversation, without the tail.
        assistant: The run in which assistants speak.
        tail_bytes: Bytes of the tail, which no marker covers.
    """
    front = ([] if tools is None else [tools]) + list(system)
    far = max(0, len(spoken) - _NEAR)
    spots = [_whole(part) for part in spoken[:far]]
    elements = [(index, len(part.cuts) - 1) for index, part in enumerate(spoken[:far])]
    for index in range(far, len(spoken)):
        size = 0
        for at, cut in enumerate(spoken[index].cuts):
            spots.append(Spot("messages", (cut.size - size) // BYTES_PER_TOKEN, markable=cut.markable))
            elements.append((index, at))
            size = cut.size
    before = _before_last_turn(spoken[far:], assistant)
    if before is not None:
        at = elements.index((far + before[0], before[1]))
        spots[at] = msgspec.structs.replace(spots[at], ended=True)
    if tail_bytes:
        spots.append(Spot("messages", tail_bytes // BYTES_PER_TOKEN, cacheable=False))
    return Outline((*front, *spots), len(front), tuple(elements))


def system_spots(blocks: Sequence[Block], sizes: Sequence[int], moved: Sequence[bool]) -> list[Spot]:
    """Return one spot for each of *blocks*, which are *sizes* bytes long and have moved so far or not."""
    return [
        Spot(
            "system",
            size // BYTES_PER_TOKEN,
            volatility=block.volatility,
            frozen=block.frozen,
            cacheable=block.cacheable,
            moved=has_moved,
        )
        for block, size, has_moved in zip(blocks, sizes, moved, strict=True)
    ]


def _whole(part: Spoken) -> Spot:
    return Spot("messages", part.wire.size // BYTES_PER_TOKEN, len(part.cuts), markable=part.cuts[-1].markable)


def _before_last_turn(spoken: Sequence[Spoken], assistant: str) -> tuple[int, int] | None:
    """Return the element in front of the last assistant turn, at which the request that it answered ended."""
    spoke = False
    for index in range(len(spoken) - 1, -1, -1):
        cuts = spoken[index].cuts
        for at in range(len(cuts) - 1, -1, -1):
            if cuts[at].run == assistant:
                spoke = True
            elif spoke:
                return index, at
    return None


@final
class Moves:
    """Remembers which system blocks of a run have changed, so that a marker can stand in front of them.

    Args:
        max_runs: How many runs it remembers; the least recently seen go.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS) -> None:
        self._max_runs = max_runs
        self._runs: OrderedDict[str, dict[tuple[str, int], tuple[bytes, bool]]] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Moves of {len(self._runs)} runs>"

    def see(self, request: Request, blocks: Sequence[Block]) -> tuple[bool, ...]:
        """Take the system *blocks* (n, in order) of a run's request and say of each whether it has moved so far."""
        before = self._runs.get(request.run_id, {})
        seen: dict[tuple[str, int], tuple[bytes, bool]] = {}
        moved: list[bool] = []
        count: dict[str, int] = {}
        for block in blocks:
            key = (block.owner, count.setdefault(block.owner, 0))
            count[block.owner] += 1
            digest, has_moved = before.get(key, (block.digest, False))
            has_moved = block.volatility not in _STILL and (has_moved or digest != block.digest)
            seen[key] = (block.digest, has_moved)
            moved.append(has_moved)
        if request.run_id and request.purpose == "stage":
            self._runs[request.run_id] = {**before, **seen}
            self._runs.move_to_end(request.run_id)
            if len(self._runs) > self._max_runs:
                self._runs.popitem(last=False)
        return tuple(moved)
