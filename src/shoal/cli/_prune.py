"""`shoal prune`: deletes old runs, which nothing else ever does."""

from __future__ import annotations

import re
import time
from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, journal_reader
from shoal.cli._print import print_json, say
from shoal.errors import ConfigInvalid
from shoal.runtime.journal import Pruned, prune

_UNITS = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([mhdw])")


def command(
    *,
    older_than: Annotated[str, Parameter(name="--older-than", help="Since when they are over: 30d, 12h, 90m, 2w.")],
    keep_failed: Annotated[bool, Parameter(name="--keep-failed", negative="", help="Leave trees with errors.")] = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Delete trees of runs that have all been over for a while, with what only they refer to, and shrink the file."""
    span = span_s(older_than)
    with journal_reader(journal) as reader:
        path = None if reader is None else reader.path
    if path is None:
        say("Nothing has run yet, so there is nothing to prune.")
        return 0
    pruned = prune(path, before=time.time() - span, keep_failed=keep_failed)
    if as_json:
        print_json({name: getattr(pruned, name) for name in Pruned.__struct_fields__})
    else:
        say(*_told(pruned))
    return 0


def span_s(text: str) -> float:
    """Return the seconds that *text* stands for, such as `30d`.

    Raises:
        ConfigInvalid: It is no span.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ConfigInvalid(
            f"{text!r} is no span of time; write a number and a unit, such as `90m`, `12h`, `30d`, `2w`"
        )
    return float(found[1]) * _UNITS[found[2]]


def _told(pruned: Pruned) -> list[str]:
    if not pruned.trees:
        return [f"Nothing is that old. The journal has {_size(pruned.bytes_after)}."]
    runs = f"{pruned.runs} run{'s' if pruned.runs != 1 else ''}"
    lines = [f"Deleted {runs}. The journal went from {_size(pruned.bytes_before)} to {_size(pruned.bytes_after)}."]
    if not pruned.shrunk:
        lines.append("Another process has it open, so its file may shrink the next time only.")
    return lines


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
