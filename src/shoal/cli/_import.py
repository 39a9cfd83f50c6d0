"""`shoal import`: takes a tree of runs over that another machine exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, journal_file
from shoal.cli._print import print_json, say
from shoal.errors import ConfigInvalid
from shoal.runtime.journal import import_tree


def command(
    file: Annotated[Path, Parameter(name="FILE", help="What `shoal export` wrote.")],
    /,
    *,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Put an exported tree of runs into the journal, all of it or nothing."""
    try:
        with file.open("rb") as lines:
            root = import_tree(journal_file(journal), lines)
    except OSError as exc:
        raise ConfigInvalid(f"{str(file)!r} cannot be read: {exc.strerror or exc}") from exc
    if as_json:
        print_json({"run_id": root})
    else:
        say(f"Imported the tree of run {root}; `shoal tree {root}` shows it.")
    return 0
