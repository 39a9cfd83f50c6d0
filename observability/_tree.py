"""A trace as text, for terminals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import cast

from shoal.observability import names
from shoal.observability._spans import Span

_HEAD = ("span", "time", "in", "out", "cost USD", "")
_MOST_NAME = 72


def render_trace(spans: Sequence[Span]) -> str:
    """Return *spans* as a tree: name, duration, tokens and cost of each, and what did not end well.

    Args:
        spans: Those of one trace in the order in which they were opened, as `trace_of` gives them.
    """
    rows = [_HEAD, *(_row(drawn, span) for drawn, span in _drawn(spans))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *numbers, note = row
    cells = [name.ljust(widths[0])]
    cells.extend(cell.rjust(width) for cell, width in zip(numbers, widths[1:-1], strict=True))
    return "  ".join([*cells, note]).rstrip()


def _drawn(spans: Sequence[Span]) -> Iterator[tuple[str, Span]]:
    """Yield the lines of the tree, top down: how each is indented, and its span."""
    here = {span.span_id for span in spans}
    below: dict[str | None, list[Span]] = {}
    for span in spans:
        below.setdefault(span.parent_id if span.parent_id in here else None, []).append(span)
    for span in below.get(None, ()):
        yield "", span
        yield from _below(span, "", below)


def _below(parent: Span, indent: str, below: Mapping[str | None, Sequence[Span]]) -> Iterator[tuple[str, Span]]:
    children = below.get(parent.span_id, ())
    for child in children:
        last = child is children[-1]
        yield f"{indent}{'└─ ' if last else '├─ '}", child
        yield from _below(child, f"{indent}{'   ' if last else '│  '}", below)


def _row(drawn: str, span: Span) -> tuple[str, ...]:
    attributes = span.attributes
    sent = attributes.get(names.INPUT_TOKENS, attributes.get(names.STAGE_INPUT))
    wrote = attributes.get(names.OUTPUT_TOKENS, attributes.get(names.STAGE_OUTPUT))
    cost = attributes.get(names.COST_USD)
    name = f"{drawn}{span.name}"
    if len(name) > _MOST_NAME:
        name = f"{name[: _MOST_NAME - 1]}…"
    return (
        name,
        _duration(span.end_ns - span.start_ns),
        "" if sent is None else f"{sent:,}",
        "" if wrote is None else f"{wrote:,}",
        # A transition that was free of charge says nothing; a request that was says so.
        "" if cost is None or (not cost and sent is None) else _money(cast("float", cost)),
        _note(span),
    )


def _note(span: Span) -> str:
    attributes = span.attributes
    said = [str(attributes[names.OUTCOME])] if span.status != "ok" else []
    reason = attributes.get(names.REASON)
    if said and reason and reason != said[0]:
        said.append(str(reason))
    notes = [": ".join(said)] if said else []
    if names.ITEM in attributes and names.AGENT_ID in attributes:
        notes.insert(0, f"item {attributes[names.ITEM]}")
    if attributes.get(names.INTERRUPTED) and "interrupted" not in said:
        notes.append("interrupted")
    if attributes.get(names.SIMULATED) and span.kind == "client":
        notes.append("simulated")
    return ", ".join(notes)


def _duration(nanoseconds: int) -> str:
    if nanoseconds < 1_000:
        return "-"
    if nanoseconds < 1_000_000:
        return f"{nanoseconds // 1_000} µs"
    if nanoseconds < 1_000_000_000:
        return f"{nanoseconds / 1e6:.1f} ms"
    if nanoseconds < 120_000_000_000:
        return f"{nanoseconds / 1e9:.2f} s"
    minutes, seconds = divmod(nanoseconds // 1_000_000_000, 60)
    return f"{minutes} min {seconds:02d} s"


def _money(cost: float) -> str:
    # Through `repr`, which is the shortest decimal that is this float: 0.1 stays 0.1.
    return format(Decimal(repr(cost)).normalize() + 0, "f")
