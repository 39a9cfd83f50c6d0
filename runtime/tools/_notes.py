"""What agents remember from run to run: the protocol of a memory, and what is shown and found of its notes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, final

import msgspec

from shoal.providers import Text
from shoal.runtime.context import estimate_text

_WORD = re.compile(r"\w{2,}")


@final
class Note(msgspec.Struct, frozen=True):
    """One thing that is remembered: its name, and its text."""

    name: str
    text: str


@final
class NoteRefused(Exception):
    """A note that is not kept; the message says why and what to do."""


class Memory(Protocol):
    """What agents remember from run to run. Whatever one of its methods raises is told to whoever asked."""

    @property
    def place(self) -> str:
        """Where it lies, for people."""
        ...

    async def resident(self, budget_tokens: int) -> str:
        """Return what every run is shown of it, at most *budget_tokens*; empty where it holds nothing."""
        ...

    async def recall(self, query: str) -> Sequence[Note]:
        """Return the notes that have to do with *query*, the best first; all of them by name where that is empty."""
        ...

    async def remember(self, name: str, text: str, *, append: bool = False) -> None:
        """Keep *text* as the note *name*, in place of what it held, or behind that."""
        ...


def summary(notes: Sequence[Note], budget_tokens: int) -> str:
    """Return *notes* one behind the other, at most *budget_tokens*; the names of those that do not fit end it."""
    shown: list[str] = []
    left: list[str] = []
    used = 0
    for note in notes:
        said = f"### {note.name}\n{note.text.strip()}"
        cost = estimate_text(Text.of(said)) + 1
        if not left and used + cost <= budget_tokens:
            shown.append(said)
            used += cost
        else:
            left.append(note.name)
    if left:
        line = f"({len(left)} more: "
        room = max(0, (budget_tokens - used) * 4 - len(line) - 2)
        names = ", ".join(left)
        shown.append(f"{line}{names if len(names) <= room else names[: max(0, room - 1)] + '…'})" if room else "")
    return "\n\n".join(filter(None, shown))


def ranked(notes: Sequence[Note], query: str) -> list[Note]:
    """Return those of *notes* that hold words of *query*, those with most of them first; all for an empty one."""
    wanted = {word.casefold() for word in _WORD.findall(query)}
    if not wanted:
        return list(notes) if not query.strip() else []
    held = [(note, {word.casefold() for word in _WORD.findall(f"{note.name} {note.text}")}) for note in notes]
    found = [(len(wanted & words), note) for note, words in held if wanted & words]
    return [note for _, note in sorted(found, key=lambda each: (-each[0], each[1].name))]
