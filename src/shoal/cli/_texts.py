"""Texts on the command line: as they stand, or as `@FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal.errors import ConfigInvalid
from shoal.providers import sniff
from shoal.runtime import Attachment, SeedValue

MOST_BYTES = 8 * 1024 * 1024

TextArgument: TypeAlias = Annotated[str, Parameter(name="TEXT", help="The text; @FILE for what a file holds.")]


def text_of(value: str) -> str:
    """Return the text that *value* stands for: `@FILE` is the file's, `@@…` is text that begins with one `@`.

    Raises:
        ConfigInvalid: The file cannot be read, or is no text.
    """
    path = _path_of(value)
    if path is not None:
        return _text(path, _bytes(path))
    return value[1:] if value.startswith("@@") else value


def value_of(value: str) -> SeedValue:
    """Return what *value* stands for, as `text_of` does; a file that is an image, a recording or a PDF is a part.

    Raises:
        ConfigInvalid: The file cannot be read, or is neither text nor one of those.
    """
    path = _path_of(value)
    if path is None:
        return text_of(value)
    data = _bytes(path)
    mime = sniff(data)
    if mime.startswith(("image/", "audio/", "video/")) or mime == "application/pdf":
        return Attachment.read(path)
    return _text(path, data)


def _path_of(value: str) -> Path | None:
    """Return the file that *value* names; `None` where it is text."""
    named = value.startswith("@") and not value.startswith("@@")
    return Path(value[1:]).expanduser() if named else None


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as exc:
        raise ConfigInvalid(f"{str(path)!r} cannot be read: {exc.strerror or exc}; check the path behind `@`") from exc


def _text(path: Path, data: bytes) -> str:
    if len(data) > MOST_BYTES:
        raise ConfigInvalid(f"{str(path)!r} is longer than {MOST_BYTES:,} bytes; give a part of it")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(f"{str(path)!r} is no UTF-8 text (byte {exc.start}); convert it first") from exc
