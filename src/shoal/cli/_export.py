"""`shoal export`: writes a tree of runs to a file for another machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, RunArgument, run_reader
from shoal.errors import ConfigInvalid
from shoal.runtime.journal import export_tree


def command(
    run: RunArgument,
    /,
    *,
    output: Annotated[Path | None, Parameter(name="--output", help="The file; standard output unless named.")] = None,
    journal: JournalOption = None,
) -> int:
    """Write the tree that a run belongs to as JSON lines, with all that it is made of; `import` reads them."""
    with run_reader(run, journal) as (reader, row):
        lines = export_tree(reader, row.run_id)
        if output is None:
            sys.stdout.flush()
            for line in lines:
                sys.stdout.write(line.decode())
            return 0
        half = output.with_name(f".{output.name}.part")
        try:
            with half.open("wb") as file:
                half.chmod(0o600)  # it says what the runs were told
                file.writelines(lines)
            half.replace(output)
        except OSError as exc:
            raise ConfigInvalid(f"{str(output)!r} cannot be written: {exc.strerror or exc}") from exc
    return 0
