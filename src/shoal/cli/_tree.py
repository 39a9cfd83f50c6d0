"""A tree of runs as text, and the command that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from shoal.cli._places import JournalOption, JsonOption, journal_reader, status_of
from shoal.cli._print import line, print_json, say, spent, status
from shoal.cli._progress import Progress, RunView
from shoal.errors import RunNotFound
from shoal.runtime import plain_usage

MOST_ROWS = 30


def command(
    run: Annotated[str | None, Parameter(name="RUN", help="A run of the tree; the newest tree unless given.")] = None,
    /,
    *,
    all_runs: Annotated[bool, Parameter(name="--all", negative="", help="Show every run of a large tree.")] = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show a tree of runs: who spawned whom, where each stands, what each used."""
    with journal_reader(journal) as reader:
        known = () if reader is None else reader.runs()
        if reader is None or not known:
            raise RunNotFound("there is no run yet; `shoal run` makes the first")
        root = (known[-1] if run is None else reader.find(run)).root
        progress = Progress()
        for row in reader.runs(root=root):
            progress.replay(reader.read(row.run_id))
        owners = reader.owners()
        for row in reader.runs(root=root):
            progress.runs[row.run_id].status = status_of(row, owners)
    assert progress.root is not None  # the journal's register has it
    if as_json:
        print_json(plain_tree(progress, progress.root))
    else:
        say(*drawn(progress, progress.root, len(progress.runs) if all_runs else MOST_ROWS, ids=True))
    return 0


def plain_tree(progress: Progress, run: RunView) -> dict[str, Any]:
    """Return *run* and all below it as plain values."""
    return {
        "run_id": run.run_id,
        "name": run.name,
        "item": run.item,
        "title": run.title,
        "status": run.status,
        "stage": run.stage,
        "usage": plain_usage(run.usage),
        "cost_usd": None if run.cost is None else format(run.cost, "f"),
        "children": [plain_tree(progress, progress.runs[child]) for child in run.children if child in progress.runs],
    }


def drawn(progress: Progress, run: RunView, most: int, *, ids: bool = False) -> list[Text]:
    """Return *run* and all below it as lines, at most *most* of them and one that counts the rest.

    Args:
        progress: The tree.
        run: Where to begin.
        most: Lines at most.
        ids: Show the id of each run.
    """
    lines = [_line("", run, ids=ids), *_below(progress, run, "", ids=ids)]
    if len(lines) <= most:
        return lines
    counts = ", ".join(f"{count} {word}" for word, count in progress.counts().items())
    return [*lines[:most], Text(f"… {len(lines) - most} more; of all {len(lines)} runs: {counts}", "dim")]


def _below(progress: Progress, run: RunView, indent: str, *, ids: bool) -> Iterator[Text]:
    children = [progress.runs[child] for child in run.children if child in progress.runs]
    for child in children:
        last = child is children[-1]
        yield _line(f"{indent}{'└─ ' if last else '├─ '}", child, ids=ids)
        yield from _below(progress, child, f"{indent}{'   ' if last else '│  '}", ids=ids)


def _line(indent: str, run: RunView, *, ids: bool) -> Text:
    text = Text(f"{indent}{line(run.label, 60)}  ")
    text.append_text(status(run.status))
    if not run.over and run.stage:
        text.append(f" in {line(run.stage)}")
    text.append(f"  {spent(run.usage, run.cost)}", "dim")
    if run.title and run.parent is None:
        text.append(f"  {line(run.title, 80)}", "dim")
    if ids:
        # The whole id: runs of one tree are spawned in the same moment, so that their ids begin alike.
        text.append(f"  {run.run_id}", "dim")
    return text
