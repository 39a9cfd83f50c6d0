"""The journal by itself: durable events a second, the latency of one append, and how fast interrupted runs come back.

    python benchmarks/journal.py [--writers 1,100,1000] [--events 20000] [--interrupted 1000] [--turns 50]

Each writer appends an event and waits until it is durable, again and again; the commits of all are shared. Beside it
stands what SQLite itself does with one insert and one commit an event.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
from swarm import BLUEPRINT, Steady, figure, work

from shoal.blueprints import Repetition
from shoal.providers import Completed, Reply, Request, StreamEvent, Text, Usage
from shoal.runtime import Event, Limits, SqliteJournal, Swarm
from shoal.runtime.events import InferenceCompleted, MessageReceived, RunSpawned, ToolCallCompleted

TEXT = Text.of("x" * 400)


async def durable(path: Path, level: str, writers: int, events: int) -> tuple[float, list[float]]:
    """Return seconds for *events* durable events of *writers* runs, and the latency of each."""
    journal = SqliteJournal(path, durability=level)  # type: ignore[arg-type]
    latencies: list[float] = []
    each = events // writers

    async def write(run_id: str) -> None:
        journal.append(Event(run_id, 1, 1.0, RunSpawned("w", "d", None, (), "/", None, run_id, 0)))
        for seq in range(2, each + 2):
            began = time.perf_counter()
            journal.append(Event(run_id, seq, 1.0, MessageReceived(TEXT)))
            await journal.barrier()
            latencies.append(time.perf_counter() - began)

    async with anyio.create_task_group() as serving:
        serving.start_soon(journal.serve)
        await anyio.lowlevel.checkpoint()
        began = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for writer in range(writers):
                tasks.start_soon(write, f"run-{writer}")
        seconds = time.perf_counter() - began
        serving.cancel_scope.cancel()
    journal.close()
    return seconds, latencies


def bare(path: Path, events: int) -> float:
    """Return seconds for *events* inserts, each committed by itself."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE events (run INTEGER, seq INTEGER, kind INTEGER, at INTEGER, payload BLOB)")
    payload = b"x" * 400
    began = time.perf_counter()
    for seq in range(events):
        db.execute("INSERT INTO events VALUES (1, ?, 52, 1, ?)", (seq, payload))
    seconds = time.perf_counter() - began
    db.close()
    return seconds


class Stops(Steady):
    """Answers every turn but the last one, for which it lets the run wait until it is interrupted."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        turns = sum(m.role == "assistant" for segment in request.messages for m in segment.messages)
        if turns >= self.calls - 1:
            self.asked += 1
            await anyio.sleep_forever()
        async for event in super().stream(request):
            yield event


class Ends(Steady):
    """Ends every run with its next reply."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.asked += 1
        await anyio.lowlevel.checkpoint()
        yield Completed(Reply(Text.of("done")), Usage(uncached=10), simulated=True)


async def resume(path: Path, runs: int, turns: int) -> tuple[float, int]:
    """Return the seconds in which interrupted runs come back, and how many events they have together."""
    journal = SqliteJournal(path)
    stops = Stops(turns + 1, 0.0)
    [stage] = BLUEPRINT.stages
    long = replace(BLUEPRINT, stages=(replace(stage, max_iterations=turns + 2),))
    async with Swarm([stops], journal, limits=Limits(inferences=runs, idle_s=None)) as swarm:
        started = [await swarm.spawn(long, seeds={"path": f"{n}"}, tools=[work]) for n in range(runs)]
        while stops.asked < runs * (turns + 1):  # noqa: ASYNC110 - until each has come to its last turn
            await anyio.sleep(0.2)
    journal.close()
    journal = SqliteJournal(path)
    events = sum(row.events for row in journal.runs())
    async with Swarm([Ends(1, 0.0)], journal, limits=Limits(inferences=runs, idle_s=None)) as swarm:
        began = time.perf_counter()
        for run in started:
            await swarm.resume_tree(run.run_id, tools=[work])
        seconds = time.perf_counter() - began
        for run in started:
            await swarm.get(run.run_id).result()
    journal.close()
    return seconds, events


async def said(path: Path, turns: int) -> int:
    """Journal a run with so many turns, and return the bytes of its results, calls and replies."""
    plain = replace(BLUEPRINT, repetition=Repetition(enabled=False))  # each turn makes the same call
    journal = SqliteJournal(path)
    limits = Limits(max_iterations=turns + 10)
    async with Swarm([Steady(turns + 1, 0.0)], journal, limits=limits) as swarm:
        run = await swarm.spawn(plain, seeds={"path": "a file"}, tools=[work])
        assert (await run.result()).status == "complete"
        total = 0
        for event in journal.read(run.run_id):
            match event.payload:
                case InferenceCompleted(text=text, calls=calls):
                    total += text.size + sum(len(call.name) + call.arguments.size for call in calls)
                case ToolCallCompleted(text=text):
                    total += text.size
                case _:
                    pass
    journal.close()
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--writers", default="1,100,1000")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--interrupted", type=int, default=1_000)
    parser.add_argument("--turns", type=int, default=50)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = bare(Path(folder) / "plain.db", args.events)
        figure("journal/bare", args.events / plain, "events a second, a commit each")
        for level in ("normal", "full"):
            for writers in map(int, args.writers.split(",")):
                events = args.events if level == "normal" else min(args.events, 20 * writers + 200)
                path = Path(folder) / f"{level}-{writers}.db"
                seconds, latencies = anyio.run(durable, path, level, writers, events)
                figure(
                    f"journal/{level}/{writers}",
                    len(latencies) / seconds,
                    "durable events a second",
                    latency_us_median=round(statistics.median(latencies) * 1e6, 1),
                    x_bare=round(len(latencies) / seconds / (args.events / plain), 2),
                )
        seconds, events = anyio.run(resume, Path(folder) / "resume.db", args.interrupted, args.turns)
        figure("journal/resume", seconds / args.interrupted * 1000, "s a thousand runs", turns=args.turns)
        figure("journal/replay", events / seconds, "events a second")
        for turns in (200, 800):
            path = Path(folder) / f"kept-{turns}.db"
            total = anyio.run(said, path, turns)
            figure(f"journal/bytes/{turns}", path.stat().st_size / total, "x what was said", turns=turns)


if __name__ == "__main__":
    main()
