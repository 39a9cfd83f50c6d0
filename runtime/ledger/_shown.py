"""A ledger as people and their tools read it: text, CSV, HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from shoal.runtime.ledger._rows import StageRow, Tally, TransitionRow, plain_usage

_HEADS = ("stage / region", "calls", "in", "cached", "written", "out", "cost USD", "peak", "budget")
_COLUMNS = (
    "stage",
    "region",
    "visits",
    "calls",
    "input",
    "uncached",
    "cache_read",
    "cache_write",
    "output",
    "reasoning",
    "cost_usd",
    "cache_hit_ratio",
    "high_water_tokens",
    "budget_tokens",
    "tool_calls",
    "seconds",
)
_MOVE_COLUMNS = (
    "transition",
    "from",
    "to",
    "condition",
    "region",
    "tokens_before",
    "tokens_after",
    "cached_before",
    "cached_after",
    "uncached_after",
    "cache_tokens_lost",
    "cost_usd",
)
BEFORE_STAGES = "-"
"""Name of the row of what happened outside any stage."""


def as_table(stages: Iterable[StageRow], total: Tally) -> str:
    """Return a row a stage and, under it, a row a region, as text."""
    rows = [_HEADS, *_rows(stages, total)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def as_html(stages: Iterable[StageRow], total: Tally) -> str:
    """Return the same rows as a notebook shows them."""
    head = "".join(f"<th>{escape(name)}</th>" for name in _HEADS)
    rows = "".join(f"<tr>{''.join(_html_cells(row))}</tr>" for row in _rows(stages, total))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _rows(stages: Iterable[StageRow], total: Tally) -> Iterator[Sequence[str]]:
    for stage in stages:
        yield _cells(stage.stage, stage)
        for name, row in stage.regions.items():
            peak, budget = str(row.high_water_tokens or ""), str(row.budget_tokens or "")
            yield _cells(f"  {name}", row, peak, budget)
    yield _cells("total", total)


def _cells(name: str, tally: Tally, peak: str = "", budget: str = "") -> Sequence[str]:
    usage = tally.usage
    written = usage.cache_write + usage.cache_write_long
    cost = "?" if tally.cost is None else format(tally.cost.normalize() + 0, "f")
    return (
        name,
        str(tally.calls),
        str(usage.input),
        str(usage.cache_read),
        str(written),
        str(usage.output),
        cost,
        peak,
        budget,
    )


def _html_cells(row: Sequence[str]) -> Iterator[str]:
    name, *figures = row
    inset = len(name) - len(name.lstrip())
    yield f'<td style="text-align: left; padding-left: {inset + 0.5}em">{escape(name.strip())}</td>'
    yield from (f"<td>{escape(figure)}</td>" for figure in figures)


def as_csv(stages: Iterable[StageRow], total: Tally) -> str:
    """Return a row for all, a row a stage and a row a region of a stage, as CSV."""
    rows = [_csv_row("", "", total)]
    for stage in stages:
        more = {"visits": stage.visits, "tool_calls": stage.tool_calls, "seconds": round(stage.seconds, 6)}
        rows.append(_csv_row(stage.stage, "", stage, **more))
        for name, row in stage.regions.items():
            held = {"high_water_tokens": row.high_water_tokens, "budget_tokens": row.budget_tokens}
            rows.append(_csv_row(stage.stage, name, row, **held))
    return _csv(_COLUMNS, rows)


def transitions_as_csv(transitions: Iterable[TransitionRow]) -> str:
    """Return a row a transition, and a row a region of each, as CSV."""
    rows: list[dict[str, Any]] = []
    for number, transition in enumerate(transitions, start=1):
        plain = transition.plain()
        where: dict[str, object] = {name: _harmless(plain[name] or "") for name in ("from", "to", "condition")}
        where["transition"] = number
        rows.append({**plain, **where})
        rows += [{**move, **where, "region": _harmless(move["region"])} for move in plain["regions"]]
    return _csv(_MOVE_COLUMNS, rows)


def _csv_row(stage: str, region: str, tally: Tally, **more: object) -> dict[str, object]:
    usage = {"input": tally.usage.input, **plain_usage(tally.usage)}
    return {"stage": _harmless(stage), "region": _harmless(region), **usage, **Tally.plain(tally), **more}


def _harmless(name: str) -> str:
    """Return *name* so that no spreadsheet takes it for a formula: a blueprint may come from a stranger.

    Source: OWASP, "CSV Injection".
    """
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) and name != BEFORE_STAGES else name


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return *rows* as CSV (RFC 4180 but for line ends); what is unknown or has no meaning is empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
