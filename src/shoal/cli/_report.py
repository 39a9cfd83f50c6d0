"""`shoal report`: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, RunArgument, run_reader
from shoal.cli._print import print_json, print_text
from shoal.errors import ConfigInvalid
from shoal.observability import figures_of, html_of


def command(
    run: RunArgument,
    /,
    *,
    output: Annotated[Path | None, Parameter(help="The file to write; `RUN.html` unless given.")] = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Write a run as one HTML file: its stages over time, its window by region, what each region cost, its tree."""
    with run_reader(run, journal) as (reader, row):
        figures = figures_of(reader, row.run_id)
    if as_json:
        print_json(figures)
        return 0
    page = html_of(figures)
    path = output or Path(f"{row.run_id}.html")
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as exc:
        raise ConfigInvalid(f"{str(path)!r} cannot be written: {exc.strerror or exc}") from exc
    print_text(f"Wrote {path}. Open it in a browser; it needs no network.")
    return 0
