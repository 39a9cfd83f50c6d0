"""`shoal stages`: what each stage of a run used, and each region in it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, RunArgument, run_reader
from shoal.cli._print import line, print_json, print_table, seconds, usd
from shoal.runtime import Ledger, StageRow, Tally, ledger_of


def command(
    run: RunArgument,
    /,
    *,
    regions: Annotated[bool, Parameter(name="--regions", negative="", help="A row for each region too.")] = False,
    tree: Annotated[bool, Parameter(name="--tree", negative="", help="Sum up the whole tree of the run.")] = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show what each stage of a run used."""
    with run_reader(run, journal) as (reader, row):
        rows = reader.runs(root=row.root) if tree else [row]
        ledger = ledger_of(event for each in rows for event in reader.read(each.run_id))
    if as_json:
        print_json(ledger.plain()["stages"])
        return 0
    print_table(
        ("stage", "visits", "calls", "in", "cached", "written", "out", "cost", "hits", "peak", "tools", "time"),
        _rows(ledger, regions=regions),
        right=("visits", "calls", "in", "cached", "written", "out", "cost", "hits", "peak", "tools", "time"),
    )
    return 0


def _rows(ledger: Ledger, *, regions: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for stage in ledger.stages.values():
        rows.append(_stage(stage))
        if regions:
            rows.extend(
                (f"  {line(name)}", "", *_figures(row), str(row.high_water_tokens or ""), "", "")
                for name, row in stage.regions.items()
            )
    return [*rows, ("total", "", *_figures(ledger.total), "", "", "")]


def _stage(stage: StageRow) -> tuple[str, ...]:
    return (
        line(stage.stage),
        str(stage.visits),
        *_figures(stage),
        "",
        str(stage.tool_calls),
        seconds(stage.seconds),
    )


def _figures(tally: Tally) -> tuple[str, ...]:
    usage, hits = tally.usage, tally.cache_hit_ratio
    return (
        str(tally.calls),
        str(usage.input),
        str(usage.cache_read),
        str(usage.cache_write + usage.cache_write_long),
        str(usage.output),
        usd(tally.cost),
        "" if hits is None else f"{hits:.0%}",
    )
