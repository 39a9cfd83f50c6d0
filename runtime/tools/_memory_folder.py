"""The memory that ships: a folder of Markdown files, each of them a note."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import final

import anyio.to_thread

from shoal.errors import ConfigInvalid
from shoal.runtime._paths import PathRefused, open_inside
from shoal.runtime.tools._notes import Note, NoteRefused, ranked, summary
from shoal.runtime.tools._writing import added, written

NOTE_BYTES = 256 * 1024
"""Largest note; of a longer file the beginning counts."""
_MOST_NOTES = 1_000
_ENDING = ".md"
_NAME = re.compile(r"(?:[\w][\w .-]{0,99}/){0,4}[\w][\w .-]{0,99}")


@final
class FolderMemory:
    """A memory that is a folder of Markdown files: each is a note, named by its path without the ending.

    Args:
        folder: The folder; it is made where it is missing. Nothing outside it is read or written.

    Raises:
        ConfigInvalid: It cannot be a folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        path = Path(folder).expanduser()
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            why = exc.strerror or exc
            raise ConfigInvalid(f"the memory {str(path)!r} cannot be a folder ({why}); name another") from exc
        self._folder = path.resolve()

    def __repr__(self) -> str:
        return f"<FolderMemory {str(self._folder)!r}>"

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    async def resident(self, budget_tokens: int) -> str:
        """Return the notes, by name, as far as they fit; of those that do not, the names, as far as these fit."""
        notes = await anyio.to_thread.run_sync(lambda: list(self._notes()))
        return summary(notes, budget_tokens)

    async def recall(self, query: str) -> Sequence[Note]:
        """Return the notes that hold words of *query*, those with most of them first."""
        notes = await anyio.to_thread.run_sync(lambda: list(self._notes()))
        return ranked(notes, query)

    async def remember(self, name: str, text: str, *, append: bool = False) -> None:
        """Keep a note.

        Raises:
            NoteRefused: It has no name that a file can have, is too long, or cannot be written.
        """
        if not _NAME.fullmatch(name):
            raise NoteRefused(
                f"{name!r} cannot name a note; use letters, digits, blanks, `.`, `_`, `-`, and `/` between"
            )
        if len(text.encode()) > NOTE_BYTES:
            raise NoteRefused(f"the note {name!r} would have more than {NOTE_BYTES:,} bytes; write several")
        keep = partial(added, most_bytes=NOTE_BYTES) if append else written
        try:
            await anyio.to_thread.run_sync(lambda: keep(self._folder, f"{name}{_ENDING}", text))
        except PathRefused as refused:
            raise NoteRefused(str(refused)) from refused

    def _notes(self) -> Iterator[Note]:
        """Yield the notes by name; links are not followed, and what cannot be read is no note."""
        found: list[str] = []
        for folder, below, files in os.walk(self._folder):
            below[:] = [name for name in below if not name.startswith(".")]
            at = Path(folder).relative_to(self._folder)
            found += [(at / name).as_posix() for name in files if name.endswith(_ENDING) and not name.startswith(".")]
        for path in sorted(found)[:_MOST_NOTES]:
            try:
                with os.fdopen(open_inside(self._folder, path), "rb") as file:
                    data = file.read(NOTE_BYTES)
            except PathRefused:
                continue
            yield Note(path.removesuffix(_ENDING), data.decode("utf-8", "replace"))
