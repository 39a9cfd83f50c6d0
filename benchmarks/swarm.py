"""A fan-out of many runs on an in-process provider of fixed latency: CPU a call, wall over ideal, memory a run.

    python benchmarks/swarm.py [--runs 1000] [--calls 5] [--latency 0.05] [--backend asyncio]

Journal, regions and events are on. The provider encodes each request and reads every byte of it. Beside each figure
stands the same work on bare tasks that only sleep.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import tempfile
import time
import zlib
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import anyio

from shoal.blueprints import Blueprint, CallerSeed, Nudge, Region, Stage
from shoal.providers import (
    SERVERS,
    Completed,
    ModelProfile,
    Price,
    Reply,
    Request,
    StreamEvent,
    Text,
    TokenCount,
    ToolCall,
    Usage,
    chat_encoder,
)
from shoal.runtime import Journal, Limits, MemoryJournal, SqliteJournal, Swarm, tool

PRICE = Price(Decimal(1), Decimal(5), Decimal("0.1"))
CALL = (ToolCall("c", "work", Text.of('{"n": 1}')),)
RESULT = "x" * 1000


@tool(reads=True)
async def work(n: int) -> str:
    """Do a piece of work."""
    return RESULT


class Steady:
    """Answers after a fixed time: a tool call, again and again, then a closing text."""

    name = "steady"
    default_model = "m"

    def __init__(self, calls: int, latency_s: float) -> None:
        self.calls = calls
        self.latency_s = latency_s
        self.asked = 0
        self.reading_s = 0.0
        self.digest = 0
        self._encoder = chat_encoder(SERVERS["generic"])

    def profile(self, model: str) -> ModelProfile:
        return ModelProfile(model, window_tokens=200_000, max_output_tokens=4096, price=PRICE)

    async def count_tokens(self, request: Request) -> TokenCount:
        return TokenCount(0, "estimate")

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        began = time.perf_counter()
        body = self._encoder.encode(request)
        for piece in body.pieces():
            self.digest = zlib.crc32(piece, self.digest)
        self.reading_s += time.perf_counter() - began
        self.asked += 1
        await anyio.sleep(self.latency_s)
        turns = sum(m.role == "assistant" for segment in request.messages for m in segment.messages)
        usage = Usage(uncached=body.size // 4, output=10)
        if turns < self.calls - 1:
            yield Completed(Reply(Text.of(""), CALL), usage, "tool_calls", simulated=True)
        else:
            yield Completed(Reply(Text.of("done")), usage, simulated=True)

    async def aclose(self) -> None:
        pass


BLUEPRINT = Blueprint(
    "fan",
    (Stage("work", available_tools=("work",), nudge=Nudge(enabled=False)),),
    regions=(
        Region("path", kind="pinned", seed=CallerSeed("path"), volatility="stable"),
        Region("notes", kind="temporary", volatility="grows"),
        Region("todos", kind="checklist"),
        Region("facts", kind="hashmap"),
        Region("stage_instructions", kind="pinned"),
        Region("conversation", kind="sliding_window", budget=0.5, max_items=None),
    ),
)


def private_bytes() -> int:
    fields = dict(line.split(":") for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) * 1024


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def bare(runs: int, calls: int, latency_s: float) -> tuple[float, float]:
    async def one() -> None:
        for _ in range(calls):
            await anyio.sleep(latency_s)

    before, began = cpu(), time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(runs):
            tasks.start_soon(one)
    return cpu() - before, time.perf_counter() - began


async def swarm(args: argparse.Namespace, journal: Journal) -> dict[str, float]:
    provider = Steady(args.calls, args.latency)
    async with Swarm([provider], journal, limits=Limits(inferences=args.runs)) as made:
        gc.collect()
        memory = private_bytes()
        before, began = cpu(), time.perf_counter()
        runs = []
        async with anyio.create_task_group() as tasks:

            async def spawn(n: int) -> None:
                runs.append(await made.spawn(BLUEPRINT, seeds={"path": f"file {n}"}, tools=[work]))

            for n in range(args.runs):
                tasks.start_soon(spawn, n)
        spawned = time.perf_counter() - began
        peak = private_bytes()
        for run in runs:
            outcome = await run.result()
            assert outcome.status == "complete", outcome
            peak = max(peak, private_bytes()) if not len(runs) % 97 else peak
        wall, used = time.perf_counter() - began, cpu() - before
        peak = max(peak, private_bytes())
    calls = args.runs * args.calls
    assert provider.asked == calls
    return {
        "cpu_us": (used - provider.reading_s) / calls * 1e6,
        "reading_us": provider.reading_s / calls * 1e6,
        "wall": wall / (args.calls * args.latency),
        "spawn_us": spawned / args.runs * 1e6,
        "kb_a_run": (peak - memory) / args.runs / 1024,
    }


def figure(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"figure": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--backend", default="asyncio")
    parser.add_argument("--where", default="memory,normal")
    args = parser.parse_args()
    calls = args.runs * args.calls
    used, wall = anyio.run(bare, args.runs, args.calls, args.latency, backend=args.backend)
    figure(
        "fan-out/bare/cpu",
        used / calls * 1e6,
        "us a call",
        wall_over_ideal=round(wall / (args.calls * args.latency), 2),
    )
    for where in args.where.split(","):
        with tempfile.TemporaryDirectory() as folder:
            journal: Journal = MemoryJournal() if where == "memory" else SqliteJournal(Path(folder) / "runs.db")
            result = anyio.run(swarm, args, journal, backend=args.backend)
            journal.close()
        figure(
            f"fan-out/{where}/cpu", result["cpu_us"], "us a call", reading_us_subtracted=round(result["reading_us"], 1)
        )
        figure(f"fan-out/{where}/wall", result["wall"], "x ideal")
        figure(f"fan-out/{where}/spawn", result["spawn_us"], "us a run")
        figure(f"fan-out/{where}/memory", result["kb_a_run"], "kB private a run")


if __name__ == "__main__":
    assert asyncio
    main()
