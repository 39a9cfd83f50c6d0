"""From what a brain says to what fits: the reply's budget, the window, and the stop sequences cut it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from shoal.testing.wire._brains import arguments_of
from shoal.testing.wire._tokens import compact, count, cut
from shoal.testing.wire._values import Call, Part, Text, Thinking, Turn


@final
@dataclass(frozen=True, slots=True)
class Fitted:
    """A turn as it is sent.

    Args:
        parts: What is left of it; each call has an id.
        stop: Why it stops; never `None`.
        detail: As in the turn, or the stop sequence that was met.
        output: Tokens that are billed.
        reasoning: Those of them that were reasoning.
    """

    parts: tuple[Part, ...]
    stop: str
    detail: str | None
    output: int
    reasoning: int

    @property
    def calls(self) -> tuple[Call, ...]:
        """The tools it wants run, in order."""
        return tuple(part for part in self.parts if isinstance(part, Call))


def part_tokens(part: Part) -> int:
    """Return what *part* counts."""
    match part:
        case Text(text) | Thinking(text):
            return count(text)
        case Call(name):
            return count(name) + count(arguments_of(part))
        case _:
            return count(compact(dict(part.value)))


def fitted(turn: Turn, *, budget: int, over: str, stops: Sequence[str]) -> Fitted:
    """Cut *turn* to *budget* tokens and at the first of *stops*.

    Args:
        turn: What the brain said.
        budget: Longest reply in tokens, 0 or more.
        over: Why it stops when the budget is reached: `length`, or `window`.
        stops: Stop sequences of the request.
    """
    parts, met = _stopped(turn.parts, stops)
    parts, full = _budgeted(parts, budget)
    stop, detail = turn.stop, turn.detail
    if full:
        stop, detail = over, None
    elif met is not None:
        stop, detail = "stop_sequence", met
    if stop is None:
        stop = "tools" if any(isinstance(part, Call) for part in parts) else "end"
    reasoning = sum(part_tokens(part) for part in parts if isinstance(part, Thinking))
    output = sum(part_tokens(part) for part in parts) if turn.output_tokens is None else turn.output_tokens
    return Fitted(parts, stop, detail, output, reasoning)


def _stopped(parts: tuple[Part, ...], stops: Sequence[str]) -> tuple[tuple[Part, ...], str | None]:
    """Return *parts* up to the first stop sequence in a text, and which it was."""
    for number, part in enumerate(parts):
        places = [(part.text.find(stop), stop) for stop in stops if stop in part.text] if isinstance(part, Text) else []
        if isinstance(part, Text) and places:
            place, stop = min(places)
            kept = (Text(part.text[:place]),) if place else ()
            return parts[:number] + kept, stop
    return parts, None


def _budgeted(parts: tuple[Part, ...], budget: int) -> tuple[tuple[Part, ...], bool]:
    """Return what of *parts* fits *budget*, and whether something did not. The one that does not fit is cut."""
    kept: list[Part] = []
    left = budget
    for part in parts:
        need = part_tokens(part)
        if need > left:
            return (*kept, *_start_of(part, left)), True
        kept.append(part)
        left -= need
    return parts, False


def _start_of(part: Part, tokens: int) -> tuple[Part, ...]:
    match part:
        case Text(text) if tokens > 0:
            return (Text(cut(text, tokens)),)
        case Thinking(text) if tokens > 0:
            return (replace(part, text=cut(text, tokens)),)
        case Call(name) if tokens > count(name):
            # A call that is cut has arguments that are no JSON, as in life.
            return (replace(part, arguments=cut(arguments_of(part), tokens - count(name))),)
        case _:
            return ()
