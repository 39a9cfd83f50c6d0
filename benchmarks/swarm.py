"""A fan-out of many runs on an in-process provider of fixed latency: CPU a call, wall over ideal, memory a run.

    python benchmarks/swarm.py [--runs 1000] [--calls 5] [--latency 0.05] [--backend asyncio]

Journal, regions and events are on. The provider encodes each request and reads every byte of it; what that takes is
shown beside and subtracted. Beside each figure stands the same work on bare tasks that only sleep. Memory is measured
by itself, in a process of its own: with every run in its last call, what its window says subtracted.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
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
        self.held = anyio.Event()
        self.full = anyio.Event()
        self._expected: int | None = None
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
        size = self.read(request)
        self.reading_s += time.perf_counter() - began
        self.asked += 1
        turns = sum(m.role == "assistant" for segment in request.messages for m in segment.messages)
        if turns == self.calls - 1 and self._expected is not None:
            await self.hold()
        else:
            await anyio.sleep(self.latency_s)
        usage = Usage(uncached=size // 4, output=10)
        if turns < self.calls - 1:
            yield Completed(Reply(Text.of(""), CALL), usage, "tool_calls", simulated=True)
        else:
            yield Completed(Reply(Text.of("done")), usage, simulated=True)

    def read(self, request: Request) -> int:
        """Encode *request*, read every byte of it, and return how many there are."""
        body = self._encoder.encode(request)
        for piece in body.pieces():
            self.digest = zlib.crc32(piece, self.digest)
        return body.size

    def expect(self, runs: int) -> None:
        """Hold the last replies from here on; `full` is set once *runs* of them are held, and `held` lets them go."""
        self.full, self._expected = anyio.Event(), runs

    async def hold(self) -> None:
        """Wait, together with the others that are expected."""
        if self._expected is not None:
            self._expected -= 1
            if not self._expected:
                self.full.set()
            await self.held.wait()

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
        before, began = cpu(), time.perf_counter()
        runs = []
        async with anyio.create_task_group() as tasks:

            async def spawn(n: int) -> None:
                runs.append(await made.spawn(BLUEPRINT, seeds={"path": f"file {n}"}, tools=[work]))

            for n in range(args.runs):
                tasks.start_soon(spawn, n)
        spawned = time.perf_counter() - began
        for run in runs:
            outcome = await run.result()
            assert outcome.status == "complete", outcome
        wall, used = time.perf_counter() - began, cpu() - before
    calls = args.runs * args.calls
    assert provider.asked == calls
    return {
        "cpu_us": (used - provider.reading_s) / calls * 1e6,
        "reading_us": provider.reading_s / calls * 1e6,
        "wall": wall / (args.calls * args.latency),
        "spawn_us": spawned / args.runs * 1e6,
    }


async def weigh(args: argparse.Namespace, journal: Journal) -> dict[str, float]:
    """Return what a run takes while it waits for its last reply, in kB, and what of it its window says."""
    provider = Steady(args.calls, 0.001)
    provider.expect(1)
    async with Swarm([provider], journal, limits=Limits(inferences=args.runs + 1)) as made:
        await made.spawn(BLUEPRINT, seeds={"path": "what all of them share"}, tools=[work])
        await provider.full.wait()
        provider.expect(args.runs)
        gc.collect()
        before = private_bytes()
        for n in range(args.runs):
            await made.spawn(BLUEPRINT, seeds={"path": f"file {n}"}, tools=[work])
        await provider.full.wait()
        gc.collect()
        weight = (private_bytes() - before) / args.runs / 1024
        said = (args.calls - 1) * len(RESULT) / 1024
        provider.held.set()
    return {"kb_a_run": weight - said, "said": said}


def figure(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"figure": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def journaled(
    work: Callable[[argparse.Namespace, Journal], Awaitable[dict[str, float]]], args: argparse.Namespace, where: str
) -> dict[str, float]:
    """Return what *work* finds with a journal of its own."""
    with tempfile.TemporaryDirectory() as folder:
        journal: Journal = MemoryJournal() if where == "memory" else SqliteJournal(Path(folder) / "runs.db")
        result = anyio.run(work, args, journal, backend=args.backend)
        journal.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--latency", type=float, default=0.05)
    parser.add_argument("--backend", default="asyncio")
    parser.add_argument("--where", default="memory,normal")
    parser.add_argument("--weigh", action="store_true", help="weigh runs, and do nothing else")
    args = parser.parse_args()
    if args.weigh:
        result = journaled(weigh, args, args.where)
        figure(f"fan-out/{args.where}/memory", result["kb_a_run"], "kB private a run", said_subtracted=result["said"])
        return
    calls = args.runs * args.calls
    used, wall = anyio.run(bare, args.runs, args.calls, args.latency, backend=args.backend)
    figure(
        "fan-out/bare/cpu",
        used / calls * 1e6,
        "us a call",
        wall_over_ideal=round(wall / (args.calls * args.latency), 2),
    )
    for where in args.where.split(","):
        result = journaled(swarm, args, where)
        figure(
            f"fan-out/{where}/cpu", result["cpu_us"], "us a call", reading_us_subtracted=round(result["reading_us"], 1)
        )
        figure(f"fan-out/{where}/wall", result["wall"], "x ideal")
        figure(f"fan-out/{where}/spawn", result["spawn_us"], "us a run")
        again = [sys.executable, __file__, "--weigh", "--where", where, "--runs", str(args.runs)]
        subprocess.run([*again, "--calls", str(args.calls), "--backend", args.backend], check=True)


if __name__ == "__main__":
    assert asyncio
    main()
