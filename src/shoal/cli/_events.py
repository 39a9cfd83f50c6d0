"""`shoal events`: what a run is made of, one event a line."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from shoal.cli._places import JournalOption, JsonOption, RunArgument, run_reader
from shoal.cli._print import line, print_json, say
from shoal.runtime import Event

_MOST_CHARS = 160


def command(
    run: RunArgument,
    /,
    *,
    after: Annotated[int, Parameter(name="--after", help="Only events behind this seq.")] = 0,
    kind: Annotated[
        tuple[str, ...], Parameter(name="--kind", negative="", help="Only events of this kind, such as StageEntered.")
    ] = (),
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Print the events of a run, oldest first."""
    with run_reader(run, journal) as (reader, row):
        for event in reader.read(row.run_id, after=after):
            if kind and event.kind not in kind:
                continue
            if as_json:
                print_json(event.plain())
            else:
                say(_line(event))
    return 0


def _line(event: Event) -> Text:
    text = Text(f"{event.seq:>5}  {event.time:%H:%M:%S.%f}"[:-3], "dim")
    text.append(f"  {event.kind:<20}", "bold not dim")
    payload = event.plain()["payload"]
    said = "  ".join(f"{name}={_value(value)}" for name, value in payload.items() if value not in (None, "", [], {}))
    return text.append(f"  {line(said, _MOST_CHARS)}", "not dim")


def _value(value: object) -> str:
    return value if isinstance(value, str) else repr(value)
