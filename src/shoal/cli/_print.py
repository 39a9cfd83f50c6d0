"""How the command line speaks: results on standard output, trouble on standard error, colour for terminals only."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.providers import Usage

Cell: TypeAlias = str | Text

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_STYLES = {
    "running": "cyan",
    "paused": "yellow",
    "asks": "yellow",
    "interrupted": "yellow",
    "complete": "green",
    "complete_interactive": "green",
    "error": "red",
    "cancelled": "magenta",
}
_PLAIN_WIDTH = 10_000
"""Width for what is no terminal: other programs read it, so nothing is cut or wrapped."""


def console(*, stderr: bool = False) -> Console:
    """Return the console of standard output, or of standard error."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _PLAIN_WIDTH
    return made


def is_terminal() -> bool:
    """Say whether a person looks at standard output, on a terminal that can redraw."""
    made = console()
    return made.is_terminal and not made.is_dumb_terminal


def say(*lines: Cell) -> None:
    """Print *lines* to standard output."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def complain(*lines: str) -> None:
    """Print *lines* to standard error, the first with the program's name in front."""
    for number, line in enumerate(lines):
        note(line if number else f"shoal: {line}")


def note(text: str) -> None:
    """Print one more line to standard error, behind what `complain` printed."""
    # Vendors and tools have their say in what went wrong: nothing of it may speak to the terminal itself.
    print(_CONTROL_BUT_LINES.sub(_escaped, text), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print *value* as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print what a model wrote: byte for byte into a pipe or file, without control characters on a terminal."""
    print(_CONTROL_BUT_LINES.sub(_escaped, text) if sys.stdout.isatty() else text)


def line(text: str, most: int | None = None) -> str:
    """Return *text* on one line, its control characters written out, cut to *most* characters."""
    clean = _CONTROL.sub(_escaped, text)
    return clean if most is None or len(clean) <= most else f"{clean[: most - 1]}…"


def _escaped(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


def status(word: str) -> Text:
    """Return the status of a run in its colour."""
    return Text(word, _STYLES.get(word, ""))


def print_table(head: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Sequence[str] = ()) -> None:
    """Print a table: aligned columns, in a pipe never cut.

    Args:
        head: Names of the columns.
        rows: Cells, as many as *head* has.
        right: Columns that are aligned to the right.
    """
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in head:
        table.add_column(name, justify="right" if name in right else "left", overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    out = console()
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as printed:
        out.print(table)
    say(*(row.rstrip() for row in printed.get().splitlines()))


# --- figures


def tokens(count: int) -> str:
    """Return a count of tokens in few characters."""
    if count < 10_000:
        return str(count)
    return f"{count / 1000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}M"


def usd(cost: Decimal | None) -> str:
    """Return a cost in USD; `?` where it is unknown."""
    return "?" if cost is None else f"${cost.normalize() + 0:f}"


def spent(usage: Usage, cost: Decimal | None) -> str:
    """Return what was used on one line."""
    cached = f" ({tokens(usage.cache_read)} cached)" if usage.cache_read else ""
    return f"{tokens(usage.input)} in{cached}, {tokens(usage.output)} out, {usd(cost)}"


def seconds(span: float) -> str:
    """Return a span of time in few characters."""
    if span < 0.95:
        return f"{span * 1000:.0f} ms"
    if span < 60:
        return f"{span:.1f} s"
    minutes, rest = divmod(int(span), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def ago(unix: float, now: float | None = None) -> str:
    """Return how long *unix* (seconds) is past."""
    return f"{seconds(max(0.0, (time.time() if now is None else now) - unix))} ago"
