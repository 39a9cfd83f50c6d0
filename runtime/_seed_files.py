"""The paths of seeds: checked before anything is read, and again on what was really opened.

A path lies in the run's working directory or, behind `blueprint:`, in the blueprint's own folder. What the user grants
outside the working directory widens paths of the first kind only, and never where a script is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, final

from shoal.blueprints import FilesSeed, GlobSeed, Region, ScriptSeed
from shoal.errors import PartRefused, SpawnRefused
from shoal.providers import sniff
from shoal.runtime._attachment import Attachment, Prepared, prepare
from shoal.runtime._paths import Also, PathRefused, open_inside
from shoal.runtime.scripts import Script
from shoal.runtime.tools import shown_name

if TYPE_CHECKING:
    from shoal.runtime._seeds import Sources

OWN_FOLDER = "blueprint:"


@final
@dataclass(frozen=True, slots=True)
class Found:
    """What a seed's paths lead to: files, in order, as the seed would name them, or a script, read."""

    paths: tuple[str, ...] = ()
    script: Script | None = None


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """A path of a seed: the folder that it may not leave, the path below it, and what outside is allowed."""

    root: Path
    below: str
    also: Also | None
    folder: str


def look_up(region: Region, sources: Sources) -> Found:
    """Check the paths of a region's seed and return what they lead to; call it in a thread.

    Raises:
        SpawnRefused: One leads outside, or the script cannot be read.
    """
    match region.seed:
        case FilesSeed(paths):
            for path in paths:
                _check(region, path, sources)
            return Found(paths)
        case GlobSeed(pattern):
            return Found(_matches(region, pattern, sources))
        case ScriptSeed(path):
            return Found(script=sources.scripts.get(path) or _read_script(region, path, sources))
        case _:
            raise AssertionError(f"{region.seed!r} has no paths")


def read_seed(path: str, sources: Sources) -> str | Prepared:
    """Return what the file at *path*, a path of a seed, holds: its text, or a part where it is anything else.

    Raises:
        PathRefused: It cannot be read, or is too large.
    """
    place = _place(path, sources)
    data = _bytes(path, place, max(sources.most_bytes, sources.part_bytes))
    if sniff(data) == "text/plain":
        return _text(path, data, sources.most_bytes)
    try:
        return prepare(Attachment(data, shown_name(path) or path), sources.part_bytes)
    except PartRefused as refused:
        raise PathRefused("special", str(refused)) from refused


def _bytes(path: str, place: _Place, most_bytes: int) -> bytes:
    """Return the first bytes of the file at *path*, one more than *most_bytes* where it has more."""
    try:
        descriptor = open_inside(place.root, place.below, also=place.also)
    except PathRefused as refused:
        # What is said of a path below its folder is meant of the path as it was written.
        raise PathRefused(refused.why, str(refused).replace(repr(place.below), repr(path), 1)) from refused
    with os.fdopen(descriptor, "rb") as file:
        return file.read(most_bytes + 1)


def _text(path: str, data: bytes, most_bytes: int) -> str:
    if len(data) > most_bytes:
        raise PathRefused("special", f"{path!r} is larger than {most_bytes:,} bytes; raise `seed_bytes`")
    if b"\0" in data:
        raise PathRefused("special", f"{path!r} is binary, not text")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise PathRefused("special", f"{path!r} is not UTF-8 text") from exc


# --- containment


def _place(path: str, sources: Sources, *, script: bool = False) -> _Place:
    if not path.startswith(OWN_FOLDER):
        return _Place(sources.workdir, path, None if script else sources.also, "the working directory")
    folder = sources.blueprint.folder
    if folder is None:
        raise SpawnRefused(f"{path!r} means the blueprint's own folder and it has none; build it with `folder=`")
    return _Place(folder.resolve(), path.removeprefix(OWN_FOLDER), None, "the blueprint's folder")


def _check(region: Region, path: str, sources: Sources) -> None:
    """Refuse a path that leads outside."""
    place = _place(path, sources)
    real = _resolved(region, path, place.root / place.below)
    if not _is_inside(place, real):
        raise _outside(region, path, place)


def _resolved(region: Region, path: str, joined: Path) -> Path:
    try:
        return joined.resolve()
    except (OSError, RuntimeError, ValueError) as exc:
        raise SpawnRefused(f"the seed of region {region.name!r} names {path!r}, which is no path: {exc}") from exc


def _is_inside(place: _Place, real: Path) -> bool:
    return real == place.root or place.root in real.parents or (place.also is not None and place.also(real))


def _outside(region: Region, path: str, place: _Place) -> SpawnRefused:
    wider = "" if place.also is None else ", and what is granted under `read_paths`"
    return SpawnRefused(
        f"the seed of region {region.name!r} names {path!r}, which leads outside {place.folder}{wider}; "
        "name a path inside it"
    )


# --- globs


def _matches(region: Region, pattern: str, sources: Sources) -> tuple[str, ...]:
    """Return the files that *pattern* matches, sorted, as somebody would write them."""
    place = _place(pattern, sources)
    prefix = pattern[: len(pattern) - len(place.below)]
    parts = PurePosixPath(place.below).parts
    wild = next((i for i, part in enumerate(parts) if any(mark in part for mark in "*?[")), len(parts))
    base = _resolved(region, pattern, place.root.joinpath(*parts[:wild]))
    # Where something outside is granted, each match is looked at for itself.
    if ".." in parts[wild:] or not (_is_inside(place, base) or place.also is not None):
        raise _outside(region, pattern, place)
    if not parts:
        raise SpawnRefused(f"the seed of region {region.name!r} has an empty glob, which is none; write a pattern")
    if wild == len(parts):
        if not _is_inside(place, base):
            raise _outside(region, pattern, place)
        return (pattern,) if os.path.lexists(place.root / place.below) and not base.is_dir() else ()
    rest = (*parts[wild:], "*") if parts[-1] == "**" else parts[wild:]  # all files below, and not all folders
    found: list[str] = []
    try:
        for match in _files(base, "/".join(rest)):
            name = f"{prefix}{PurePosixPath(*parts[:wild], *match.relative_to(base).parts)}"
            if not _is_inside(place, _resolved(region, name, match)):
                raise _outside(region, name, place)
            found.append(name)
            if len(found) > sources.most_files:
                raise SpawnRefused(
                    f"the glob {pattern!r} of region {region.name!r} matches more than {sources.most_files} files; "
                    "narrow it, or raise the limit `list_entries`"
                )
    except ValueError as exc:
        raise SpawnRefused(
            f"the seed of region {region.name!r} has the glob {pattern!r}, which is none: {exc}"
        ) from exc
    return tuple(sorted(found))


def _files(base: Path, pattern: str) -> Iterator[Path]:
    for match in base.glob(pattern):
        if not os.path.isdir(match):  # noqa: PTH112 - what cannot be looked at is said when it is read
            yield match


# --- scripts


def _read_script(region: Region, path: str, sources: Sources) -> Script:
    place = _place(path, sources, script=True)
    if not path.endswith(".py"):
        raise SpawnRefused(
            f"the seed of region {region.name!r} names {path!r}, which is no Python; port the script and name a file "
            "that ends in `.py`"
        )
    try:
        return Script(path, _text(path, _bytes(path, place, sources.most_bytes), sources.most_bytes))
    except PathRefused as refused:
        raise SpawnRefused(f"the script of region {region.name!r} cannot be read: {refused}") from refused
