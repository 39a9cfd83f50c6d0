"""What watching costs: framework time of one turn with no observer, with a null exporter, and with OTLP over loopback.

    python benchmarks/telemetry.py [--turns 800] [--rounds 5] [--journals memory normal]

The turn is that of `turn.py`: a reply that calls a tool, and its result; two spans. The provider answers at once, so
this is the worst case there is: beside a model that takes a second, all of it disappears. `watched` counts until the
run is over, while the exporter's thread is at work; `closed` counts until every span has been taken by the receiver,
which lives in a process of its own and reads and drops what it gets.

Figures are ratios to the same turn without an observer, within one round: the machine's own speed does not enter. One
JSON line a figure.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path

import anyio
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from turn import BLUEPRINT, Instant, figure, work

from shoal.observability import Telemetry, exporting, otlp
from shoal.runtime import Journal, Limits, MemoryJournal, SqliteJournal, Swarm

WAYS = ("off", "null", "otlp")


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


def telemetry(way: str, port: int) -> Telemetry | None:
    match way:
        case "null":
            return exporting(Null())
        case "otlp":
            return otlp(f"http://127.0.0.1:{port}")
        case _:
            return None


async def run_once(turns: int, journal: Journal, watching: Telemetry | None) -> tuple[float, float]:
    """Return seconds a turn until the run was over, and until every span was taken."""
    provider = Instant(turns)
    limits = Limits(max_iterations=turns + 10)
    async with Swarm([provider], journal, [] if watching is None else [watching], limits=limits) as swarm:
        gc.collect()
        began = time.perf_counter()
        run = await swarm.spawn(BLUEPRINT, task="work", tools=[work])
        outcome = await run.result()
        watched = time.perf_counter() - began
        if watching is not None:
            watching.close()
        closed = time.perf_counter() - began
    assert outcome.status == "complete", outcome
    if watching is not None:
        counted = watching.statistics()
        assert counted.exported == counted.spans > turns * 2, counted
    return (watched - provider.reading_s) / turns, (closed - provider.reading_s) / turns


def measure(args: argparse.Namespace, where: str, folder: Path, port: int) -> None:
    rows: list[dict[str, tuple[float, float]]] = []
    for number in range(args.rounds):
        row = {}
        for way in WAYS if number % 2 else reversed(WAYS):
            path = folder / f"{where}-{way}-{number}.db"
            journal: Journal = MemoryJournal() if where == "memory" else SqliteJournal(path)
            row[way] = anyio.run(run_once, args.turns, journal, telemetry(way, port), backend=args.backend)
            journal.close()
        rows.append(row)
    off = statistics.median(row["off"][0] for row in rows)
    figure(f"telemetry/{where}/off", off * 1e6, "us per turn")
    for way in WAYS[1:]:
        for place, name in enumerate(("watched", "closed")):
            ratio = statistics.median(row[way][place] / row["off"][0] for row in rows)
            added = statistics.median(row[way][place] - row["off"][0] for row in rows)
            figure(f"telemetry/{where}/{way}/{name}", ratio, "x off", added_us_per_turn=round(added * 1e6, 1))


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


if __name__ == "__main__":
    main()
