"""The report of a run: one HTML file that needs nothing else, with its figures in it as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from typing import Any

from shoal.observability._spans import clip

_WIDTH = 960
_PLOT_HEIGHT = 260
_ROW_HEIGHT = 22
_MOST_LABEL_CHARS = 24
_PALETTE = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#ff9da7",
    "#8cd17d",
    "#86bcb6",
    "#d37295",
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2rem auto; padding: 0 1rem }
body { color: #1c1c1c; background: #fff; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; margin-bottom: 0 }
h2 { font-size: 1.1rem; margin-top: 2rem }
.table { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: 0.2rem 0.6rem 0.2rem 0; border-bottom: 1px solid #ddd }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto; display: block }
svg text { font: 11px system-ui, sans-serif; fill: currentColor }
.quiet { color: #666 }
.key { display: inline-block; margin-right: 1rem }
.key i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.3em }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #16181c }
  th, td { border-color: #333 }
  .quiet { color: #9a9a9a }
}
"""


def html_of(figures: Mapping[str, Any]) -> str:
    """Return the report of the run that *figures* (see `figures_of`) are about: a timeline, plots, tables, the tree.

    It asks for nothing over the network, runs no script, and holds the figures in one element
    `<script type="application/json" id="figures">`.
    """
    colours = _colours(figures)
    body = "\n".join(
        (
            *_head(figures),
            "<h2>Stages over time</h2>",
            _timeline(figures, colours),
            "<h2>The window by region, over the calls</h2>",
            _window(figures, colours),
            f"<h2>{'Cost' if _priced(figures) else 'Tokens'} by region</h2>",
            _costs(figures, colours),
            "<h2>Transitions</h2>",
            _transitions(figures["ledger"]["transitions"]),
            "<h2>Runs</h2>",
            _tree(figures["tree"]),
        )
    )
    title = escape(figures["run"]["title"] or figures["run"]["name"])
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n"
        f'<script type="application/json" id="figures">{_json(figures)}</script>\n</body>\n</html>\n'
    )


def _json(figures: Mapping[str, Any]) -> str:
    """Return *figures* as JSON that cannot end the element it stands in."""
    return json.dumps(figures, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _colours(figures: Mapping[str, Any]) -> Mapping[str, str]:
    names = dict.fromkeys(
        [owner for call in figures["calls"] for owner in call["tokens"]]
        + [region["region"] for region in figures["regions"]]
        + [visit["stage"] for visit in figures["visits"]]
    )
    return {name: _PALETTE[place % len(_PALETTE)] for place, name in enumerate(names)}


def _head(figures: Mapping[str, Any]) -> Iterator[str]:
    run, total = figures["run"], figures["ledger"]["total"]
    yield f"<h1>{escape(run['title'] or run['name'])}</h1>"
    yield f'<p class="quiet">{escape(run["name"])} · {escape(run["run_id"])} · {_time(run["spawned_at"])}</p>'
    if run["task"]:
        yield f"<p>{escape(run['task'])}</p>"
    usage = total["usage"]
    sent = usage["uncached"] + usage["cache_read"] + usage["cache_write"]
    told = (
        f"<strong>{escape(run['status'])}</strong>",
        f"{total['calls']} requests",
        f"{sent:,} tokens in, {usage['cache_read']:,} of them from a cache",
        f"{usage['output']:,} out",
        _money(total["cost_usd"]),
    )
    yield f"<p>{' · '.join(told)}</p>"
    if run["reason"]:
        yield f'<p class="quiet">{escape(run["reason"])}</p>'
    if run["flags"]:
        yield f"<p>flags: {escape(', '.join(run['flags']))}</p>"


# --- plots


def _timeline(figures: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    visits = figures["visits"]
    if not visits:
        return '<p class="quiet">It entered no stage.</p>'
    begin = figures["run"]["spawned_at"]
    ends = (end for each in (*visits, *figures["calls"]) for end in (each.get("to"), each.get("at")) if end)
    last = max(ends, default=begin)
    length = max(last - begin, 1e-6)
    stages = list(dict.fromkeys(visit["stage"] for visit in visits))
    shapes: list[str] = []
    for visit in visits:
        x, wide = _span(visit, begin, length, last)
        y = stages.index(visit["stage"]) * _ROW_HEIGHT
        said = f"{visit['stage']}, visit {visit['visit']}: {(visit['to'] or last) - visit['from']:.1f} s"
        shapes.append(_rect(x, y + 3, wide, _ROW_HEIGHT - 6, colours[visit["stage"]], said))
    height = len(stages) * _ROW_HEIGHT
    for pause in figures["pauses"]:
        x, wide = _span(pause, begin, length, last)
        shapes.append(_rect(x, 0, wide, height, "#999", f"paused: {pause['reason']}", opacity=0.35))
    shapes += [_text(4, place * _ROW_HEIGHT + 15, stage) for place, stage in enumerate(stages)]
    shapes.append(_text(_WIDTH - 4, height + 14, f"{length:.1f} s", anchor="end"))
    return _svg(height + 18, shapes, "Stages over time")


def _span(each: Mapping[str, Any], begin: float, length: float, last: float) -> tuple[float, float]:
    """Return where *each* begins and how wide it is: wide enough to be seen, and inside the frame."""
    x = (each["from"] - begin) / length * _WIDTH
    wide = max(1.0, ((each["to"] or last) - each["from"]) / length * _WIDTH)
    return min(x, _WIDTH - wide), wide


def _window(figures: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    calls = [call for call in figures["calls"] if call["purpose"] in ("stage", "routing")]
    if not calls:
        return '<p class="quiet">No request was answered.</p>'
    most = max(sum(call["tokens"].values()) for call in calls) or 1
    wide = _WIDTH / len(calls)
    shapes: list[str] = []
    for place, call in enumerate(calls):
        y = float(_PLOT_HEIGHT)
        for owner, tokens in call["tokens"].items():
            high = tokens / most * _PLOT_HEIGHT
            y -= high
            said = f"call {place + 1}, {call['stage']}: {owner} {tokens:,} tokens"
            shapes.append(_rect(place * wide, y, max(wide - (1 if wide > 3 else 0), 0.5), high, colours[owner], said))
    shapes.append(_text(4, 12, f"{most:,} tokens"))
    owners = dict.fromkeys(owner for call in calls for owner in call["tokens"])
    keys = "".join(f'<span class="key"><i style="background:{colours[o]}"></i>{escape(o)}</span>' for o in owners)
    return f"{_svg(_PLOT_HEIGHT, shapes, 'Tokens by region over the calls')}\n<p>{keys}</p>"


def _priced(figures: Mapping[str, Any]) -> bool:
    """Say whether anything cost something: of a model that is free, or of unknown price, tokens tell more."""
    return any(Decimal(each["cost_usd"] or 0) for each in figures["regions"])


def _costs(figures: Mapping[str, Any], colours: Mapping[str, str]) -> str:
    regions = figures["regions"]
    priced = _priced(figures)
    weights = [Decimal(each["cost_usd"] or 0) if priced else Decimal(_billed(each["usage"])) for each in regions]
    most = max(weights, default=Decimal(0)) or Decimal(1)
    shapes: list[str] = []
    for place, (each, weight) in enumerate(zip(regions, weights, strict=True)):
        said = f"{each['region']}: {_money(each['cost_usd'])}, {_billed(each['usage']):,} tokens"
        wide = float(weight / most) * _WIDTH * 0.8
        shapes.append(_rect(0, place * _ROW_HEIGHT + 3, wide, _ROW_HEIGHT - 6, colours[each["region"]], said))
        shapes.append(_text(wide + 6, place * _ROW_HEIGHT + 15, clip(each["region"], _MOST_LABEL_CHARS)))
    rows = [
        (
            each["region"],
            each["usage"]["uncached"],
            each["usage"]["cache_read"],
            each["usage"]["cache_write"],
            each["usage"]["output"],
            each["high_water_tokens"],
            "" if each["budget_tokens"] is None else f"{each['budget_tokens']:,}",
            _money(each["cost_usd"]),
        )
        for each in regions
    ]
    heads = ("region", "uncached", "cached", "written", "out", "peak", "budget", "cost")
    return _svg(len(regions) * _ROW_HEIGHT or 1, shapes, "Cost by region") + _table(heads, rows)


def _billed(usage: Mapping[str, int]) -> int:
    return usage["uncached"] + usage["cache_read"] + usage["cache_write"] + usage["output"]


# --- tables


def _transitions(transitions: Sequence[Mapping[str, Any]]) -> str:
    heads = ("from", "to", "condition", "cached before", "cached after", "lost", "cost")
    rows = [
        (
            each["from"],
            each["to"] or "the end",
            each["condition"],
            each["cached_before"],
            each["cached_after"],
            each["cache_tokens_lost"],
            _money(each["cost_usd"]),
        )
        for each in transitions
    ]
    return _table(heads, rows)


def _tree(rows: Sequence[Mapping[str, Any]]) -> str:
    heads = ("run", "title", "status", "out", "cost")
    table = [
        (
            "\u2003" * row["depth"] + row["name"],
            row["title"] or "",
            row["status"],
            row["usage"]["output"],
            _money(row["cost_usd"]),
        )
        for row in rows
    ]
    return _table(heads, table)


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return '<p class="quiet">None.</p>'
    numbers = [isinstance(value, int) or head in ("cost", "budget") for head, value in zip(heads, rows[0], strict=True)]
    marks = ['<{} class="n">' if number else "<{}>" for number in numbers]
    top = "".join(f"{mark.format('th')}{escape(head)}</th>" for mark, head in zip(marks, heads, strict=True))
    lines = [
        "".join(f"{mark.format('td')}{_shown(value)}</td>" for mark, value in zip(marks, row, strict=True))
        for row in rows
    ]
    body = f"<thead><tr>{top}</tr></thead><tbody><tr>{'</tr><tr>'.join(lines)}</tr></tbody>"
    return f'<div class="table"><table>{body}</table></div>'


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


# --- pieces


def _svg(height: float, shapes: Sequence[str], label: str) -> str:
    shown = "".join(shapes)
    return f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(label)}">{shown}</svg>'


def _rect(x: float, y: float, wide: float, high: float, colour: str, said: str, *, opacity: float = 1.0) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{wide:.2f}" height="{high:.2f}" fill="{colour}" '
        f'fill-opacity="{opacity:g}"><title>{escape(said)}</title></rect>'
    )


def _text(x: float, y: float, said: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(said)}</text>'


def _money(cost_usd: str | None) -> str:
    return "unknown price" if cost_usd is None else f"${Decimal(cost_usd):.6f}"


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
