"""Reads the file of a blueprint: whatever lies at a path gives a text, or a finding that says why not."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import NamedTuple

from shoal.blueprints._model import Finding
from shoal.blueprints._report import listed

FILES = ("blueprint.toml", "agent.leviath")
"""Names of the file in a blueprint's folder; the first that is there is read."""

PEER_SUFFIX = ".leviath"
MAX_BYTES = 1_048_576
"""A file above this is refused unread."""


class Text(NamedTuple):
    """A file's *text*, and the *folder* that paths of the blueprint are relative to."""

    file: str
    text: str
    folder: Path


def read_file(path: str | os.PathLike[str], max_bytes: int) -> Text | Finding:
    """Return the text of the blueprint at *path*, a folder or a file."""
    given = Path(path)
    try:
        file = _file_in(given) if given.is_dir() else given
        if isinstance(file, Finding):
            return file
        if not file.is_file():
            what = "is no regular file" if file.exists() else "does not exist"
            return _finding("file-missing", given, f"{str(given)!r} {what}; name a blueprint's folder or its file")
        # The folder is where the file is named, not where a link to the file leads; as a real path it stays the same
        # when the working directory or a link changes.
        return _decoded(file, file.parent.resolve(), _bytes(file, max_bytes), max_bytes)
    except OSError as error:
        return _finding("file-unreadable", given, f"{str(given)!r} cannot be read: {error.strerror}; check it")


def _file_in(folder: Path) -> Path | Finding:
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    return _finding("file-missing", folder, f"the folder {str(folder)!r} has none of {listed(FILES)}; write the first")


def _bytes(file: Path, max_bytes: int) -> bytes:
    with file.open("rb") as stream:
        return stream.read(max_bytes + 1)


def _decoded(file: Path, folder: Path, data: bytes, max_bytes: int) -> Text | Finding:
    if len(data) > max_bytes:
        return _finding("file-too-big", file, f"{str(file)!r} has more than {max_bytes} bytes; put long texts in files")
    try:
        return Text(str(file), data.decode("utf-8"), folder)
    except UnicodeDecodeError as error:
        before = data[: error.start].rpartition(b"\n")[2].decode("utf-8")
        utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        found = "the file looks like UTF-16" if utf16 else f"the byte 0x{data[error.start]:02x} is no UTF-8"
        line = data.count(b"\n", 0, error.start) + 1
        message = f"{found}; save the file as UTF-8"
        return Finding("file-encoding", "error", message, str(file), line, len(before) + 1)


def _finding(id_: str, path: Path, message: str) -> Finding:
    return Finding(id_, "error", message, str(path))
