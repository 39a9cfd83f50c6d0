"""Progress on screen: a live view for a terminal, plain lines for anything else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol, TypeAlias, final

import anyio
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shoal.cli._print import console, line, seconds, spent, status, tokens
from shoal.cli._progress import Progress, RunView
from shoal.runtime import Event
from shoal.runtime.events import (
    InferenceFailed,
    InferenceRetried,
    LaneDegraded,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    RunTitled,
    StageEntered,
)

Fill: TypeAlias = Callable[[str], Mapping[str, tuple[int, int]]]
"""Gives, for a run that lives here, tokens and budget by region; nothing for any other."""

REFRESH_S = 0.1
_MOST_ROWS = 14
_MOST_REGIONS = 4
_BLOCKS = "▁▂▃▄▅▆▇█"
_TASK_CHARS = 100


class Screen(Protocol):
    """Shows how a tree of runs gets on."""

    async def serve(self) -> None:
        """Show progress until cancelled."""
        ...

    def close(self) -> None:
        """Show what is left and leave the screen in order. Closing twice is fine."""
        ...


@final
class NoScreen:
    """Shows nothing: for output that other programs read."""

    async def serve(self) -> None:
        """Wait until cancelled."""
        await anyio.sleep_forever()

    def close(self) -> None:
        """Do nothing."""


# --- lines


@final
class Lines:
    """One line for each thing that a person would want to know, printed as it happens.

    Args:
        progress: What is shown.
        write: Takes each line; raises `OSError` once nobody reads any more.
    """

    def __init__(self, progress: Progress, write: Callable[[str], None] | None = None) -> None:
        self._progress = progress
        self._write = write or _write_line
        self._waiting: list[str] = []
        self._deaf = False
        progress.changed = self.record

    def record(self, event: Event, run: RunView) -> None:
        """Take note of *event*; it is printed by `serve`, since an observer must not wait."""
        text = said_of(event, run, self._progress)
        if text:
            self._waiting.append(line(text))

    async def serve(self) -> None:
        """Print what was noted until cancelled."""
        while True:
            self.close()
            await anyio.sleep(REFRESH_S)

    def close(self) -> None:
        """Print what is left."""
        waiting, self._waiting = self._waiting, []
        for text in () if self._deaf else waiting:
            try:
                self._write(text)
            except OSError:
                # Whoever read the pipe has gone: the runs go on, and the report is written all the same.
                self._deaf = True
                return


def _write_line(text: str) -> None:
    print(text, flush=True)


def said_of(event: Event, run: RunView, progress: Progress) -> str:
    """Return what is worth saying of *event*; empty for nothing."""
    match event.payload:
        case RunSpawned(parent=None):
            task = "" if run.task is None else f": {line(run.task, _TASK_CHARS)}"
            return f"{run.label} begins as run {run.run_id}{task}"
        case StageEntered(stage, visit) if run.parent is None:
            again = f", visit {visit}" if visit > 1 else ""
            return f"{run.label} enters stage {stage} on {run.model}{again}"
        case RunTitled(title) if run.parent is None:
            return f"{run.label} is titled {title!r}"
        case RunEnded():
            return f"{run.label} ends {_how(run)}{_count(run, progress)}"
        case RunPaused(reason):
            return f"{run.label} is paused: {reason}"
        case QuestionAsked(about):
            what = "for an approval" if about == "approval" else "a question"
            return f"{run.label} asks {what}; see `shoal answer {run.run_id}`"
        case RunResumed():
            return f"{run.label} goes on"
        case RunRestarted(error):
            return f"{run.label} crashed and is restarted: {error.strip().rpartition(chr(10))[2]}"
        case InferenceRetried(attempt=attempt, error=error, message=message, delay_s=delay_s):
            return f"{run.label} asks again in {delay_s:.0f} s, attempt {attempt} failed: {error}: {message}"
        case InferenceFailed(error=error, message=message):
            return f"{run.label} got no reply: {error}: {message}"
        case LaneDegraded(lane=lane, region=region, reason=reason):
            return f"{run.label} goes on without {lane}{f' of {region}' if region else ''}: {reason}"
        case _:
            return ""


def _how(run: RunView) -> str:
    why = f": {run.reason}" if run.status in ("error", "cancelled") and run.reason else ""
    return f"{run.status} ({spent(run.usage, run.cost)}){why}"


def _count(run: RunView, progress: Progress) -> str:
    parent = None if run.parent is None else progress.runs.get(run.parent)
    if parent is None:
        return ""
    over = sum(progress.runs[child].over for child in parent.children if child in progress.runs)
    return f" [{over} of {len(parent.children)}]"


# --- live


@final
class LiveView:
    """The swarm as it is now, redrawn in place.

    Args:
        progress: What is shown.
        fill: Gives the regions of a run.
        stderr: Draw on standard error, since standard output is taken.
    """

    def __init__(self, progress: Progress, fill: Fill, *, stderr: bool = False) -> None:
        self._progress = progress
        self._fill = fill
        self._began = time.monotonic()
        self._live = Live(console=console(stderr=stderr), auto_refresh=False, transient=True)

    async def serve(self) -> None:
        """Redraw until cancelled."""
        self._live.start()
        while True:
            height = self._live.console.height
            self._live.update(self.draw(height), refresh=True)
            await anyio.sleep(REFRESH_S)

    def close(self) -> None:
        """Take the view off the screen and give the cursor back."""
        self._live.stop()

    def draw(self, height: int) -> RenderableType:
        """Return the view for a screen of *height* lines."""
        rows = max(3, min(_MOST_ROWS, height - 8))
        shown = chosen(self._progress, rows)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name, right in (("run", False), ("stage", False), ("regions", False), ("tokens", True), ("cost", True)):
            table.add_column(name, justify="right" if right else "left", no_wrap=True, overflow="ellipsis")
        for run, depth in shown:
            table.add_row(*self._row(run, depth))
        return Group(table, self._rest(shown), self._total())

    def _row(self, run: RunView, depth: int) -> tuple[RenderableType, ...]:
        label = Text("  " * depth + line(run.label, 40))
        if run.title and not depth:
            label.append(f"  {line(run.title, 40)}", "dim")
        held = "asks" if run.questions and run.status != "paused" else run.status
        where = Text(line(run.stage or "starting", 20)) if held == "running" else status(held)
        cost = "?" if run.cost is None else f"{run.cost.normalize() + 0:f}"
        return label, where, self._regions(run), tokens(run.usage.input + run.usage.output), cost

    def _regions(self, run: RunView) -> Text:
        text = Text()
        if run.over:
            return text
        held = sorted(self._fill(run.run_id).items(), key=lambda item: -item[1][0] / max(1, item[1][1]))
        for name, (used, budget) in held[:_MOST_REGIONS]:
            share = min(1.0, used / max(1, budget))
            text.append(f"{_BLOCKS[min(7, int(share * 8))]} ", "red" if share > 0.9 else "green")
            text.append(f"{line(name, 16)} {share:.0%}  ", "dim")
        return text

    def _rest(self, shown: list[tuple[RunView, int]]) -> Text:
        hidden = len(self._progress.runs) - len(shown)
        if hidden <= 0:
            return Text()
        seen = {run.run_id for run, _ in shown}
        counted: dict[str, int] = {}
        for run in self._progress.runs.values():
            if run.run_id not in seen:
                counted[run.status] = counted.get(run.status, 0) + 1
        return Text(f"… {hidden} more: " + ", ".join(f"{count} {word}" for word, count in counted.items()), "dim")

    def _total(self) -> Text:
        progress = self._progress
        over = sum(run.over for run in progress.runs.values())
        span = seconds(time.monotonic() - self._began)
        return Text(f"{over} of {len(progress.runs)} runs over, {spent(progress.usage, progress.cost)}, {span}", "bold")


def chosen(progress: Progress, most: int) -> list[tuple[RunView, int]]:
    """Return at most *most* runs with their depth, in the order of the tree: those that are not over come first."""
    everybody = list(_everybody(progress))
    if len(everybody) <= most:
        return everybody
    # The root always, then who is at work, then who ended last.
    ranked = sorted(everybody, key=lambda pair: (pair[1] > 0, pair[0].over, -(pair[0].ended or 0.0)))
    kept = {run.run_id for run, _ in ranked[:most]}
    return [pair for pair in everybody if pair[0].run_id in kept]


def _everybody(progress: Progress) -> Iterator[tuple[RunView, int]]:
    if progress.root is not None:
        yield from progress.descend(progress.root)
