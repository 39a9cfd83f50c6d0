"""What is said, as leaves of bytes: elements of a vendor's array, and stretches of them that stand together."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, cast, final

import msgspec

from shoal.providers._breakpoints import BYTES_PER_TOKEN, Spot
from shoal.providers._text import Text
from shoal.providers._values import Role
from shoal.providers._wire import Deferred, Flat, Fragments, Wire

Placed: TypeAlias = "tuple[int, int, bytes]"
"""A marker: index of its part, of its element in that, and its bytes."""
Leaves: TypeAlias = tuple["bytes | Deferred", ...]
Between: TypeAlias = Callable[[str, str], bytes]

NOTHING = Wire((), 0)


@final
class Element(msgspec.Struct, frozen=True, gc=False):
    """One element of the array, or of a run in it.

    Args:
        run: What it may share a run with: elements of the same run name stand in one message.
        head: Its bytes up to its end.
        end: The rest. A marker goes in front of the first `}` in it.
        markable: A cache marker may stand here.
        blobs: How many stored parts are sent as bytes in it.
        side_px: The longest side of an image in it; 0 where that is unknown or there is none.
    """

    run: str
    head: Leaves
    end: bytes
    markable: bool = True
    blobs: int = 0
    side_px: int = 0

    @property
    def size(self) -> int:
        """How many bytes it is."""
        return sum(map(len, self.head), len(self.end))


@final
class Cut(msgspec.Struct, frozen=True, gc=False):
    """Where an element ends among the leaves of a `Spoken`.

    Args:
        leaf: Index of its end.
        size: Bytes up to here, from the start of the leaves.
        run: See `Element`.
        markable: See `Element`.
    """

    leaf: int
    size: int
    run: str
    markable: bool


@final
class Spoken(msgspec.Struct, frozen=True, gc=False):
    """Encoded messages that stand together.

    Args:
        wire: Their bytes, as they stand in the array: one level of leaves.
        cuts: Where each element ends, n in order, 1 or more; none where nothing is said.
        opening: The run of the first element; empty where nothing is said.
        first: Role of the first message; `None` where there is none.
        last: Role of the last one, `tool` for a result; `None` where there is none.
        open: A call of the last assistant turn that calls has no result yet; `None` where none does.
        thinks: The last assistant turn brings back what its model thought; `None` where there is no such turn.
        blobs: How many stored parts are sent as bytes.
        side_px: The longest side of an image among them.
        runs: The runs of its elements.
        closing: The run of the last element; empty where nothing is said.
        ahead: Of what an open segment grew by: how many parts of that stand in front, and their bytes up to this one.
        stretched: What `stretches` returned; empty before it did.
        spots: What `as_spots` returned; empty before it did, and where `stretches` did since.
    """

    wire: Wire = NOTHING
    cuts: tuple[Cut, ...] = ()
    opening: str = ""
    first: Role | None = None
    last: Role | None = None
    open: bool | None = None
    thinks: bool | None = None
    blobs: int = 0
    side_px: int = 0
    runs: frozenset[str] = frozenset()
    closing: str = ""
    ahead: tuple[int, Wire] | None = None
    stretched: tuple[Spot, ...] = ()
    spots: tuple[Spot, ...] = ()

    def stretches(self) -> tuple[Spot, ...]:
        """Return all of it as one stretch: nobody will look into it again.

        Where no marker may stand at its end they are two: up to the last place that takes one, and the rest.
        """
        if not self.stretched:
            single = len(self.cuts) == 1
            made = (self.spots or self.as_spots()) if single else tuple([spot for _, spot in self._stretched()])
            msgspec.structs.force_setattr(self, "stretched", made)
            msgspec.structs.force_setattr(self, "spots", ())
        return self.stretched

    def last_of(self, stretch: int) -> int:
        """Return the element that ends the *stretch* of that number."""
        return self._stretched()[stretch][0]

    def _stretched(self) -> list[tuple[int, Spot]]:
        last = len(self.cuts) - 1
        at = last
        while at >= 0 and not self.cuts[at].markable:
            at -= 1
        made: list[tuple[int, Spot]] = []
        if at >= 0:
            made.append((at, Spot("messages", self.cuts[at].size // BYTES_PER_TOKEN, at + 1)))
        if at < last:
            rest = self.wire.size - (self.cuts[at].size if at >= 0 else 0)
            made.append((last, Spot("messages", rest // BYTES_PER_TOKEN, last - at, markable=False)))
        return made

    def as_spots(self) -> tuple[Spot, ...]:
        """Return each element as a stretch of its own."""
        made: list[Spot] = []
        size = 0
        for cut in self.cuts:
            made.append(Spot("messages", (cut.size - size) // BYTES_PER_TOKEN, markable=cut.markable))
            size = cut.size
        msgspec.structs.force_setattr(self, "spots", tuple(made))
        return self.spots

    @property
    def leaves(self) -> Leaves:
        """Their bytes, one leaf behind the other."""
        return self.wire.fragments  # type: ignore[return-value] # one level of leaves; `cast` would be a call


SILENCE = Spoken()


def joined(
    elements: Sequence[Element],
    between: Between,
    *,
    first: Role,
    last: Role | None,
    open_: bool | None,
    thinks: bool | None,
) -> Spoken:
    """Return *elements*, 1 or more, as what stands together; see `Spoken` for the rest."""
    leaves: list[bytes | Deferred] = []
    cuts: list[Cut] = []
    runs: set[str] = set()
    size = blobs = side_px = 0
    run = ""
    for element in elements:
        if run:
            glue = between(run, element.run)
            leaves.append(glue)
            size += len(glue)
        leaves += element.head
        size += element.size
        run = element.run
        runs.add(run)
        cuts.append(Cut(len(leaves), size, run, element.markable))
        leaves.append(element.end)
        if element.blobs:
            blobs += element.blobs
            side_px = max(side_px, element.side_px)
    wire = Wire(_fragments(tuple(leaves)), size)
    return Spoken(wire, tuple(cuts), elements[0].run, first, last, open_, thinks, blobs, side_px, frozenset(runs), run)


def alone(element: Element, role: Role) -> Spoken:
    """Return *element*, which is all that a message of *role* says, as what stands together."""
    head, run, blobs, markable = element.head, element.run, element.blobs, element.markable
    leaves = (*head, element.end)
    size = sum(map(len, leaves))
    wire = Wire(leaves if blobs else Flat(leaves), size)  # type: ignore[arg-type] # without stored parts they are bytes
    runs = _only(run)
    # Positions throughout: this is done for every message, and keywords cost.
    spots = (Spot("messages", size // BYTES_PER_TOKEN, 1, 0.0, False, True, markable),)  # noqa: FBT003
    cuts = (Cut(len(head), size, run, markable),)
    side_px = element.side_px
    return Spoken(wire, cuts, run, role, role, None, None, blobs, side_px, runs, run, None, spots, spots)


@functools.cache
def _only(run: str) -> frozenset[str]:
    return frozenset((run,))


def merged(parts: Sequence[Spoken], between: Between) -> Spoken:
    """Return *parts*, 1 or more, as one; no result in one of them answers a call in another."""
    leaves: list[bytes | Deferred] = []
    cuts: list[Cut] = []
    size = blobs = side_px = 0
    closing = ""
    open_: bool | None = None
    thinks: bool | None = None
    runs: set[str] = set()
    for part in parts:
        if closing:
            glue = between(closing, part.opening)
            leaves.append(glue)
            size += len(glue)
        cuts += [Cut(cut.leaf + len(leaves), cut.size + size, cut.run, cut.markable) for cut in part.cuts]
        leaves += part.leaves
        size += part.wire.size
        closing = part.closing
        runs |= part.runs
        open_ = open_ if part.open is None else part.open
        thinks = thinks if part.thinks is None else part.thinks
        if part.blobs:
            blobs += part.blobs
            side_px = max(side_px, part.side_px)
    first, last = parts[0], parts[-1]
    # Without stored parts all leaves are bytes.
    wire = Wire(tuple(leaves) if blobs else Flat(leaves), size)  # type: ignore[arg-type]
    known = (blobs, side_px, frozenset(runs), closing, first.ahead)
    return Spoken(wire, tuple(cuts), first.opening, first.first, last.last, open_, thinks, *known)


def in_array(spoken: Sequence[Spoken], between: Between, markers: Sequence[Placed] = ()) -> Wire:
    """Return *spoken* as they stand in the array, with *markers* put in.

    Args:
        spoken: What is said, n parts, in order.
        between: Returns the bytes between two elements, by their runs.
        markers: The markers, in order.
    """
    if not spoken:
        return NOTHING
    # What the open segment was before it grew stands as one piece, up to the first marker in it.
    first = markers[0][0] if markers else len(spoken) - 1
    count, ahead = spoken[first].ahead or (0, NOTHING)
    fragments: list[bytes | Fragments] = []
    size = at = 0
    before = ""
    while at < len(spoken):
        part = spoken[at]
        wire, closing, step = part.wire, part.closing, 1
        if count and at == first - count:
            wire, closing, step = ahead, "", count  # what joins it with the next part stands in it
        elif markers and at >= first:
            inside = [marker for marker in markers if marker[0] == at]
            wire = _marked(part, inside) if inside else wire
        if before:
            glue = between(before, part.opening)
            fragments.append(glue)
            size += len(glue)
        fragments.append(wire.fragments)
        size += wire.size
        before = closing
        at += step
    return Wire(tuple(fragments), size)


def _marked(part: Spoken, markers: Iterable[Placed]) -> Wire:
    """Return *part* with its *markers*."""
    leaves = part.leaves
    made = [*leaves]
    size = part.wire.size
    for _, element, marker in markers:
        at = part.cuts[element].leaf
        end = made[at]
        assert isinstance(end, bytes)  # only what stands inside an element may be fetched later
        inside = end.index(b"}")
        made[at] = end[:inside] + marker + end[inside:]
        size += len(marker)
    flat = isinstance(leaves, Flat)
    return Wire(Flat(made) if flat else tuple(made), size)  # type: ignore[arg-type] # what is flat holds bytes alone


def _fragments(leaves: Leaves) -> Fragments:
    if Deferred in {*map(type, leaves)}:
        return leaves
    return Flat(cast("tuple[bytes, ...]", leaves))


def bodies(texts: Sequence[Text]) -> Leaves:
    """Return the bytes of *texts*, as they stand inside a JSON string."""
    return (texts[0].body,) if len(texts) == 1 else tuple([text.body for text in texts])


def listed(run: str, opening: bytes, parts: Sequence[Leaves], closing: bytes, *, markable: bool = True) -> Element:
    """Return an element that holds *parts*, 1 or more; a marker goes into the last of them.

    Args:
        run: See `Element`.
        opening: Its bytes in front of the parts.
        parts: Objects, each with its closing brace in its last leaf.
        closing: Its bytes behind the parts.
        markable: See `Element`.
    """
    leaves: list[bytes | Deferred] = [opening]
    for index, part in enumerate(parts):
        leaves += [b",", *part] if index else part
    last = leaves.pop()
    assert isinstance(last, bytes)  # a closing brace
    blobs = sum([isinstance(leaf, Deferred) for leaf in leaves])
    return Element(run, tuple(leaves), last + closing, markable, blobs)
