"""A conversation as elements of a vendor's array, each encoded once.

A vendor's array holds messages, items, or blocks in runs of one role. Each is an `Element` here: bytes with one end at
which a cache marker can be put in. A segment keeps the elements that were made of it, so a request with a marker in
another place still shares all its bytes with the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar, final

import msgspec

from shoal.providers._elements import NOTHING, SILENCE, Between, Element, Spoken, alone, joined, merged
from shoal.providers._legality import (
    CLOSING,
    OPENING,
    Turn,
    leaves_open,
    legal,
    needs_closing,
    needs_pause,
    silent,
    starts_answering,
)
from shoal.providers._values import Block, Message, Role, Segment, ToolSet, known_number, numbers_of
from shoal.providers._wire import Wire

Part: TypeAlias = Message | Segment | Block | ToolSet
T = TypeVar("T")


FEW = 4
"""How many parts of an open segment, made of equally many each, become one."""

Say: TypeAlias = Callable[[Turn], Sequence[Element]]


def kept(part: Part, encoder: object) -> Any:
    """Return what *encoder* made of *part* before; `None` where it made nothing, or another one did since."""
    made = part._wire  # pyright: ignore[reportPrivateUsage] # the slot is there for encoders
    return made[1] if made is not None and made[0] is encoder else None


def keep(part: Part, encoder: object, made: T) -> T:
    """Have *part* keep what *encoder* made of it, and return that."""
    msgspec.structs.force_setattr(part, "_wire", (encoder, made))
    return made


@final
class _Grown(msgspec.Struct, frozen=True, gc=False):
    """An open segment, as the parts that it grew by.

    It holds numbers of messages and not the messages: one of these keeps it.

    Args:
        numbers: The number of each of its messages.
        parts: What they are, n parts, in order.
        ranks: How often each part, n of them, came out of joining `FEW` parts; none is smaller than the next one.
    """

    numbers: tuple[int, ...]
    parts: tuple[Spoken, ...]
    ranks: tuple[int, ...]

    def rest_of(self, messages: Sequence[Message]) -> Sequence[Message] | None:
        """Return what *messages* say beyond this; `None` where that changes what is encoded of it, or they differ."""
        count = len(self.numbers)
        if tuple(map(known_number, messages[:count])) != self.numbers:
            return None
        if not self.parts or self.parts[-1].last == "system":
            return None  # whether a system message may stand at the end depends on what follows it
        rest = messages[count:]
        asked: list[str] = []
        for message in rest:
            if message.calls:
                asked += [call.call_id for call in message.calls]
            elif message.role == "tool" and message.call_id not in asked:
                return None  # it answers a call in front of all that is new, or none
        return rest


@final
class _Said(msgspec.Struct, gc=False):
    """What was made of a turn, kept by its message while the results stay the same.

    Args:
        results: The results that stand behind it.
        elements: What it is.
        grown: Of the first message of an open segment: what was made of that so far.
    """

    results: tuple[Message, ...]
    elements: Sequence[Element]
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
        before: Role | None = None
        for part in self.spoken(segments):
            if part.first == "assistant":
                if not spoken:  # chat templates demand that a user speaks first
                    spoken.append(self._opening)
                elif needs_pause(before, part.first):
                    spoken.append(self._closing)
            spoken.append(part)
            before = part.last
        if not tailed and needs_closing(before):
            spoken.append(self._closing if spoken else self._opening)
        return spoken

    def spoken(self, segments: Sequence[Segment]) -> list[Spoken]:
        """Return the encoded *segments*; those that only hold together with the next one become one with it."""
        spoken: list[Spoken] = []
        held: tuple[Message, ...] = ()
        last = len(segments) - 1
        for index, segment in enumerate(segments):
            if index == last and not held and not segment.closed:
                spoken += self._grown(segment)
                return spoken
            part = self.speak(held + segment.messages) if held else self.segment(segment)
            if index < last and self._holds_with(part, segments[index + 1].messages):
                held += segment.messages
                continue
            held = ()
            if part.cuts:
                spoken.append(part)
        return spoken

    def _holds_with(self, part: Spoken, ahead: Sequence[Message]) -> bool:
        """Say whether *part* depends on what *ahead*, 1 message or more, says behind it."""
        if part.open and starts_answering(ahead):
            return True
        return self._system_leads and part.last == "system" and (ahead[0].role != "assistant" or silent(ahead[0]))

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
        said: _Said | None = kept(messages[0], self._encoder)
        known = None if said is None or made is not None else said.grown
        rest = None if known is None else known.rest_of(messages)
        if known is None or rest is None:
            grown = self._anew(messages, made)
            said = kept(messages[0], self._encoder)
        else:
            grown = self._further(known, messages, rest) if rest else known
        if said is not None:
            said.grown = grown
        if made is None:
            keep(segment, self._encoder, grown)
        return grown.parts

    def _anew(self, messages: Sequence[Message], made: Spoken | None = None) -> _Grown:
        """Return *messages* as one part: what was *made* of them before, if anything was."""
        spoken = self.speak(messages) if made is None else made
        numbers = numbers_of(messages)
        return _Grown(numbers, (spoken,), (0,)) if spoken.cuts else _Grown(numbers, (), ())

    def _further(self, known: _Grown, messages: Sequence[Message], rest: Sequence[Message]) -> _Grown:
        """Return *messages*, which are what is *known* and the *rest*, as its parts and one more."""
        before = known.parts[-1]
        more = self.speak(rest, after=before.last)
        if more.first == "assistant" and needs_pause(before.last, more.first):
            return self._anew(messages)
        numbers = known.numbers + numbers_of(rest)
        if not more.cuts:
            return _Grown(numbers, known.parts, known.ranks)
        parts, ranks = known.parts, known.ranks
        while len(ranks) >= FEW and ranks[-FEW] == ranks[-1]:
            one = merged(parts[-FEW:], self._between)
            parts, ranks = (*parts[:-FEW], one), (*ranks[:-FEW], ranks[-1] + 1)
        before = parts[-1]
        glue = self._between(before.closing, more.opening)
        ahead = NOTHING if before.ahead is None else before.ahead[1]
        wire = Wire((ahead.fragments, before.wire.fragments, glue), ahead.size + before.wire.size + len(glue))
        msgspec.structs.force_setattr(more, "ahead", (len(parts), wire))
        return _Grown(numbers, (*parts, more), (*ranks, 0))

    def speak(self, messages: Sequence[Message], *, after: Role | None = None) -> Spoken:
        """Return *messages*, encoded; *after* is the role of what stands in front of them, `None` for nothing."""
        if len(messages) == 1 and messages[0].role == "user" and not messages[0].calls:
            return self._alone(messages[0])
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
        return joined(
            elements,
            self._between,
            first=turns[0].message.role,
            last=before,
            open_=leaves_open(messages),
            thinks=thinks,
        )

    def _alone(self, message: Message) -> Spoken:
        """Return *message* of a user, whom nobody stands beside."""
        if silent(message):
            return SILENCE
        elements = self.turn(Turn(message))
        if len(elements) == 1:
            return alone(elements[0], "user")
        return joined(elements, self._between, first="user", last="user", open_=None, thinks=None)

    def turn(self, turn: Turn) -> Sequence[Element]:
        """Return the elements of *turn*, encoded once while its results are the same."""
        said: _Said | None = kept(turn.message, self._encoder)
        results = tuple([answer.result for answer in turn.answers]) if turn.answers else ()
        if said is None or [*map(id, said.results)] != [*map(id, results)]:
            said = keep(turn.message, self._encoder, _Said(results, self._say(turn)))
        return said.elements


def _placed(turn: Turn, before: Role | None, ahead: Sequence[Turn]) -> Turn:
    """Return *turn*, a system message, as a user's where a vendor that lets it lead takes none in its place."""
    if before in ("user", "tool", "system") and not _overruled(turn.message, ahead):
        return turn
    return Turn(Message("user", turn.message.texts))


def _overruled(message: Message, ahead: Iterable[Turn]) -> bool:
    """Say whether the system *message* cannot stand in front of *ahead*: only its like, and then an assistant, may."""
    for turn in ahead:
        if turn.message.role == "system" and turn.message.turn_scoped == message.turn_scoped:
            continue
        return turn.message.role != "assistant"
    return False
