"""`shoal stages`: what each stage of a run used, and each region in it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, RunArgument, run_reader
from shoal.cli._print import line, print_json, print_table, say, seconds, usd
from shoal.errors import ConfigInvalid
from shoal.runtime import Ledger, RegionMove, RegionRow, StageRow, Tally, account_of

_HEADS = (
    "stage",
    "visits",
    "calls",
    "in",
    "cached",
    "written",
    "out",
    "cost",
    "hits",
    "peak",
    "budget",
    "tools",
    "time",
)
_MOVE_HEADS = ("transition", "condition", "cached before", "cached after", "sent anew", "lost", "cost")


def command(
    run: RunArgument,
    /,
    *,
    regions: Annotated[bool, Parameter(name="--regions", negative="", help="A row for each region too.")] = False,
    tree: Annotated[bool, Parameter(name="--tree", negative="", help="Sum up the whole tree of the run.")] = False,
    transitions: Annotated[
        bool, Parameter(name="--transitions", negative="", help="What each change of stage cost, instead.")
    ] = False,
    as_csv: Annotated[bool, Parameter(name="--csv", negative="", help="Print CSV, regions included.")] = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show what each stage of a run used."""
    if as_csv and as_json:
        raise ConfigInvalid("`--csv` and `--json` exclude each other; give one of them")
    with run_reader(run, journal) as (reader, row):
        rows = reader.runs(root=row.root) if tree else [row]
        ledger = account_of(reader, (each.run_id for each in rows))
    if as_csv:
        say((ledger.transitions_csv() if transitions else ledger.csv()).rstrip("\n"))
    elif as_json:
        print_json(ledger.plain()["transitions" if transitions else "stages"])
    elif transitions:
        _print_transitions(ledger, regions=regions)
    else:
        _print_stages(ledger, regions=regions)
    return 0


def _print_stages(ledger: Ledger, *, regions: bool) -> None:
    print_table(_HEADS, _rows(ledger, regions=regions), right=_HEADS[1:])


def _print_transitions(ledger: Ledger, *, regions: bool) -> None:
    rows: list[tuple[str, ...]] = []
    for move in ledger.transitions:
        name = line(f"{move.source} → {move.target or 'the end'}")
        rows.append(
            (
                name,
                line(move.condition),
                str(move.cached_before),
                str(move.cached_after),
                str(move.uncached_after),
                str(move.cache_tokens_lost),
                usd(move.cost),
            )
        )
        if regions:
            rows += [_moved(name, region) for name, region in move.regions.items()]
    if rows:
        print_table(_MOVE_HEADS, rows, right=_MOVE_HEADS[2:])
    else:
        say("It changed no stage.")


def _moved(name: str, move: RegionMove) -> tuple[str, ...]:
    lost = str(move.cache_tokens_lost)
    return (f"  {line(name)}", "", str(move.cached_before), str(move.cached_after), "", lost, "")


def _rows(ledger: Ledger, *, regions: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for stage in ledger.stages.values():
        rows.append(_stage(stage))
        if regions:
            rows += [_region(name, row) for name, row in stage.regions.items()]
    return [*rows, ("total", "", *_figures(ledger.total), "", "", "", "")]


def _stage(stage: StageRow) -> tuple[str, ...]:
    return (
        line(stage.stage),
        str(stage.visits),
        *_figures(stage),
        "",
        "",
        str(stage.tool_calls),
        seconds(stage.seconds),
    )


def _region(name: str, row: RegionRow) -> tuple[str, ...]:
    peak, budget = str(row.high_water_tokens or ""), str(row.budget_tokens or "")
    return (f"  {line(name)}", "", *_figures(row), peak, budget, "", "")


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
