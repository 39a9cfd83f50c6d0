"""The built-in tools that write files; nothing outside the working directory, and no file is ever half written.

A file is written beside the one that it replaces and takes its place in one step, with the same mode. Links are
followed where they stay inside. A repository's own folder (`.git`) is left alone: what stands in there decides what git
runs, and so a permission to write files would be one to run programs.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
import unicodedata
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import anyio.to_thread

from shoal.runtime._paths import PathRefused, open_inside, refusal
from shoal.runtime.tools._schema import PATH, object_of, text_of
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = 0o666
_locks: weakref.WeakValueDictionary[Path, threading.Lock] = weakref.WeakValueDictionary()
_guard = threading.Lock()


@final
class EditRefused(Exception):
    """An edit that is not made; the message says why and what to do."""


# --- places


@final
class Place:
    """Where a file stands or is to stand: its folder, open, and its name there.

    Args:
        root: The working directory, a real path.
        path: The file, as somebody wrote it.
        make: Make the folders that are missing.

    Raises:
        PathRefused: It leads outside, or cannot be a file.
    """

    def __init__(self, root: Path, path: str, *, make: bool) -> None:
        if "\0" in path:
            raise PathRefused("name", f"{path!r} is no path: it holds a NUL character")
        try:
            self.real = (root / path).resolve()
        except (OSError, RuntimeError, UnicodeEncodeError) as exc:
            raise refusal(path, exc, writing=True) from exc
        if self.real == root or path.endswith("/"):
            raise PathRefused("directory", f"{path!r} is a folder")
        if root not in self.real.parents:
            raise PathRefused("outside", f"{path!r} leads outside the folder {root.name!r}; name a path inside it")
        if belongs_to_git(self.real.relative_to(root)):
            raise PathRefused("unreadable", f"{path!r} belongs to git itself, and is left to it")
        self.path = path
        self.name = self.real.name
        self.folder = self._open(root, make=make)

    def _open(self, root: Path, *, make: bool) -> int:
        """Open the folder, one part after the other and by descriptor: a link in the place of one is not followed."""
        folder = open_inside(root, ".", directory=True)
        try:
            for part in self.real.parent.relative_to(root).parts:
                below = self._step(folder, part, make=make)
                os.close(folder)
                folder = below
        except BaseException as exc:
            os.close(folder)
            if isinstance(exc, OSError | UnicodeEncodeError):
                raise refusal(self.path, exc, writing=True) from exc
            raise
        return folder

    def _step(self, folder: int, part: str, *, make: bool) -> int:
        if make:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
        return os.open(part, os.O_RDONLY | os.O_DIRECTORY | _SAFELY, dir_fd=folder)

    def close(self) -> None:
        """Close the folder."""
        os.close(self.folder)

    def stat(self) -> os.stat_result | None:
        """Return what stands there; `None` where nothing does.

        Raises:
            PathRefused: It is no regular file.
        """
        try:
            found = os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise refusal(self.path, exc, writing=True) from exc
        if stat.S_ISDIR(found.st_mode):
            raise PathRefused("directory", f"{self.path!r} is a folder")
        if not stat.S_ISREG(found.st_mode):
            raise PathRefused("special", f"{self.path!r} is a link, device, pipe or socket, not a file")
        return found

    def read(self, most_bytes: int) -> bytes:
        """Return what the file holds.

        Raises:
            PathRefused: It cannot be read, or is too big.
        """
        if self.stat() is None:
            raise PathRefused("missing", f"{self.path!r} does not exist")
        try:
            descriptor = os.open(self.name, os.O_RDONLY | _SAFELY, dir_fd=self.folder)
        except OSError as exc:
            raise refusal(self.path, exc) from exc
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise PathRefused("special", f"{self.path!r} is larger than {most_bytes:,} bytes, and is not edited")
        return data

    def replace(self, data: bytes, before: os.stat_result | None) -> None:
        """Put *data* in the place of what stands there, in one step.

        Args:
            data: The whole file.
            before: What stood there when it was looked at; `None` for nothing.

        Raises:
            PathRefused: It cannot be written, or somebody changed it meanwhile.
        """
        beside = f".shoal-{secrets.token_hex(8)}"
        try:
            if before is not None:
                # The folder would let us put another file there, whatever this one allows.
                os.close(os.open(self.name, os.O_WRONLY | _SAFELY, dir_fd=self.folder))
            self._write(beside, data, before)
        except OSError as exc:
            raise refusal(self.path, exc, writing=True) from exc

    def _write(self, beside: str, data: bytes, before: os.stat_result | None) -> None:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, _NEW, dir_fd=self.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                if before is not None:
                    os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
                file.flush()
                os.fsync(descriptor)
            self._same(before)
            os.replace(beside, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except BaseException:
            os.unlink(beside, dir_fd=self.folder)
            raise

    def _same(self, before: os.stat_result | None) -> None:
        if _identity(self.stat()) != _identity(before):
            raise PathRefused("special", f"{self.path!r} was changed by somebody else meanwhile; read it again")


def _identity(found: os.stat_result | None) -> tuple[int, ...] | None:
    return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def belongs_to_git(path: Path) -> bool:
    """Say whether *path* leads into a `.git`, by any file system's reading of case and of invisible characters."""
    return any(_plain(part) == ".git" for part in path.parts)


def _plain(part: str) -> str:
    plain = unicodedata.normalize("NFKC", part).casefold()
    return "".join(char for char in plain if unicodedata.category(char) != "Cf")


def _lock(path: Path) -> threading.Lock:
    """Return the lock of a file: two calls of one turn that change it do so one after the other."""
    with _guard:
        return _locks.setdefault(path, threading.Lock())


# --- writing


def written(root: Path, path: str, content: str) -> str:
    """Write *content* to *path*, and return what to say of it.

    Raises:
        PathRefused: It cannot be written.
    """
    data = content.encode()
    place = Place(root, path, make=True)
    try:
        with _lock(place.real):
            before = place.stat()
            place.replace(data, before)
    finally:
        place.close()
    how = "a new file" if before is None else f"in place of {before.st_size:,}"
    return f"{path}: {len(data):,} bytes written, {how}"


def added(root: Path, path: str, content: str, most_bytes: int) -> str:
    """Write *content* behind what stands at *path*, from a new line on, and return what to say of it.

    Raises:
        PathRefused: It cannot be written, or would have more than *most_bytes*.
    """
    place = Place(root, path, make=True)
    try:
        with _lock(place.real):
            before = place.stat()
            held = b"" if before is None else place.read(most_bytes)
            between = b"" if not held or held.endswith(b"\n") else b"\n"
            data = held + between + content.encode()
            if len(data) > most_bytes:
                raise PathRefused("special", f"{path!r} would have more than {most_bytes:,} bytes; begin another file")
            place.replace(data, before)
    finally:
        place.close()
    return f"{path}: {len(content.encode()):,} bytes added"


# --- editing


def edited(root: Path, path: str, old: str, new: str, most_bytes: int) -> str:
    """Put *new* in the place of *old* in the file at *path*, and return what to say of it.

    Raises:
        PathRefused: It cannot be read or written.
        EditRefused: *old* does not stand there once, or the file is no text.
    """
    place = Place(root, path, make=False)
    try:
        with _lock(place.real):
            before = place.stat()
            data = place.read(most_bytes)
            changed, line = change(data, path, old, new)
            place.replace(changed, before)
    finally:
        place.close()
    return f"{path}: changed at line {line}"


def change(data: bytes, path: str, old: str, new: str) -> tuple[bytes, int]:
    """Return *data* with *new* in the place of *old*, and the line, from 1, at which that begins.

    Lines that all end in CRLF keep doing so, whichever line ends *old* and *new* have. In a file that is not UTF-8 only
    ASCII is put in the place of ASCII, which leaves the rest as it is.

    Raises:
        EditRefused: *old* does not stand there once, or the file is no text.
    """
    if b"\0" in data:
        raise EditRefused(f"{path!r} is binary, not text")
    if b"\n" in data and data.count(b"\n") == data.count(b"\r\n"):
        old, new = _with_crlf(old), _with_crlf(new)
    if not (old.isascii() and new.isascii()) and not _is_utf8(data):
        raise EditRefused(f"{path!r} is not UTF-8; in such a file only ASCII text is replaced by ASCII text")
    if old == new:
        raise EditRefused("`old_str` and `new_str` are the same, so nothing would change")
    wanted = old.encode()
    at = data.find(wanted)
    if at < 0:
        raise EditRefused(_not_there(data, path, old))
    count = _count(data, wanted)
    if count > 1:
        raise EditRefused(f"`old_str` stands {count} times in {path!r}; give more of what is around the place you mean")
    return data[:at] + new.encode() + data[at + len(wanted) :], data.count(b"\n", 0, at) + 1


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _count(data: bytes, wanted: bytes) -> int:
    """Return in how many places *wanted* stands; they may overlap."""
    count, at = 0, data.find(wanted)
    while at >= 0:
        count, at = count + 1, data.find(wanted, at + 1)
    return count


def _not_there(data: bytes, path: str, old: str) -> str:
    if b" ".join(old.encode().split()) in b" ".join(data.split()):
        return f"`old_str` stands in {path!r} with other blanks or line ends; read the file and copy it exactly"
    return f"`old_str` does not stand in {path!r}; read the file and copy it exactly"


# --- what models see


async def _in_thread(context: ToolContext, work: Callable[[], str]) -> ToolResult:
    try:
        return ToolResult.of(await anyio.to_thread.run_sync(work, limiter=context.threads))
    except (PathRefused, EditRefused) as refused:
        return ToolResult.error(str(refused))


async def _write_file(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    path, content = str(args["path"]), str(args["content"])
    return await _in_thread(context, lambda: written(context.workdir, path, content))


async def _edit_file(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
    path, old, new = str(args["path"]), str(args["old_str"]), str(args["new_str"])
    return await _in_thread(context, lambda: edited(context.workdir, path, old, new, context.edit_bytes))


WRITE_FILE_TOOL = Tool(
    "write_file",
    "Write a whole text file, a new one or in the place of another; folders that are missing are made.",
    object_of({"path": PATH, "content": text_of("All that the file is to hold.")}, "path", "content"),
    _write_file,
    permission="ask",
    effects=Effects(writes=True),
)
"""Writes a file; what it may do, a redirection of a shell line may do as well."""

WRITING_TOOLS = (
    WRITE_FILE_TOOL,
    Tool(
        "edit_file",
        "Replace a piece of a text file. The piece must stand there exactly once.",
        object_of(
            {
                "path": PATH,
                "old_str": text_of("The piece, exactly as it stands in the file.", minLength=1),
                "new_str": text_of("What is to stand there instead."),
            },
            "path",
            "old_str",
            "new_str",
        ),
        _edit_file,
        permission="ask",
        effects=Effects(writes=True),
    ),
)
"""Tools that write files."""
