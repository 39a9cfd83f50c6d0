"""Files that stay inside a folder, checked on what was really opened.

A path is resolved, opened without following a last link, and then the open descriptor is asked where it is: between
check and use there is no moment in which a link could be swapped.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, final

Why: TypeAlias = Literal["outside", "missing", "directory", "file", "special", "unreadable", "loop", "name"]


@final
class PathRefused(Exception):
    """A path that is not opened: *why* in one word, the message for whoever asked."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why: Why = why


Also: TypeAlias = Callable[[Path], bool]
"""Says of a place outside a folder, by its real path, that it may be read all the same."""


def open_inside(root: Path, path: str, *, directory: bool = False, also: Also | None = None) -> int:
    """Open *path*, relative to *root* or absolute, for reading, and return the descriptor.

    Args:
        root: A real path (no links in it). What is opened lies inside it.
        path: The path, as somebody wrote it.
        directory: Open a folder instead of a regular file.
        also: Says what outside *root* may be opened all the same; `None` for nothing.

    Raises:
        PathRefused: It leads outside, does not exist, is no regular file (or no folder), or cannot be read.
    """
    if "\0" in path:
        raise PathRefused("name", f"{path!r} is no path: it holds a NUL character")
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if directory else 0)
    try:
        real = (root / path).resolve()
        _inside(root, real, path, also)
        descriptor = os.open(real, flags)
    except (OSError, RuntimeError, UnicodeEncodeError) as exc:
        raise refusal(path, exc, directory=directory) from exc
    try:
        _inside(root, location(descriptor, real), path, also)
        _right_kind(descriptor, path, directory=directory)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _inside(root: Path, real: Path, path: str, also: Also | None) -> None:
    if real != root and root not in real.parents and not (also is not None and also(real)):
        raise PathRefused("outside", f"{path!r} leads outside the folder {root.name!r}; name a path inside it")


def location(descriptor: int, opened: Path) -> Path:
    """Return where *descriptor* is by the system's own word; *opened* is the path by which it was opened."""
    if sys.platform == "darwin":  # pragma: no cover - checked on macOS
        import fcntl  # noqa: PLC0415 - not on every system

        return Path(os.fsdecode(fcntl.fcntl(descriptor, 50, b"\0" * 1024).rstrip(b"\0")))  # F_GETPATH
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - no detour through a `Path`
    except FileNotFoundError:
        # Without /proc nothing can be asked; then the path is resolved again, with the file already open.
        return opened.resolve()


def _right_kind(descriptor: int, path: str, *, directory: bool) -> None:
    mode = os.fstat(descriptor).st_mode
    if directory or stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        raise PathRefused("directory", f"{path!r} is a folder")
    raise PathRefused("special", f"{path!r} is a device, pipe or socket, not a file")


def refusal(path: str, exc: Exception, *, directory: bool = False, writing: bool = False) -> PathRefused:
    """Return what the system's error *exc* about *path* means, for whoever asked.

    Args:
        path: The path, as somebody wrote it.
        exc: The error.
        directory: A folder was asked for.
        writing: It was to be written.
    """
    number = exc.errno if isinstance(exc, OSError) else None
    done = "written" if writing else "read"
    match number:
        case errno.ENOENT:
            return PathRefused("missing", f"{path!r} does not exist")
        case errno.ENOTDIR if directory:
            return PathRefused("file", f"{path!r} is not a folder")
        case errno.ENOTDIR:
            return PathRefused("missing", f"{path!r} does not exist: a part of it is a file")
        case errno.EACCES | errno.EPERM:
            return PathRefused(
                "unreadable", f"{path!r} cannot be {'written' if writing else 'read'}: permission denied"
            )
        case errno.ELOOP:
            return PathRefused("loop", f"{path!r} is a link that was not there a moment ago, or a loop of links")
        case errno.EINVAL:
            # What was a link when the path was walked was none any more when it was read.
            return PathRefused("loop", f"{path!r} was swapped for something else while it was opened")
        case errno.ENXIO | errno.ENODEV:
            return PathRefused("special", f"{path!r} is a device, pipe or socket, not a file")
        case errno.ENAMETOOLONG:
            return PathRefused("name", f"{path[:60]!r}… is longer than a path can be")
        case None if isinstance(exc, UnicodeEncodeError):
            return PathRefused("name", f"{path!r} is no path: it holds half a character")
        case None:
            return PathRefused("loop", f"{path!r} is a loop of links")
        case _:
            return PathRefused("unreadable", f"{path!r} cannot be {done}: {os.strerror(number)}")
