"""What a folder holds: one level of it, or all files below it that somebody would want to read."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, final

import msgspec

from shoal.runtime._paths import Also, PathRefused, location, open_inside
from shoal.runtime.tools._ignore import Rule, read_rules, verdict

_IGNORE_FILE = ".gitignore"
_IGNORE_BYTES = 1 << 20

Rules: TypeAlias = dict[Path, tuple[Rule, ...]]
"""The rules that stand in each folder."""
_Active: TypeAlias = list[tuple[tuple[str, ...], tuple[Rule, ...]]]


@final
class Listing(msgspec.Struct, frozen=True, gc=False):
    """What a folder holds.

    Args:
        names: Its names, sorted, as they are shown; folders end in `/`.
        left_out: How many more there are.
        not_text: How many have names that are no text.
        unreadable: How many folders below it could not be read.
    """

    names: tuple[str, ...]
    left_out: int = 0
    not_text: int = 0
    unreadable: int = 0


def shown_name(name: str) -> str | None:
    """Return *name* as a listing shows it: as a JSON string where it could be misread; `None` where it is no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    printable = name.isprintable()
    if printable and name == name.strip() and "\\" not in name and not name.startswith('"'):
        return name
    return json.dumps(name, ensure_ascii=not printable)


def list_folder(
    root: Path, path: str, *, recursive: bool, most: int, hidden: Path | None, also: Also | None = None
) -> Listing:
    """List *path*. Recursively, only files are listed, and hidden and ignored ones are left out.

    Args:
        root: The folder that is not left, a real path.
        path: The folder, relative to *root* or absolute.
        recursive: List all files below it.
        most: Most names that are listed.
        hidden: A folder that is left out; `None` for none.
        also: Says what outside *root* may be listed all the same; `None` for nothing.

    Raises:
        PathRefused: It cannot be opened, or is no folder.
    """
    out_of_sight = None if hidden is None else hidden.resolve()
    descriptor = open_inside(root, path, directory=True, also=also)
    try:
        top = location(descriptor, root / path)
        walk = _Walk(root, top, out_of_sight, also)
        found = (
            sorted(f"{Path(path, name)}" for name in walk.files(descriptor)) if recursive else walk.level(descriptor)
        )
    finally:
        os.close(descriptor)
    shown = [name for name in map(shown_name, found) if name is not None]
    return Listing(tuple(shown[:most]), max(0, len(shown) - most), len(found) - len(shown), walk.unreadable)


class _Walk:
    """A walk through a folder, by descriptor: one that is swapped for a link meanwhile is not followed."""

    def __init__(self, root: Path, top: Path, hidden: Path | None, also: Also | None) -> None:
        self.root = root
        self.also = also
        self.top = top
        self.hidden = hidden
        self.unreadable = 0

    def level(self, descriptor: int) -> list[str]:
        """Return the names in the folder, sorted."""
        with os.scandir(descriptor) as entries:
            return sorted(
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in entries
                if self.top / entry.name != self.hidden
            )

    def files(self, descriptor: int) -> Iterator[str]:
        """Yield the files below the folder, relative to it."""
        rules = _rules_above(self.root, self.top)
        for folder, folders, files, handle in os.fwalk(".", dir_fd=descriptor, onerror=self._missed):
            here = self.top / folder
            if _IGNORE_FILE in files:
                rules[here] = _rules_in(handle)
            active = _active(rules, here)
            folders[:] = [
                name
                for name in folders
                if name[0] != "." and not _ignored(active, name, folder=True) and here / name != self.hidden
            ]
            for name in files:
                if name[0] != "." and not _ignored(active, name) and self._readable(handle, here / name):
                    yield os.path.join(folder, name)  # noqa: PTH118 - what `os.fwalk` gives is a string

    def _missed(self, _error: OSError) -> None:
        self.unreadable += 1

    def _readable(self, folder: int, path: Path) -> bool:
        """Say whether *path* is a regular file, or a link to one that may be read."""
        try:
            mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return False
        if not stat.S_ISLNK(mode):
            return stat.S_ISREG(mode)
        real = Path(os.path.realpath(path))
        inside = self.root in real.parents or (self.also is not None and self.also(real))
        return inside and os.path.isfile(real)  # noqa: PTH113 - `Path.is_file` may raise


# --- what is ignored


def _rules_above(root: Path, top: Path) -> Rules:
    """Return the rules of the folders that *top* lies in; none where they ignore *top*: it was asked for by name."""
    way = [folder for folder in (top, *top.parents) if root in folder.parents]
    above = {folder.parent: _rules_of(root, folder.parent) for folder in way}
    wanted_anyway = any(_ignored(_active(above, folder.parent), folder.name, folder=True) for folder in way)
    return {} if wanted_anyway else above


def _rules_of(root: Path, folder: Path) -> tuple[Rule, ...]:
    try:
        descriptor = open_inside(root, str(folder), directory=True)
    except PathRefused:
        return ()
    try:
        return _rules_in(descriptor)
    finally:
        os.close(descriptor)


def _rules_in(folder: int) -> tuple[Rule, ...]:
    """Return the rules in an open folder; as with git, a link in their place counts as none."""
    try:
        handle = os.open(_IGNORE_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return ()
    with os.fdopen(handle, "rb") as file:
        return read_rules(file.read(_IGNORE_BYTES).decode("utf-8", "surrogateescape"))


def _active(rules: Rules, folder: Path) -> _Active:
    """Return the rules that count in *folder*, nearest first, each with the way from its place to *folder*."""
    places = ((place, rules.get(place)) for place in (folder, *folder.parents))
    return [(folder.relative_to(place).parts, found) for place, found in places if found]


def _ignored(active: _Active, name: str, *, folder: bool = False) -> bool:
    """Say whether the nearest rule that has an opinion of *name* ignores it."""
    for way, rules in active:
        said = verdict(rules, (*way, name), folder=folder)
        if said is not None:
            return said
    return False
