"""Many runs in one process: 10,000 readers at once, bursts of big writes, and what is left of memory when all is over.

    python benchmarks/scale.py [--runs 10000] [--calls 3] [--latency 1.0] [--pool 2500] [--burst 10,100,500]

`drain` is the time from the first spawn to the last end over `calls x latency / pool`, the least that a pool of that
width allows.

`sleeping` is what a run costs that has only to wait and has left memory: of a first wave together with what all of
them took at once while they lived, which the allocator keeps for whoever comes next; of a second wave alone.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from swarm import BLUEPRINT, Steady, figure, private_bytes, work

from shoal.blueprints import Blueprint, InteractionPoint, Nudge, Region, Stage
from shoal.providers import Completed, Reply, Request, StreamEvent, Text, ToolCall, Usage
from shoal.runtime import Limits, MemoryJournal, SqliteJournal, Swarm

BURST_TURNS = 12
BURST_BYTES = 25_000
_NOTE = "x" * BURST_BYTES

BURST = Blueprint(
    "burst",
    (Stage("write", available_tools=("context_append",), nudge=Nudge(enabled=False)),),
    regions=(
        Region("pages", kind="temporary", max_tokens=90_000, volatility="grows"),
        Region("conversation", kind="sliding_window", max_tokens=90_000, max_items=None),
    ),
)
WAITS = Blueprint(
    "waits",
    (Stage("ask", available_tools=(), interaction_points=(InteractionPoint("go", "Go on?"),)),),
    regions=(Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None),),
)


class Writes(Steady):
    """Appends a big note each turn, then says that it is done."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        turns = sum(m.role == "assistant" for segment in request.messages for m in segment.messages)
        await anyio.sleep(self.latency_s)
        if turns < BURST_TURNS:
            note = f'{{"region": "pages", "content": "{turns}{_NOTE}"}}'
            made = (ToolCall("c", "context_append", Text.of(note)),)
            yield Completed(Reply(Text.of(""), made), Usage(uncached=10), "tool_calls", simulated=True)
        else:
            yield Completed(Reply(Text.of("done")), Usage(uncached=10), simulated=True)


async def many(args: argparse.Namespace) -> None:
    provider = Steady(args.calls, args.latency)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db")
        async with Swarm([provider], journal, limits=Limits(inferences=args.pool, idle_s=None)) as swarm:
            gc.collect()
            before, began = private_bytes(), time.perf_counter()
            runs = [await swarm.spawn(BLUEPRINT, seeds={"path": f"file {n}"}, tools=[work]) for n in range(args.runs)]
            spawned, peak = time.perf_counter() - began, private_bytes()
            for run in runs:
                await run.result()
            wall = time.perf_counter() - began
        journal.close()
    ideal = args.runs * args.calls * args.latency / args.pool
    figure("scale/spawned", args.runs / spawned, "runs a second", runs=args.runs)
    figure("scale/memory", (peak - before) / args.runs / 1024, "kB private a run, all of them spawned")
    figure("scale/drain", wall / ideal, "x ideal", ideal_s=round(ideal, 1), pool=args.pool)


async def burst(runs: int) -> None:
    provider = Writes(BURST_TURNS, 0.01)
    async with Swarm([provider], MemoryJournal(), limits=Limits(inferences=runs, idle_s=None)) as swarm:
        gc.collect()
        before = private_bytes()
        started = [await swarm.spawn(BURST, task=None) for _ in range(runs)]
        peak = before
        for run in started:
            await run.result()
            peak = max(peak, private_bytes())
    figure(f"burst/{runs}", (peak - before) / runs / (BURST_TURNS * BURST_BYTES), "x bytes of the window, a run")
    del started, swarm, provider
    gc.collect()
    figure(f"burst/{runs}/after", private_bytes() / before, "x before")


async def sleeping(runs: int) -> None:
    """Measure a second wave of runs: what the first left free is used again, so what is new is what sleepers hold."""
    provider = Steady(1, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db")
        async with Swarm([provider], journal, limits=Limits(inferences=runs, idle_s=1.0, question_s=None)) as swarm:
            gc.collect()
            for wave in ("first", "second"):
                before = private_bytes()
                for _ in range(runs):
                    await swarm.spawn(WAITS, unattended=False)
                while swarm.hall.live:  # noqa: ASYNC110 - until all of them sleep
                    await anyio.sleep(0.5)
                gc.collect()
                figure(f"scale/sleeping/{wave}", (private_bytes() - before) / runs, "B private a run")
        journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--pool", type=int, default=2_500)
    parser.add_argument("--burst", default="10,100,500")
    args = parser.parse_args()
    anyio.run(many, args)
    anyio.run(sleeping, min(args.runs, 4_000))
    for runs in args.burst.split(","):
        anyio.run(burst, int(runs))


if __name__ == "__main__":
    main()
