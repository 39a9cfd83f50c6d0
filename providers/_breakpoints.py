"""Where cache markers stand in a request.

A cache holds exact prefixes, and writes one at each marker. So a marker belongs behind what a later request will still
begin with. What that is nobody knows, but there are odds: how a block says that it moves, how often it did, and whether
it is this run's or this stage's alone. Markers go where the tokens that a later request is expected to read are most.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias, final

import msgspec

from shoal.providers._values import Block, ModelProfile, Purpose

BYTES_PER_TOKEN = 4
SHED_ODDS = 0.03
"""Odds that the next request has lost the head of the conversation."""
NOTICED_ODDS = 0.015
"""Below these, a place in front of a spot is not worth looking at."""

ONCE: frozenset[Purpose] = frozenset({"compaction", "titling"})
"""Purposes of requests of which no later one shows anything."""

Section: TypeAlias = Literal["tools", "system", "messages"]


@final
class Spot(msgspec.Struct, frozen=True, gc=False):
    """A stretch of a request, with the place behind it at which a marker may stand.

    Args:
        section: Where it stands.
        tokens: Estimate of what it costs, 0 or more.
        positions: How many of the vendor's blocks it is, 1 or more.
        odds: How likely a later request that agrees up to here has something else in its place, 0 to 1.
        steady: It is declared to be written once.
        cacheable: False ends the prefix that a cache may hold.
        markable: The vendor takes a marker here.
    """

    section: Section
    tokens: int
    positions: int = 1
    odds: float = 0.0
    steady: bool = False
    cacheable: bool = True
    markable: bool = True


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
        long_stable: What is stable is written with the longer lifetime.
        own_reach: Without a marker it writes at the end by itself, and looks for entries at the ends of this many
            latest messages; `None` where it does neither.
    """

    most: int = 4
    look_back: int | None = 20
    margin: int = 2
    long_stable: bool = False
    own_reach: int | None = None


ANTHROPIC = MarkerRules()
OPENAI = MarkerRules(look_back=None, own_reach=80)


@final
class Place(msgspec.Struct, frozen=True, gc=False):
    """Somewhere a marker may stand: behind spot *index*, *tokens* into the request, which *odds* says will stay."""

    index: int
    tokens: int
    odds: float


@final
class Front(msgspec.Struct, frozen=True, gc=False):
    """What stands in front of the conversation, with the places in it that are worth a marker.

    Args:
        spots: Tools and system blocks, in order.
        places: Where the odds fall, first to last.
        tokens: What a cache may hold of it.
        odds: The odds that all of it stays.
        open: A cache may hold what stands behind it, too.
        steady: How many of the spots are declared to be written once, from the front.
        chain: 16 bytes for each spot that stand for everything up to its end.
        known: Spots behind which the run has marked just this before.
        blocks: The system blocks that are its last spots.
        moved: The run's request before this cannot be found at its end: nothing was written there, or it had another
            front, or its conversation began in another way.
        made: What was encoded of it, for whoever encodes the same again.
        planned: What was found of its places, for whoever looks for the same again.
    """

    spots: tuple[Spot, ...] = ()
    places: tuple[Place, ...] = ()
    tokens: int = 0
    odds: float = 1.0
    open: bool = True
    steady: int = 0
    chain: tuple[bytes, ...] = ()
    known: frozenset[int] = frozenset()
    blocks: tuple[Block, ...] = ()
    moved: bool = False
    made: dict[Hashable, Any] = {}
    planned: dict[Hashable, Any] = {}

    def on_blocks(self, ahead: Iterable[Marker]) -> dict[int, Marker]:
        """Return the markers *ahead* by the number of the block that each stands on; -1 for the tools."""
        first = len(self.spots) - len(self.blocks)
        return {marker.index - first: marker for marker in ahead}


NO_FRONT = Front()


def front_of(spots: Sequence[Spot], chain: Sequence[bytes] = (), *, grows: float = 0.0) -> Front:
    """Return *spots*, which stand in front of a conversation, as a front.

    Args:
        spots: Tools and system blocks, in order.
        chain: 16 bytes for each of them.
        grows: Odds that another block will stand behind the last.
    """
    held = next((index for index, spot in enumerate(spots) if not spot.cacheable), len(spots))
    tokens = [*accumulate([spot.tokens for spot in spots[:held]])]
    places: dict[int, Place] = {}
    stays = 1.0
    for index, spot in enumerate(spots[:held]):
        falls = index + 1 == held or spots[index + 1].odds >= NOTICED_ODDS
        stays *= 1.0 - spot.odds
        at = _snapped(spots, index) if falls else -1
        if at >= 0:
            places.setdefault(at, Place(at, tokens[at], stays))
    return Front(
        tuple(spots),
        tuple(places.values()),
        tokens[-1] if tokens else 0,
        stays * (1.0 - grows),
        held == len(spots),
        next((index for index, spot in enumerate(spots) if not spot.steady), len(spots)),
        tuple(chain),
    )


@final
class Markers(msgspec.Struct, frozen=True, gc=False):
    """Where the markers of a request stand.

    Args:
        ahead: Those in front of the conversation, first to last.
        behind: Spots of the conversation behind which the others stand, first to last; none of them lasts longer.
        explicit: The vendor must not mark the end by itself.
    """

    ahead: tuple[Marker, ...] = ()
    behind: tuple[int, ...] = ()
    explicit: bool = False


NO_MARKERS = Markers()


def plan_breakpoints(
    front: Front,
    said: Sequence[Spot],
    profile: ModelProfile,
    rules: MarkerRules = ANTHROPIC,
    *,
    once: bool = False,
    ended: int = -1,
    far: int = 0,
) -> Markers:
    """Return where markers go.

    One stands at the end. One stands where the run's request before this one ended, where the vendor would not find
    that from the end. The others stand in the front, where they are expected to be read most. Each steps back to the
    nearest place that takes a marker, and none stands where the prefix is under the model's minimum.

    Args:
        front: What stands in front of the conversation.
        said: The conversation in order.
        profile: The model's; without `markers` in it there are none.
        rules: The vendor's.
        once: No later request begins like this one.
        ended: Where in *said* the run's request before this one ended; -1 where that is unknown.
        far: So many of *said*, from the first on, a cache may hold: nobody looks at each.
    """
    if profile.cache != "markers":
        return NO_MARKERS
    least = profile.min_cacheable_tokens
    held = 0
    if front.open:
        held = far
        while held < len(said) and said[held].cacheable:
            held += 1
    kept = said if held == len(said) else said[:held]
    if rules.own_reach is not None:
        return _beside_its_own(front, said, kept, least, rules, rules.own_reach, ended, once=once)
    return NO_MARKERS if once else _marked(front, kept, least, rules, ended)[0]


def _beside_its_own(
    front: Front,
    said: Sequence[Spot],
    kept: Sequence[Spot],
    least: int,
    rules: MarkerRules,
    reach: int,
    ended: int,
    *,
    once: bool,
) -> Markers:
    """Return where markers go for a vendor that marks the end, and finds ends of *reach* messages, by itself."""
    writes = front.tokens >= least or _up_to(front, said, len(said) - 1) >= least
    if once:
        return Markers(explicit=writes)
    stays = front.odds * (1.0 - SHED_ODDS)
    own, own_worth = _in_front(front, rules.most - 1, stays, least, rules)
    whole = front.open and len(kept) == len(said)
    if not writes or (whole and not front.moved and said and said[-1].markable):
        # The vendor's own marker at the end takes the place of ours, so that no plan with ours is worth more.
        return Markers(own)
    marked, worth = _marked(front, kept, least, rules, ended)
    if marked.behind:
        worth += _up_to(front, said, marked.behind[-1]) * stays
    # A marker counts as one of the latest ends, and a long conversation leaves no room for it. Where nothing moved,
    # that is no loss: the request before is found at its end, and once something moves the end can go unmarked.
    if front.moved and sum([spot.positions for spot in said]) + len(front.spots) > reach:
        own_worth = 0.0
    if whole and own_worth + _up_to(front, said, len(said) - 1) * stays >= worth:
        return Markers(own)
    return Markers(_also_known(marked, front, rules), marked.behind, explicit=True)


def _up_to(front: Front, said: Sequence[Spot], end: int) -> int:
    """Return how many tokens there are up to the spot *end* of *said*; -1 is the end of *front*."""
    return front.tokens + sum([spot.tokens for spot in said[: end + 1]])


def _markers(front: Front, marked: Iterable[int], rules: MarkerRules) -> tuple[Marker, ...]:
    """Return markers behind the spots *marked* of *front*."""
    steady = front.steady if rules.long_stable else 0
    return tuple([Marker(index, index < steady) for index in sorted(marked)])


def _marked(front: Front, said: Sequence[Spot], least: int, rules: MarkerRules, ended: int) -> tuple[Markers, float]:
    """Return where markers stand, and how many tokens a later request is expected to read at those in front.

    Args:
        front: See `plan_breakpoints`.
        said: What a cache may hold of the conversation.
        least: The shortest prefix that is worth a marker.
        rules: See `plan_breakpoints`.
        ended: See `plan_breakpoints`.
    """
    end = _snapped(said, len(said) - 1)
    enough = front.tokens >= least  # then nobody has to add up what is said
    if end < 0 or not (enough or _up_to(front, said, end) >= least):
        ahead, worth = _in_front(front, rules.most, 0.0, least, rules)
        return Markers(ahead), worth
    behind: tuple[int, ...] = (end,)
    if 0 <= ended < end:
        before = _unseen(said, end, rules, ended)
        if before >= 0 and (enough or _up_to(front, said, before) >= least):
            behind = (before, end)
    ahead, worth = _in_front(front, rules.most - len(behind), front.odds * (1.0 - SHED_ODDS), least, rules)
    return Markers(ahead, behind), worth


def _also_known(markers: Markers, front: Front, rules: MarkerRules) -> tuple[Marker, ...]:
    """Return those of *markers* in front with those of before, which are read while the new ones are written.

    The vendor writes at its latest markers alone, and looks for entries at all of them.
    """
    marked = {marker.index for marker in markers.ahead}
    if front.known <= marked:
        return markers.ahead
    # Where nothing in front is new, what is written first is said behind it.
    first = min(marked - front.known, default=len(front.spots))
    room = rules.most - len(markers.behind) - sum([index >= first for index in marked])
    between = sorted([index for index in front.known - marked if index > first], reverse=True)
    before = [index for index in front.known if index < first]
    return _markers(front, marked | {*before} | {*between[: max(0, room)]}, rules)


def _unseen(said: Sequence[Spot], end: int, rules: MarkerRules, ended: int) -> int:
    """Return where to mark that the request before *ended*, if the vendor would not look there from *end*; else -1."""
    if rules.look_back is not None:
        distance = sum([spot.positions for spot in said[ended + 1 : end + 1]])
        if distance < rules.look_back - rules.margin:
            return -1
    return _snapped(said, ended)


def _in_front(
    front: Front, most: int, stays: float, least: int, rules: MarkerRules
) -> tuple[tuple[Marker, ...], float]:
    """Return markers at the at most *most* places in front that are expected to be read most, and how many tokens.

    A later request reads at the last marker up to which it is the same. So a marker is worth its tokens times the odds
    that the prefix ends between it and the next one; what stands behind the last of them stays with odds *stays*.
    """
    asked = (most, stays, least, rules.long_stable)
    made: tuple[tuple[Marker, ...], float] | None = front.planned.get(asked)
    if made is None:
        chosen, worth = _chosen([p for p in front.places if p.tokens >= least], most, stays)
        made = front.planned[asked] = (_markers(front, chosen, rules), worth)
    return made


def _chosen(places: Sequence[Place], most: int, stays: float) -> tuple[tuple[int, ...], float]:
    if not places or most < 1:
        return (), 0.0
    alone = [(place.tokens * (place.odds - stays), (place.index,)) for place in places]
    chains: list[tuple[float, tuple[int, ...]]] = [*alone]
    for _ in range(most - 1):
        longer: list[tuple[float, tuple[int, ...]]] = [*alone]
        for at, place in enumerate(places):
            for later in range(at + 1, len(places)):
                worth = place.tokens * (place.odds - places[later].odds) + chains[later][0]
                if worth > longer[at][0]:
                    longer[at] = (worth, (place.index, *chains[later][1]))
        chains = longer
    worth, chosen = max(chains)
    return chosen, worth


def _snapped(spots: Sequence[Spot], index: int) -> int:
    while index >= 0 and not spots[index].markable:
        index -= 1
    return index
