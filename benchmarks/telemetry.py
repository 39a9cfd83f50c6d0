"""What watching costs: framework time of one turn with no observer, with a null exporter, and with OTLP over loopback.

    python benchmarks/telemetry.py [--turns 800] [--rounds 5] [--journals memory normal]

The turn is that of `turn.py`: a reply that calls a tool, and its result; two spans. The provider answers at once, so
this is the worst case there is: beside a model that takes a second, all of it disappears. `watched` counts until the
run is over, while the exporter's thread is at work; `closed` counts until every span has been taken by the receiver,
which lives in a process of its own and reads and drops what it gets. `cpu` is processor time of all threads until
then, which other work on the machine hardly stretches.

Figures are ratios to `none`, the same turn in a swarm that knows no observer, within one round: the machine's own speed
does not enter. `off` is the front door's swarm with its telemetry left at the default. One JSON line a figure.

Last, memory of the queue: while the receiver hangs, three times as many spans come as there is room for.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from turn import BLUEPRINT, Instant, figure, work

from shoal import Swarm as FrontDoor
from shoal.observability import Telemetry, exporting, otlp
from shoal.observability._pipeline import BATCH_SPANS, QUEUE_SPANS
from shoal.runtime import Event, Journal, Limits, MemoryJournal, SqliteJournal, Swarm

WAYS = ("none", "off", "null", "otlp")


class Null(SpanExporter):
    """Takes every span and does nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass


class Taker(BaseHTTPRequestHandler):
    """Reads and drops what it is sent."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
        pass


def take(ready: Connection) -> None:
    server = HTTPServer(("127.0.0.1", 0), Taker)
    ready.send(server.server_port)
    server.serve_forever()


class Hanging(Null):
    """Takes nothing before it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.go.wait()
        return SpanExportResult.SUCCESS


class Timed(Instant):
    """Says what processor time its reading took, too."""

    reading_cpu_s = 0.0

    def read(self, pieces: Iterable[bytes]) -> None:
        began = time.thread_time()
        super().read(pieces)
        self.reading_cpu_s += time.thread_time() - began


class Took(NamedTuple):
    """Seconds a turn: until the run was over, until every span was taken, and of processor time until then."""

    watched: float
    closed: float
    cpu: float


def telemetry(way: str, port: int) -> Telemetry | None:
    match way:
        case "null":
            return exporting(Null())
        case "otlp":
            return otlp(f"http://127.0.0.1:{port}")
        case _:
            return None


async def run_once(turns: int, journal: Journal, way: str, watching: Telemetry | None) -> Took:
    provider = Timed(turns)
    limits = Limits(max_iterations=turns + 10)
    if way == "none":
        opened = Swarm([provider], journal, limits=limits)
    else:
        opened = FrontDoor([provider], journal=journal, telemetry=watching, limits=limits)
    async with opened as swarm:
        gc.collect()
        began, began_cpu = time.perf_counter(), time.process_time()
        run = await swarm.spawn(BLUEPRINT, task="work", tools=[work])
        outcome = await run.result()
        watched = time.perf_counter() - began
        if watching is not None:
            watching.close()
        closed, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    assert outcome.status == "complete", outcome
    if watching is not None:
        counted = watching.statistics()
        assert counted.exported == counted.spans > turns * 2, counted
    wall_s = provider.reading_s
    return Took((watched - wall_s) / turns, (closed - wall_s) / turns, (cpu - provider.reading_cpu_s) / turns)


def measure(args: argparse.Namespace, where: str, folder: Path, port: int) -> None:
    rows: list[dict[str, Took]] = []
    for number in range(args.rounds):
        row = {}
        for way in WAYS if number % 2 else reversed(WAYS):
            path = folder / f"{where}-{way}-{number}.db"
            journal: Journal = MemoryJournal() if where == "memory" else SqliteJournal(path)
            row[way] = anyio.run(run_once, args.turns, journal, way, telemetry(way, port), backend=args.backend)
            journal.close()
        rows.append(row)
    figure(f"telemetry/{where}/none", statistics.median(row["none"].watched for row in rows) * 1e6, "us per turn")
    for way in WAYS[1:]:
        for name in ("watched", "cpu") if way == "off" else Took._fields:
            base = "watched" if name == "closed" else name
            ratio = statistics.median(getattr(row[way], name) / getattr(row["none"], base) for row in rows)
            added = statistics.median(getattr(row[way], name) - getattr(row["none"], base) for row in rows)
            figure(f"telemetry/{where}/{way}/{name}", ratio, "x none", added_us_per_turn=round(added * 1e6, 1))


def measure_queue(times: int = 3) -> None:
    """Feed *times* as many spans as there is room for to a receiver that hangs."""
    events: list[Event] = []
    turns = 1000

    async def record() -> None:
        limits = Limits(max_iterations=turns + 10)
        async with Swarm([Instant(turns)], MemoryJournal(), [events.append], limits=limits) as swarm:
            await (await swarm.spawn(BLUEPRINT, task="work", tools=[work])).result()

    anyio.run(record)
    exporter = Hanging()
    watching = exporting(exporter)
    gc.collect()
    tracemalloc.start()
    sizes: list[int] = []
    for number in range(times * QUEUE_SPANS // (2 * turns) + 1):
        for event in events:
            watching(msgspec.structs.replace(event, run_id=f"run {number}"))
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    counted = watching.statistics()
    exporter.go.set()
    watching.close()
    full = next(number for number, size in enumerate(sizes) if size > 0.99 * sizes[-1])
    figure("telemetry/queue/waiting", counted.waiting, "spans", most=QUEUE_SPANS + BATCH_SPANS, dropped=counted.dropped)
    figure("telemetry/queue/memory", sizes[-1] / counted.waiting, "bytes per span that waits")
    figure("telemetry/queue/full", sizes[-1] / 2**20, "MiB", three_times_later=round(sizes[-1] / sizes[full], 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--journals", nargs="+", default=["memory", "normal"])
    parser.add_argument("--backend", default="asyncio")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    receiver = context.Process(target=take, args=(theirs,), daemon=True)
    receiver.start()
    port = ours.recv()
    with tempfile.TemporaryDirectory() as name:
        for where in args.journals:
            measure(args, where, Path(name), port)
    receiver.terminate()
    measure_queue()


if __name__ == "__main__":
    main()
