"""What `shoal top` shows: the runs of a journal as they are now, and as lines of a screen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, final

from rich.text import Text

from shoal.cli._print import line, seconds, status, tokens
from shoal.cli._progress import Progress, RunView, added
from shoal.errors import DefinitionMissing
from shoal.runtime import Event, Reader, RunState, SwarmStatistics
from shoal.runtime.events import InferenceCompleted, InferenceFailed, InferenceStarted, RunRestarted

RATE_S = 10.0
"""Seconds over which tokens a second are counted."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_LABEL = 26
_KEYS = "q quit  ↑↓ choose  enter regions  a all"
_TALL = 10
"""Rows of a screen that has room for pools and lanes."""


class Busy(NamedTuple):
    """How busy a pool or a lane is: what is under way, what may be at once, and what waits."""

    busy: int
    width: int
    waiting: int

    def __str__(self) -> str:
        return f"{self.busy}/{self.width}" + (f" +{self.waiting} wait" if self.waiting else "")


def _together(found: Iterable[tuple[str, Busy]]) -> Mapping[str, Busy]:
    """Add up what several swarms say of the same name; the busiest come first."""
    sums: dict[str, Busy] = {}
    for name, more in found:
        known = sums.get(name, Busy(0, 0, 0))
        sums[name] = Busy(known.busy + more.busy, known.width + more.width, known.waiting + more.waiting)
    return dict(sorted(sums.items(), key=lambda item: (-item[1].waiting, -item[1].busy, item[0])))


@final
class Board:
    """The runs of a journal, kept up by reading what is new.

    Args:
        reader: The journal.
        make: Returns the state of a run whose events are then applied to it.
        roots: Only trees of these runs; empty for all.
        said: Says at a time (unix seconds) how busy each swarm is that is open on the journal.
    """

    def __init__(
        self,
        reader: Reader,
        make: Callable[[str], RunState],
        roots: Sequence[str] = (),
        said: Callable[[float], Iterable[SwarmStatistics]] = lambda _: (),
    ) -> None:
        self._reader = reader
        self._make = make
        self._roots = frozenset(roots)
        self._said = said
        self._swarms: tuple[SwarmStatistics, ...] = ()
        self._read: dict[str, int] = {}
        self._states: dict[str, RunState | None] = {}
        """Of each run that is not over; `None` where what it is made of cannot be had."""
        self._flying: dict[tuple[str, int], str] = {}
        self._rates: deque[tuple[float, int]] = deque()
        self.progress = Progress()
        self.restarts = 0
        self.now = 0.0

    def update(self, now: float) -> None:
        """Read what is new; *now* is unix seconds."""
        self.now = now
        for row in self._reader.runs():
            if (self._roots and row.root not in self._roots) or self._done(row.run_id):
                continue
            for event in self._reader.read(row.run_id, after=self._read.get(row.run_id, 0)):
                self._take(event)
        while self._rates and self._rates[0][0] < now - RATE_S:
            self._rates.popleft()
        self._swarms = tuple(self._said(now))

    def _done(self, run_id: str) -> bool:
        known = self.progress.runs.get(run_id)
        return known is not None and known.over

    def _take(self, event: Event) -> None:
        run_id = event.run_id
        self._read[run_id] = event.seq
        self.progress.record(event)
        self._follow(event)
        match event.payload:
            case InferenceStarted(provider=provider):
                self._flying[run_id, event.seq] = provider
            case InferenceCompleted() as done:
                self._flying.pop((run_id, done.started), None)
                self._rates.append((event.at, sum(done.usage[:5])))
            case InferenceFailed(started=started):
                self._flying.pop((run_id, started), None)
            case RunRestarted():
                self.restarts += 1
            case _:
                pass

    def _follow(self, event: Event) -> None:
        """Keep up the state of a run, from which its regions are known."""
        run_id = event.run_id
        if event.seq == 1:
            try:
                self._states[run_id] = self._make(run_id)
            except DefinitionMissing:
                self._states[run_id] = None
        state = self._states.get(run_id)
        if state is not None:
            state.apply(event)
            if state.ended is not None:
                del self._states[run_id]
                for key in [key for key in self._flying if key[0] == run_id]:
                    del self._flying[key]

    # --- figures

    def fill(self, run_id: str) -> Mapping[str, tuple[int, int]]:
        """Return tokens and budget of each region of a run that holds something, by name."""
        state = self._states.get(run_id)
        if state is None or state.window is None:
            return {}
        return {
            name: (held.charged, held.limits.budget) for name, held in state.window.states.items() if not held.empty
        }

    @property
    def rate(self) -> float:
        """Tokens a second, over the last seconds."""
        return sum(count for _, count in self._rates) / RATE_S

    @property
    def flying(self) -> Counter[str]:
        """Requests that wait for their reply, by provider."""
        return Counter(self._flying.values())

    @property
    def jobs(self) -> Counter[str]:
        """Jobs of lanes that are open, by lane."""
        states = (state for state in self._states.values() if state is not None)
        return Counter(job.started.lane for state in states for job in state.jobs.values())

    @property
    def pools(self) -> Mapping[str, Busy]:
        """How busy each pool is, by name, as the swarms that are open say; empty where none does."""
        pools = ((name, pool) for swarm in self._swarms for name, pool in swarm.pools.items())
        return _together((name, Busy(pool.busy, pool.limit, pool.queued)) for name, pool in pools)

    @property
    def lanes(self) -> Mapping[str, Busy]:
        """How busy each lane is, by name, as the swarms that are open say; empty where none does."""
        lanes = ((name, lane) for swarm in self._swarms for name, lane in swarm.lanes.items())
        return _together((name, Busy(lane.running, lane.width, lane.queued)) for name, lane in lanes)

    @property
    def restarted(self) -> Counter[str]:
        """How often supervisors restarted something below them, by the supervisor, as the swarms that are open say."""
        found = Counter[str]()
        for swarm in self._swarms:
            found.update(swarm.restarts)
        return found

    def shown(self, *, everything: bool) -> list[tuple[RunView, int]]:
        """Return the runs in the order of their trees with their depth; without *everything* only trees at work."""
        tops = [run for run in self.progress.runs.values() if run.parent not in self.progress.runs]
        trees = [list(self.progress.descend(top)) for top in tops]
        at_work = [tree for tree in trees if everything or any(not run.over for run, _ in tree)]
        return [pair for tree in at_work for pair in tree]


# --- lines


def drawn(board: Board, *, width: int, height: int, chosen: int, detail: bool, everything: bool) -> list[Text]:
    """Return *board* as *height* lines of *width* characters.

    Args:
        board: What is shown.
        width: Columns of the screen.
        height: Rows of the screen.
        chosen: Which of the runs shown is marked, from 0.
        detail: Show the regions of that run.
        everything: Also trees that are over.
    """
    runs = board.shown(everything=everything)
    chosen = max(0, min(chosen, len(runs) - 1))
    below = list(_detail(board, runs[chosen][0], width)) if detail and runs else []
    foot = [*_sums(board, len(runs)), *(_ways(board) if height >= _TALL else ()), Text(_KEYS, "dim")]
    room = max(1, height - 1 - len(foot) - min(len(below), height // 2))
    first = max(0, min(chosen - room // 2, len(runs) - room))
    lines = [_heads(width)]
    for place, (run, depth) in enumerate(runs[first : first + room], start=first):
        row = _row(board, run, depth, width)
        if place == chosen:
            row.stylize("reverse")
        lines.append(row)
    if not runs:
        lines.append(Text("Nothing is at work. Press a to see what is over.", "dim"))
    lines += [Text()] * (room + 1 - len(lines))
    lines += below[: height // 2]
    lines += foot
    for each in lines:
        each.truncate(width, overflow="ellipsis")
    return lines[:height]


def _heads(width: int) -> Text:
    return Text(f"{'run':<{_LABEL}} {'stage':<12} {'tokens':>8} {'cost':>9}  regions".ljust(width), "bold")


def _row(board: Board, run: RunView, depth: int, width: int) -> Text:
    label = line("  " * depth + run.label, _LABEL)
    held = "asks" if run.questions and run.status != "paused" else run.status
    row = Text(f"{label:<{_LABEL}} ")
    where = Text(line(run.stage or "starting", 12)) if held == "running" else status(held)
    where.truncate(12)
    where.pad_right(12 - len(where))
    row.append_text(where)
    cost = "?" if run.cost is None else f"{run.cost:.4f}"
    row.append(f" {tokens(run.usage.input + run.usage.output):>8} {cost:>9}  ")
    for name, (used, budget) in _fullest(board, run):
        share = min(1.0, used / max(1, budget))
        row.append(_BLOCKS[min(7, int(share * 8))], "red" if share > 0.9 else "green")
        row.append(f"{line(name, 12)} ", "dim")
    row.pad_right(max(0, width - len(row)))
    return row


def _fullest(board: Board, run: RunView) -> list[tuple[str, tuple[int, int]]]:
    held = board.fill(run.run_id).items()
    return sorted(held, key=lambda item: -item[1][0] / max(1, item[1][1]))


def _detail(board: Board, run: RunView, width: int) -> Iterator[Text]:
    yield Text(f"── {line(run.label, 40)} {run.run_id} ".ljust(width, "─"), "dim")
    if run.title:
        yield Text(line(run.title, width))
    bar = max(10, width - 48)
    for name, (used, budget) in _fullest(board, run):
        share = min(1.0, used / max(1, budget))
        full = round(share * bar)
        text = Text(f"{line(name, 20):<20} ")
        text.append("█" * full, "red" if share > 0.9 else "green")
        text.append("░" * (bar - full), "dim")
        text.append(f" {used:>7} of {budget:<7} {share:>4.0%}")
        yield text
    if run.reason:
        yield Text(line(run.reason, width), "dim")


def _sums(board: Board, shown: int) -> Iterator[Text]:
    progress = board.progress
    states = Counter(
        "running" if not run.over and run.status == "running" else run.status for run in progress.runs.values()
    )
    cost: Decimal | None = Decimal(0)
    for run in progress.runs.values():
        cost = added(cost, run.cost)
    began = min((run.began for run in progress.runs.values() if not run.over), default=board.now)
    counted = ", ".join(f"{count} {word}" for word, count in states.items()) or "no runs"
    yield Text(f"{counted} · {shown} shown · {seconds(board.now - began)}")
    money = "?" if cost is None else f"${cost:.4f}"
    yield Text(f"{board.rate:,.0f} tokens/s · {money} · restarts: {_restarts(board)}")


def _ways(board: Board) -> Iterator[Text]:
    # What a swarm says of itself tells more than what its journal does: what waits, and how much may be under way.
    yield Text(f"pools: {_listed(board.pools)}" if board.pools else f"in flight: {_listed(board.flying)}")
    yield Text(f"lanes: {_listed(board.lanes or board.jobs)}")


def _listed(counts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _restarts(board: Board) -> str:
    told = [f"{path.rpartition('/')[2]} {count}" for path, count in board.restarted.most_common(3)]
    return f"{board.restarts}" + (f", by supervisors: {', '.join(told)}" if told else "")
