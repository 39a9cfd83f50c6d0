"""`shoal trace export`: the trace of a tree of runs, as other programs read it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from shoal.cli._places import JournalOption, RunArgument, run_reader
from shoal.cli._print import print_text
from shoal.errors import ConfigInvalid
from shoal.observability import export_trace, render_trace, trace_of

JAEGER = "http://127.0.0.1:4318/v1/traces"
"""Where a Jaeger on this machine takes OTLP."""

app = App(name="trace", help="Export the spans of a tree of runs.", default_parameter=Parameter(negative=""))


@app.command
def export(
    run: RunArgument,
    /,
    *,
    to: Annotated[
        Literal["otlp-json", "jaeger", "text"],
        Parameter(
            name="--format",
            help="`otlp-json` for collectors, `jaeger` for the upload of Jaeger's page, `text` to read.",
        ),
    ] = "otlp-json",
    output: Annotated[Path | None, Parameter(help="The file to write; standard output unless given.")] = None,
    journal: JournalOption = None,
) -> int:
    """Write the trace of the whole tree that a run belongs to."""
    with run_reader(run, journal) as (reader, row):
        if to == "text":
            data = (render_trace(trace_of(reader, row.run_id)) + "\n").encode()
        else:
            data = export_trace(reader, row.run_id, to)
    if output is not None:
        try:
            output.write_bytes(data)
        except OSError as exc:
            raise ConfigInvalid(f"{str(output)!r} cannot be written: {exc.strerror or exc}") from exc
    elif to == "text":
        print_text(data.decode().rstrip("\n"))
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    return 0
