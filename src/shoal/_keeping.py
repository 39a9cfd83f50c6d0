"""How long runs are kept: the table `[journal]` of the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import final

import msgspec

from shoal._config import users_table
from shoal.errors import ConfigInvalid


@final
class Keeping(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long runs are kept.

    Args:
        keep_days: Days after which a tree of runs that are all over is deleted, above 0; `None` keeps everything.
        keep_failed: Trees in which a run ended with an error are kept in any case.
    """

    keep_days: float | None = None
    keep_failed: bool = False


def keeping_from(environ: Mapping[str, str] | None = None, workdir: Path | None = None) -> Keeping:
    """Return how long the user wants runs to be kept. A working directory, which may be a stranger's, has no say.

    Args:
        environ: The variables; `None` takes the process's.
        workdir: The working directory; `None` takes the process's.

    Raises:
        ConfigInvalid: A file cannot be read, or says what is of no use.
    """
    path, table = users_table("journal", environ, workdir)
    try:
        said = msgspec.convert(table, Keeping)
    except msgspec.ValidationError as exc:
        raise ConfigInvalid(f"`[journal]` in {str(path)!r} is of no use: {exc}; mend the file") from exc
    if said.keep_days is not None and not said.keep_days > 0:
        raise ConfigInvalid(f"`keep_days` in {str(path)!r} is {said.keep_days!r}; give days, more than 0")
    return said
