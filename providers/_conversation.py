"""A conversation as elements of a vendor's array, each encoded once.

A vendor's array holds messages, items, or blocks in runs of one role. Each is an `Element` here: bytes with one end at
which a cache marker can be put in. A segment keeps the elements that were made of it, so a request with a marker in
another place still shares all its bytes with the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast, final

import msgspec

from shoal.providers._breakpoints import BYTES_PER_TOKEN, Spot
from shoal.providers._legality import (
    CLOSING,
    OPENING,
    Turn,
    leaves_open,
    legal,
    needs_closing,
    needs_opening,
    needs_pause,
    starts_answering,
)
from shoal.providers._text import Text
from shoal.providers._values import Block, Message, Role, Segment, ToolSet, digests_of
from shoal.providers._wire import Deferred, Flat, Fragments, Wire

Leaves: TypeAlias = tuple["bytes | Deferred", ...]
Part: TypeAlias = Message | Segment | Block | ToolSet
T = TypeVar("T")


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
        size = len(self.end)
        for leaf in self.head:
            size += len(leaf)
        return size


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
class Spoken(msgspec.Struct, frozen=True):
    """Encoded messages that stand together.

    Args:
        wire: Their bytes, as they stand in the array: one level of leaves.
        cuts: Where each element ends, n in order, 1 or more; none where nothing is said.
        opening: The run of the first element; empty where nothing is said.
        first: Role of the first message; `None` where there is none.
        last: Role of the last one, `tool` for a result; `None` where there is none.
        open: A call of the last assistant turn has no result yet.
        thinks: The last assistant turn brings back what its model thought; `None` where there is no such turn.
        blobs: How many stored parts are sent as bytes.
        side_px: The longest side of an image among them.
        runs: The runs of its elements.
        closing: The run of the last element; empty where nothing is said.
        ahead: Of what an open segment grew by: how many parts of that stand in front, and their bytes up to this one.
        stretched: What `stretches` returned; empty before it did.
    """

    wire: Wire = NOTHING
    cuts: tuple[Cut, ...] = ()
    opening: str = ""
    first: Role | None = None
    last: Role | None = None
    open: bool = False
    thinks: bool | None = None
    blobs: int = 0
    side_px: int = 0
    runs: frozenset[str] = frozenset()
    closing: str = ""
    ahead: tuple[int, Wire] | None = None
    stretched: tuple[Spot, ...] = ()
    _spots: tuple[Spot, ...] = ()

    def stretches(self) -> tuple[Spot, ...]:
        """Return all of it as one stretch: nobody will look into it again.

        Where no marker may stand at its end they are two: up to the last place that takes one, and the rest.
        """
        if not self.stretched:
            alone = len(self.cuts) == 1
            made = self.spots if alone else tuple([spot for _, spot in self._stretched()])
            msgspec.structs.force_setattr(self, "stretched", made)
            msgspec.structs.force_setattr(self, "_spots", ())
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

    @property
    def spots(self) -> tuple[Spot, ...]:
        """Each element as a stretch of its own."""
        if not self._spots:
            made: list[Spot] = []
            size = 0
            for cut in self.cuts:
                made.append(Spot("messages", (cut.size - size) // BYTES_PER_TOKEN, markable=cut.markable))
                size = cut.size
            msgspec.structs.force_setattr(self, "_spots", tuple(made))
        return self._spots

    @property
    def leaves(self) -> Leaves:
        """Their bytes, one leaf behind the other."""
        return cast("Leaves", self.wire.fragments)


SILENCE = Spoken()


MAX_PARTS = 8

Say: TypeAlias = Callable[[Turn], Iterable[Element]]
Between: TypeAlias = Callable[[str, str], bytes]


def kept(part: Part, encoder: object) -> Any:
    """Return what *encoder* made of *part* before; `None` where it made nothing, or another one did since."""
    made = part._wire  # pyright: ignore[reportPrivateUsage] # the slot is there for encoders
    return made[1] if made is not None and made[0] is encoder else None


def keep(part: Part, encoder: object, made: T) -> T:
    """Have *part* keep what *encoder* made of it, and return that."""
    msgspec.structs.force_setattr(part, "_wire", (encoder, made))
    return made


@final
class _Grown(msgspec.Struct, frozen=True):
    """An open segment, as the parts that it grew by.

    It holds digests of messages and not the messages: one of these keeps it.
    """

    digests: tuple[bytes, ...]
    parts: tuple[Spoken, ...]

    def begins(self, digests: tuple[bytes, ...], messages: Sequence[Message]) -> bool:
        """Say whether *messages* go on where this ends, so that what is encoded of it holds whatever they say."""
        count = len(self.digests)
        if digests[:count] != self.digests:
            return False
        if not self.parts or self.parts[-1].last == "system":
            return False  # whether a system message may stand at the end depends on what follows it
        asked: set[str] = set()
        for message in messages[count:]:
            if message.role == "tool" and message.call_id not in asked:
                return False  # it answers a call in front of all that is new, or none
            asked.update([call.call_id for call in message.calls])
        return True


@final
class _Said(msgspec.Struct, frozen=True):
    """What was made of a turn, kept by its message while the results stay the same.

    Args:
        results: The results that stand behind it.
        elements: What it is.
        grown: Of the first message of an open segment: what was made of that so far.
    """

    results: tuple[Message, ...]
    elements: tuple[Element, ...]
    grown: _Grown | None = None


@final
class Conversation:
    """Turns segments into elements for one encoder.

    Args:
        encoder: Whose elements they are; the key under which parts keep them.
        say: Returns the elements of a turn, 0 or more.
        between: Returns the bytes between two elements, by their runs.
        thinks: Says whether a message brings back what its model thought.
        system_leads: A system message may stand behind a user's, in front of an assistant's or at the end only.
    """

    def __init__(
        self,
        encoder: object,
        *,
        say: Say,
        between: Between,
        thinks: Callable[[Message], bool] | None = None,
        system_leads: bool = False,
    ) -> None:
        self._encoder = encoder
        self._say = say
        self._between = between
        self._thinks = thinks
        self._system_leads = system_leads
        self._opening = self.speak((Message("user", (OPENING,)),))
        self._closing = self.speak((Message("user", (CLOSING,)),))

    def whole(self, segments: Sequence[Segment], *, tailed: bool) -> list[Spoken]:
        """Return the encoded *segments* with what has to stand in front, between and behind them.

        Args:
            segments: The segments, in order.
            tailed: A tail follows, which closes as well as a closing message does.
        """
        spoken: list[Spoken] = []
        for part in self.spoken(segments):
            if not spoken and needs_opening(part.first):
                spoken.append(self._opening)
            elif part.first == "assistant" and needs_pause(spoken[-1].last, part.first):
                spoken.append(self._closing)
            spoken.append(part)
        if not tailed and needs_closing(spoken[-1].last if spoken else None):
            spoken.append(self._closing if spoken else self._opening)
        return spoken

    def spoken(self, segments: Sequence[Segment]) -> list[Spoken]:
        """Return the encoded *segments*; those that only hold together with the next one become one with it."""
        spoken: list[Spoken] = []
        held: tuple[Message, ...] = ()
        for index, segment in enumerate(segments):
            if index == len(segments) - 1 and not held and not segment.closed:
                return [*spoken, *self._grown(segment)]
            part = self.speak(held + segment.messages) if held else self.segment(segment)
            ahead = segments[index + 1].messages if index + 1 < len(segments) else ()
            answered = part.open and starts_answering(ahead)
            spoken_over = self._system_leads and part.last == "system" and ahead and ahead[0].role != "assistant"
            if answered or spoken_over:
                held += segment.messages
                continue
            held = ()
            if part.cuts:
                spoken.append(part)
        return spoken

    def segment(self, segment: Segment) -> Spoken:
        """Return the messages of *segment*, encoded once."""
        made: Spoken | _Grown | None = kept(segment, self._encoder)
        if isinstance(made, Spoken):
            return made
        if made is not None and len(made.parts) == 1:
            return made.parts[0]
        spoken = self.speak(segment.messages)
        if segment.closed:
            for message in segment.messages:
                # The segment has their bytes now, and nothing will ask for them one by one.
                msgspec.structs.force_setattr(message, "_wire", None)
        return keep(segment, self._encoder, spoken)

    def _grown(self, segment: Segment) -> tuple[Spoken, ...]:
        """Return the messages of an open segment; what stood in it at the request before is not looked at again."""
        made: Spoken | _Grown | None = kept(segment, self._encoder)
        if isinstance(made, _Grown):
            return made.parts
        messages = segment.messages
        digests = digests_of(messages)
        said: _Said | None = kept(messages[0], self._encoder)
        known = None if said is None else said.grown
        if made is not None:
            parts: tuple[Spoken, ...] = (made,)
        elif known is not None and known.begins(digests, messages):
            parts = self._further(known, messages)
        else:
            parts = (self.speak(messages),)
        grown = _Grown(digests, parts if parts[-1].cuts else parts[:-1])
        said = kept(messages[0], self._encoder)
        if said is not None:
            msgspec.structs.force_setattr(said, "grown", grown)
        return grown.parts if made is not None else keep(segment, self._encoder, grown).parts

    def _merged(self, known: _Grown, messages: Sequence[Message]) -> Spoken:
        """Return the parts of what *messages* were before they grew as one."""
        leaves: list[bytes | Deferred] = []
        cuts: list[Cut] = []
        size = 0
        closing = ""
        for part in known.parts:
            if closing:
                glue = self._between(closing, part.opening)
                leaves.append(glue)
                size += len(glue)
            cuts += [Cut(cut.leaf + len(leaves), cut.size + size, cut.run, cut.markable) for cut in part.cuts]
            leaves += part.leaves
            size += part.wire.size
            closing = part.closing
        return Spoken(
            Wire(_fragments(tuple(leaves)), size),
            tuple(cuts),
            known.parts[0].opening,
            known.parts[0].first,
            known.parts[-1].last,
            leaves_open(messages[: len(known.digests)]),
            next((part.thinks for part in reversed(known.parts) if part.thinks is not None), None),
            sum([part.blobs for part in known.parts]),
            max([part.side_px for part in known.parts]),
            frozenset[str]().union(*[part.runs for part in known.parts]),
            closing,
        )

    def _further(self, known: _Grown, messages: Sequence[Message]) -> tuple[Spoken, ...]:
        """Return *messages*, which begin with what is *known*, as its parts and one more."""
        rest = messages[len(known.digests) :]
        if not rest:
            return known.parts
        before = known.parts[-1]
        more = self.speak(rest, after=before.last)
        if needs_pause(before.last, more.first):
            return (self.speak(messages),)
        parts = known.parts if len(known.parts) < MAX_PARTS else (self._merged(known, messages),)
        if more.cuts:
            before = parts[-1]
            glue = self._between(before.closing, more.opening)
            wire = Wire.of(before.wire, glue) if before.ahead is None else Wire.of(before.ahead[1], before.wire, glue)
            msgspec.structs.force_setattr(more, "ahead", (len(parts), wire))
        return (*parts, more)

    def speak(self, messages: Sequence[Message], *, after: Role | None = None) -> Spoken:
        """Return *messages*, encoded; *after* is the role of what stands in front of them, `None` for nothing."""
        turns = legal(messages)
        if not turns:
            return SILENCE
        elements: list[Element] = []
        thinks: bool | None = None
        before: Role | None = None
        for index, turn in enumerate(turns):
            role = turn.message.role
            if needs_pause(before, role):
                elements += self.turn(Turn(Message("user", (CLOSING,))))
            if role == "system" and self._system_leads:
                elements += self.turn(_placed(turn, before if index else after, turns[index + 1 :]))
            else:
                elements += self.turn(turn)
            before = "tool" if turn.answers else role
            if role == "assistant":
                thinks = self._thinks is not None and self._thinks(turn.message)
        if not elements:
            return SILENCE
        return self._joined(
            elements, first=turns[0].message.role, last=before, open_=leaves_open(messages), thinks=thinks
        )

    def turn(self, turn: Turn) -> Sequence[Element]:
        """Return the elements of *turn*, encoded once while its results are the same."""
        message = turn.message
        said: _Said | None = kept(message, self._encoder)
        results = tuple([answer.result for answer in turn.answers]) if turn.answers else ()
        if said is not None and [*map(id, said.results)] == [*map(id, results)]:
            return said.elements
        return keep(message, self._encoder, _Said(results, tuple(self._say(turn)))).elements

    def _joined(
        self, elements: Sequence[Element], *, first: Role, last: Role | None, open_: bool, thinks: bool | None
    ) -> Spoken:
        if len(elements) == 1:
            alone, run = elements[0], elements[0].run
            wire = Wire(_fragments((*alone.head, alone.end)), alone.size)
            cut = Cut(len(alone.head), alone.size, run, alone.markable)
            return Spoken(
                wire, (cut,), run, first, last, open_, thinks, alone.blobs, alone.side_px, frozenset((run,)), run
            )
        leaves: list[bytes | Deferred] = []
        cuts: list[Cut] = []
        runs: set[str] = set()
        size = blobs = side_px = 0
        run = ""
        for element in elements:
            if run:
                glue = self._between(run, element.run)
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
        return Spoken(
            wire, tuple(cuts), elements[0].run, first, last, open_, thinks, blobs, side_px, frozenset(runs), run
        )

    # --- joining

    def parts(self, spoken: Sequence[Spoken], markers: Mapping[tuple[int, int], bytes]) -> list[bytes | Wire]:
        """Return *spoken* as they stand in the array, with *markers* put in.

        Args:
            spoken: What is said, n parts, in order.
            markers: The bytes of each marker by index of its part and of its element in that.
        """
        marked: dict[int, list[tuple[int, bytes]]] = {}
        for (at, element), marker in sorted(markers.items()):
            marked.setdefault(at, []).append((element, marker))
        if not spoken:
            return []
        # What the open segment was before it grew stands as one piece, up to the first marker in it.
        first = min(marked, default=len(spoken) - 1)
        count, ahead = spoken[first].ahead or (0, NOTHING)
        parts: list[bytes | Wire] = []
        closing = ""
        for part in spoken[: first - count]:
            if closing:
                parts.append(self._between(closing, part.opening))
            parts.append(part.wire)
            closing = part.closing
        if count:
            if closing:
                parts.append(self._between(closing, spoken[first - count].opening))
            parts.append(ahead)
            closing = ""
        for index in range(first, len(spoken)):
            part = spoken[index]
            if closing:
                parts.append(self._between(closing, part.opening))
            parts.append(_marked(part, marked[index]) if index in marked else part.wire)
            closing = part.closing
        return parts


def _marked(part: Spoken, markers: Iterable[tuple[int, bytes]]) -> Wire:
    """Return *part* with *markers*, by index of the element, sorted."""
    leaves = part.leaves
    fragments: list[bytes | Deferred | Fragments] = []
    size, done = part.wire.size, 0
    for element, marker in markers:
        at = part.cuts[element].leaf
        end = leaves[at]
        assert isinstance(end, bytes)  # only what stands inside an element may be fetched later
        inside = end.index(b"}")
        fragments += [_fragments(leaves[done:at]), end[:inside], marker, end[inside:]]
        size += len(marker)
        done = at + 1
    fragments.append(_fragments(leaves[done:]))
    return Wire(tuple(fragments), size)


def _fragments(leaves: Leaves) -> Fragments:
    if Deferred in {*map(type, leaves)}:
        return leaves
    return Flat(cast("tuple[bytes, ...]", leaves))


def _placed(turn: Turn, before: Role | None, ahead: Sequence[Turn]) -> Turn:
    """Return *turn*, a system message, as a user's where a vendor that lets it lead takes none in its place."""
    if before in ("user", "tool", "system") and not _overruled(turn.message, ahead):
        return turn
    return Turn(Message("user", turn.message.texts))


def bodies(texts: Iterable[Text]) -> Leaves:
    """Return the bytes of *texts*, as they stand inside a JSON string."""
    return tuple([text.body for text in texts])


def _overruled(message: Message, ahead: Iterable[Turn]) -> bool:
    """Say whether the system *message* cannot stand in front of *ahead*: only its like, and then an assistant, may."""
    for turn in ahead:
        if turn.message.role == "system" and turn.message.turn_scoped == message.turn_scoped:
            continue
        return turn.message.role != "assistant"
    return False


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
