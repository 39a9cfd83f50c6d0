"""Brains: what stands in for the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias, cast, final

from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Ask, Brain, Call, Failure, Part, Text, Thinking, Turn

Playable: TypeAlias = str | Part | Turn | Failure | tuple[str | Part, ...]
"""What a script is written in: a string is said, several parts in a tuple make one turn."""


class ScriptEnded(AssertionError):
    """The model was asked more often than the test wrote turns."""


def turn(*parts: str | Part, stop: str | None = None, detail: str | None = None, delay_s: float = 0.0) -> Turn:
    """Return one turn of *parts*; a string is said. See `Turn` for the rest."""
    return Turn(tuple(_part(part) for part in parts), stop=stop, detail=detail, delay_s=delay_s)


def call(name: str, /, call_id: str | None = None, **arguments: Any) -> Call:
    """Return a call of the tool *name* with *arguments*."""
    return Call(name, arguments, call_id)


def think(text: str, /, *, redacted: bool = False) -> Thinking:
    """Return reasoning."""
    return Thinking(text, redacted)


def _part(part: str | Part) -> Part:
    return Text(part) if isinstance(part, str) else part


def _playable(item: Playable) -> Turn | Failure:
    match item:
        case Turn() | Failure():
            return item
        case tuple():
            return turn(*item)
        case _:
            return turn(item)


@final
class Script:
    """Plays turns in order, one for each request.

    A request that comes again because its reply was cut does not use up a turn: the server answers it as before.

    Args:
        *turns: What to say. With none, the first request fails.
        last: Said from then on; `None` fails the request instead.
    """

    def __init__(self, *turns: Playable, last: Playable | None = None) -> None:
        self._turns = tuple(_playable(item) for item in turns)
        self._last = None if last is None else _playable(last)
        self.played = 0

    def __repr__(self) -> str:
        return f"<Script {self.played} of {len(self._turns)} turns played>"

    def __call__(self, ask: Ask) -> Turn | Failure:
        self.played += 1
        if self.played <= len(self._turns):
            return self._turns[self.played - 1]
        if self._last is None:
            raise ScriptEnded(
                f"request {self.played} for {ask.model!r} found a script of {len(self._turns)} turns; "
                "write another turn, or pass `last`"
            )
        return self._last


@final
class Cast:
    """Gives each of several conversations a brain of its own, by a word that stands in it.

    Args:
        brains: The brain for conversations that hold the word, the first that fits: of a system prompt, of a task.
        otherwise: Answers all others; `None` fails them.
    """

    def __init__(self, brains: Mapping[str, Brain], otherwise: Brain | None = None) -> None:
        self._brains = dict(brains)
        self._otherwise = otherwise

    def __repr__(self) -> str:
        return f"<Cast {', '.join(self._brains)}>"

    def __call__(self, ask: Ask) -> Turn | Failure:
        text = "\n".join(said.text for said in ask.said)
        for word, brain in self._brains.items():
            if word in text:
                return brain(ask)
        if self._otherwise is None:
            raise ScriptEnded(f"no word of {sorted(self._brains)!r} stands in the request; pass `otherwise`")
        return self._otherwise(ask)


def arguments_of(part: Call) -> str:
    """Return the arguments of *part* as the text that streams."""
    return part.arguments if isinstance(part.arguments, str) else compact(dict(part.arguments))


def object_of(part: Call) -> dict[str, Any]:
    """Return the arguments of *part* as an object; empty where they are none, as the vendors do."""
    if not isinstance(part.arguments, str):
        return dict(part.arguments)
    try:
        value: object = json.loads(part.arguments)
    except ValueError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
