"""Texts on the command line: as they stand, or as `@FILE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal.errors import ConfigInvalid

MOST_BYTES = 8 * 1024 * 1024

TextArgument: TypeAlias = Annotated[str, Parameter(name="TEXT", help="The text; @FILE for what a file holds.")]


def text_of(value: str) -> str:
    """Return the text that *value* stands for: `@FILE` is the file's, `@@…` is text that begins with one `@`.

    Raises:
        ConfigInvalid: The file cannot be read, or is no text.
    """
    if not value.startswith("@"):
        return value
    if value.startswith("@@"):
        return value[1:]
    path = Path(value[1:]).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as exc:
        raise ConfigInvalid(f"{str(path)!r} cannot be read: {exc.strerror or exc}; check the path behind `@`") from exc
    if len(data) > MOST_BYTES:
        raise ConfigInvalid(f"{str(path)!r} is longer than {MOST_BYTES:,} bytes; give a part of it")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise ConfigInvalid(f"{str(path)!r} is no UTF-8 text (byte {exc.start}); convert it first") from exc
