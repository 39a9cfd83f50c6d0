"""`shoal runs`: the runs of a journal by what they used."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, journal_reader, status_of
from shoal.cli._print import line, print_json, print_table, say, usd
from shoal.cli._where import Figures, question_of
from shoal.runtime import Ledger, RunRow, Tally, ledger_of, plain_usage

_HEADS = ("run", "name", "status", "calls", "in", "out", "cost", "title")


def command(
    *,
    where: Annotated[
        str | None,
        Parameter(help='A question about figures, such as "region.codebase.cost_usd > 0.5 and status = complete".'),
    ] = None,
    roots: Annotated[bool, Parameter(name="--roots", negative="", help="Only runs that no other run spawned.")] = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """List runs with what they used, all or those that a question holds for."""
    question = None if where is None else question_of(where)
    found: list[tuple[RunRow, Figures]] = []
    with journal_reader(journal) as reader:
        if reader is not None:
            owners = reader.owners()
            for row in reader.runs():
                if roots and row.parent is not None:
                    continue
                figures = figures_of_run(row, status_of(row, owners), ledger_of(reader.read(row.run_id)))
                if question is None or question(figures):
                    found.append((row, figures))
    if as_json:
        print_json([{"run_id": row.run_id, **_jsonable(figures)} for row, figures in found])
    elif not found:
        say("No run is like that." if where else "Nothing has run yet; `shoal run` makes the first.")
    else:
        print_table(_HEADS, [_row(row, figures) for row, figures in found], right=("calls", "in", "out", "cost"))
    return 0


def figures_of_run(row: RunRow, status: str, ledger: Ledger) -> Figures:
    """Return the figures of a run by name, those of regions summed over its stages."""
    regions: dict[str, Tally] = {}
    peaks: dict[str, int] = {}
    for stage in ledger.stages.values():
        for name, region in stage.regions.items():
            known = regions.setdefault(name, Tally())
            known.usage = known.usage + region.usage
            known.calls += region.calls
            known.cost = None if known.cost is None or region.cost is None else known.cost + region.cost
            peaks[name] = max(peaks.get(name, 0), region.high_water_tokens)
    return {
        "name": row.name,
        "title": row.title or "",
        "status": status,
        **_figures(ledger.total),
        "seconds": Decimal(str(round(sum(stage.seconds for stage in ledger.stages.values()), 6))),
        "region": {name: {**_figures(t), "high_water_tokens": peaks[name]} for name, t in regions.items()},
        "stage": {
            stage.stage: {
                **_figures(stage),
                "visits": stage.visits,
                "tool_calls": stage.tool_calls,
                "seconds": Decimal(str(round(stage.seconds, 6))),
            }
            for stage in ledger.stages.values()
        },
    }


def _figures(tally: Tally) -> dict[str, Any]:
    hit = tally.cache_hit_ratio
    return {
        "calls": tally.calls,
        **plain_usage(tally.usage),
        "cost_usd": tally.cost,
        "cache_hit_ratio": None if hit is None else Decimal(str(round(hit, 4))),
    }


def _jsonable(figures: Any) -> Any:
    if isinstance(figures, dict):
        return {name: _jsonable(value) for name, value in figures.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return format(figures, "f") if isinstance(figures, Decimal) else figures


def _row(row: RunRow, figures: Figures) -> tuple[str, ...]:
    sent = figures["uncached"] + figures["cache_read"] + figures["cache_write"]
    return (
        row.run_id,
        line(row.name),
        figures["status"],
        str(figures["calls"]),
        str(sent),
        str(figures["output"]),
        usd(figures["cost_usd"]),
        line(figures["title"]),
    )
