"""What is to be expected of the blocks in front of a conversation: what they say of themselves, and what they did."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import final

import msgspec

from shoal.providers._breakpoints import BYTES_PER_TOKEN, NOTICED_ODDS, Front, Marker, Markers, Spot, front_of
from shoal.providers._legality import blank
from shoal.providers._values import Block, Request, ToolSet, Volatility, digest
from shoal.providers._wire import Wire

MAX_RUNS = 1024
MAX_MARKED = 64
TAIL = -1
"""Number of the place at which a growing region grows, whichever of its blocks that is."""

TOOLS_ODDS = 0.02
FROZEN_ODDS = 0.02
RUN_ODDS = 0.2
"""Odds that the next request which shares the prefix is another run's."""
STAGE_ODDS = 0.15
"""Odds that it is another stage's, where stages share prefixes."""
LAST_STAGE_ODDS = 0.01
_SAYS: Mapping[Volatility, float] = {"stable": 0.01, "grows": 0.3, "rewritten": 0.05}
_PRIOR = 4
"""How many requests what a block says of itself counts for, against what it did."""


@final
class _Seen(msgspec.Struct, gc=False):
    """What a block did so far: its digest, and how often that changed."""

    digest: bytes
    changes: int = 0


@final
class _Habits(msgspec.Struct, gc=False):
    """What a run sent so far.

    Args:
        system: The system section of its last request.
        tools: The tools of that.
        ahead: Whether stages were then to come that share the prefix.
        head: Stands for the message with which its conversation began; empty where it had none.
        unended: Its stage's last request was not written at its end.
        count: How many requests it sent.
        again_at: The number of requests at which the odds of what has not changed are looked at again.
        seen: What each block did, by owner and number of the owner's block.
        marked: What stands for each prefix behind which a marker stood, the latest last.
        ahead_marked: The markers in front of the conversation in its last request that had any.
        front: What was made of them; `None` at first.
    """

    system: tuple[Block, ...] = ()
    tools: ToolSet | None = None
    ahead: bool = False
    head: bytes = b""
    unended: bool = False
    count: int = 0
    again_at: int = 0
    seen: dict[tuple[str, int], _Seen] = {}
    marked: dict[bytes, None] = {}
    ahead_marked: tuple[Marker, ...] = ()
    front: Front | None = None


@final
class Fronts:
    """Makes the front of each request, and remembers for each run which of its blocks change.

    Args:
        tools_markable: The vendor takes a marker behind the tools.
        max_runs: How many runs it remembers; the least recently seen go.
    """

    def __init__(self, *, tools_markable: bool = False, max_runs: int = MAX_RUNS) -> None:
        self._tools_markable = tools_markable
        self._max_runs = max_runs
        self._runs: OrderedDict[str, _Habits] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Fronts of {len(self._runs)} runs>"

    def of(self, request: Request, tools_bytes: int, encode: Callable[[Block], Wire]) -> Front:
        """Return the front of *request*.

        Args:
            request: The request; those of a run's stages are remembered.
            tools_bytes: How long its tools are, encoded; 0 without any.
            encode: Encodes a block.
        """
        if not request.run_id or request.purpose not in ("stage", "routing"):
            return self._made(request, sent_of(request.system), tools_bytes, encode, _Habits())
        habits = self._runs.get(request.run_id)
        if habits is None:
            habits = self._runs[request.run_id] = _Habits()
            if len(self._runs) > self._max_runs:
                self._runs.popitem(last=False)
        self._runs.move_to_end(request.run_id)
        before = habits.front
        same = (
            before is not None
            and habits.tools is request.tools
            and habits.ahead is request.stages_ahead
            and (habits.system is request.system or [*map(id, habits.system)] == [*map(id, request.system)])
        )
        head = request.messages[0].messages[0].digest if request.messages else b""
        begins, habits.head = habits.head == head, head
        habits.count += 1
        front = before
        # What stays as it is gets likelier to stay, which is looked at again ever more rarely.
        if front is None or not same or habits.count >= habits.again_at:
            blocks = sent_of(request.system)
            _watch(habits, blocks)
            habits.system, habits.tools, habits.ahead = request.system, request.tools, request.stages_ahead
            front = self._made(request, blocks, tools_bytes, encode, habits)
            if before is not None and same:  # what was encoded of the same blocks still holds
                front = msgspec.structs.replace(front, made=before.made)
            habits.again_at = 3 * habits.count
        moved = before is not None and not (begins and front.chain == before.chain and not habits.unended)
        habits.front = front = front if front.moved is moved else msgspec.structs.replace(front, moved=moved)
        return front

    def _made(
        self,
        request: Request,
        blocks: Sequence[Block],
        tools_bytes: int,
        encode: Callable[[Block], Wire],
        habits: _Habits,
    ) -> Front:
        spots: list[Spot] = []
        key = digest(request.model.encode("utf-8", "surrogatepass"))
        chain: list[bytes] = []
        if tools_bytes:
            count = len(request.tools.specs)
            tools = Spot("tools", tools_bytes // BYTES_PER_TOKEN, count, TOOLS_ODDS, steady=True)
            spots.append(tools if self._tools_markable else msgspec.structs.replace(tools, markable=False))
            key = digest(key, request.tools.digest)
            chain.append(key)
        places = _numbered(blocks)
        grows = 0.0
        """Odds that what grew in front of a block has grown by another one."""
        for at, (block, (owner, number)) in enumerate(zip(blocks, places, strict=True)):
            last = at + 1 == len(blocks) or blocks[at + 1].owner != owner
            odds = _either(_odds(block, number, habits, request, last=last), grows)
            grows = _moved(block, habits, (owner, TAIL)) if last and block.frozen else 0.0
            size = encode(block).size // BYTES_PER_TOKEN
            steady = block.volatility == "stable" and odds < NOTICED_ODDS
            spots.append(Spot("system", size, 1, odds, steady, block.cacheable))
            key = digest(key, block.digest)
            chain.append(key)
        known = frozenset([index for index, key in enumerate(chain) if key in habits.marked])
        return msgspec.structs.replace(front_of(spots, chain, grows=grows), known=known, blocks=tuple(blocks))

    def mark(self, request: Request, front: Front, markers: Markers) -> None:
        """Remember that *request*, which has *front*, goes out with *markers*."""
        habits = self._runs.get(request.run_id)
        if habits is None or habits.front is not front:
            return
        if request.purpose == "stage":  # a question behind it leaves what was written at the end of a stage's request
            habits.unended = markers.explicit
        if markers.ahead is habits.ahead_marked:
            return
        habits.ahead_marked = markers.ahead
        for marker in markers.ahead:
            habits.marked.pop(front.chain[marker.index], None)
            habits.marked[front.chain[marker.index]] = None
        while len(habits.marked) > MAX_MARKED:
            del habits.marked[next(iter(habits.marked))]


def sent_of(system: Sequence[Block]) -> list[Block]:
    """Return the blocks of *system* that are sent: those that say something."""
    return [block for block in system if not blank(block.texts)]


def _watch(habits: _Habits, blocks: Sequence[Block]) -> None:
    """Take note of which of *blocks* changed since the run's last request that had them."""
    for block, place in zip(blocks, _numbered(blocks), strict=True):
        _note(habits.seen, place, block.digest)
    # What grows does so at its end, wherever that is by now.
    for block in {block.owner: block for block in blocks if block.volatility == "grows"}.values():
        _note(habits.seen, (block.owner, TAIL), block.digest)


def _note(known: dict[tuple[str, int], _Seen], place: tuple[str, int], made: bytes) -> None:
    seen = known.get(place)
    if seen is None:
        known[place] = _Seen(made)
    elif seen.digest != made:
        seen.digest = made
        seen.changes += 1


def _numbered(blocks: Sequence[Block]) -> list[tuple[str, int]]:
    """Return what tells each of *blocks* from the others: its owner, and its number among the owner's."""
    counts: dict[str, int] = {}
    places: list[tuple[str, int]] = []
    for block in blocks:
        counts[block.owner] = number = counts.get(block.owner, -1) + 1
        places.append((block.owner, number))
    return places


def _odds(block: Block, number: int, habits: _Habits, request: Request, *, last: bool) -> float:
    """Return the odds that a later request that agrees with *request* in front of *block* has another one there."""
    if block.frozen:
        # Eviction begins at the head of a region, so behind its first chunk nothing more is at stake.
        return 0.0 if number else FROZEN_ODDS
    moved = _moved(block, habits, (block.owner, TAIL if last and block.volatility == "grows" else number))
    if block.reach == "any":
        return moved
    if block.reach == "run":
        return _either(moved, RUN_ODDS)
    return _either(moved, STAGE_ODDS if request.stages_ahead else LAST_STAGE_ODDS)


def _moved(block: Block, habits: _Habits, place: tuple[str, int]) -> float:
    """Return the odds that *block* changes by the run's next request: what it says of itself, and what it did."""
    says = _SAYS[block.volatility]
    changes = habits.seen[place].changes if place in habits.seen else 0
    return (changes + says * _PRIOR) / (max(0, habits.count - 1) + _PRIOR)


def _either(one: float, other: float) -> float:
    return 1.0 - (1.0 - one) * (1.0 - other)
