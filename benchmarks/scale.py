"""Many runs in one process: 10,000 readers at once, bursts of big writes, and what is left of memory when all is over.

    python benchmarks/scale.py [--runs 10000] [--latency 2.0] [--pool 1000] [--burst 10,100,500]

The readers are those of the blueprint `digest`, served by the embedded provider, which answers after a fixed time.
`drain` is the time from the first spawn to the last end over `calls x latency / pool`, the least that a pool of that
width allows.

`sleeping` is what a run costs that has only to wait and has left memory: of a first wave together with what all of
them took at once while they lived, which the allocator keeps for whoever comes next; of a second wave alone.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
from swarm import Steady, figure, private_bytes

from shoal.blueprints import Blueprint, InteractionPoint, Nudge, Region, Stage, load, resolve
from shoal.providers import Completed, Reply, Request, StreamEvent, Text, ToolCall, Usage, offline
from shoal.runtime import Limits, SqliteJournal, Swarm

PAGES = 100
BRIEF = "Say in a few sentences what the file holds."
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
    """Appends a big note each turn, encodes each request, and lets all runs wait for their last reply at once."""

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.read(request)
        turns = sum(m.role == "assistant" for segment in request.messages for m in segment.messages)
        await anyio.sleep(self.latency_s)
        if turns < BURST_TURNS:
            note = f'{{"region": "pages", "content": "{turns}{_NOTE}"}}'
            made = (ToolCall("c", "context_append", Text.of(note)),)
            yield Completed(Reply(Text.of(""), made), Usage(uncached=10), "tool_calls", simulated=True)
        else:
            await self.hold()
            yield Completed(Reply(Text.of("done")), Usage(uncached=10), simulated=True)


async def many(args: argparse.Namespace) -> None:
    reader = load(resolve("digest") / "reader")
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "pages"
        pages.mkdir()
        for n in range(PAGES):
            (pages / f"{n}.txt").write_text(f"Page {n} says something. " * 40)
        journal = SqliteJournal(Path(folder) / "runs.db")
        async with Swarm([offline(latency_s=args.latency)], journal, limits=Limits(inferences=args.pool)) as swarm:
            warm = await swarm.spawn(reader, seeds={"path": "0.txt", "brief": BRIEF}, workdir=pages)
            await warm.result()
            gc.collect()
            before, began = private_bytes(), time.perf_counter()
            runs = [
                await swarm.spawn(reader, seeds={"path": f"{n % PAGES}.txt", "brief": BRIEF}, workdir=pages)
                for n in range(args.runs)
            ]
            spawned, peak = time.perf_counter() - began, private_bytes()
            for run in runs:
                outcome = await run.result()
                assert outcome.status == "complete", outcome
            wall = time.perf_counter() - began
            calls = sum(event.kind == "InferenceStarted" for event in swarm.journal.read(warm.run_id))
        journal.close()
    ideal = args.runs * calls * args.latency / args.pool
    figure("scale/spawned", args.runs / spawned, "runs a second", runs=args.runs)
    figure("scale/memory", (peak - before) / args.runs / 1024, "kB private a run, all of them spawned")
    figure("scale/drain", wall / ideal, "x ideal", ideal_s=round(ideal, 1), pool=args.pool, calls_a_run=calls)


async def burst(runs: int) -> None:
    await one_burst(1)  # brings in what all of them share
    before = private_bytes()
    peak, held = await one_burst(runs)
    left = private_bytes()
    await one_burst(runs)
    figure(f"burst/{runs}", (peak - before) / runs / held, "x bytes of the window, a run", bytes_of_the_window=held)
    figure(f"burst/{runs}/after", left / before, "x before")
    figure(f"burst/{runs}/again", private_bytes() / left, "x after the first")


async def one_burst(runs: int) -> tuple[int, int]:
    """Return private memory with all windows full, and what a window holds, in bytes."""
    provider = Writes(BURST_TURNS, 0.01)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db")
        async with Swarm([provider], journal, limits=Limits(inferences=runs, idle_s=None)) as swarm:
            provider.expect(runs)
            started = [await swarm.spawn(BURST, task=None) for _ in range(runs)]
            await provider.full.wait()
            gc.collect()
            peak = private_bytes()
            held = sum(state.chars for state in swarm.state(started[0].run_id).view.states.values())
            provider.held.set()
            for run in started:
                await run.result()
        journal.close()
    del started, run, swarm, provider, journal
    gc.collect()
    return peak, held


async def sleeping(runs: int) -> None:
    """Measure a second wave of runs: what the first left free is used again, so what is new is what sleepers hold."""
    provider = Steady(1, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(Path(folder) / "runs.db")
        async with Swarm([provider], journal, limits=Limits(inferences=runs, idle_s=0.2, question_s=None)) as swarm:
            gc.collect()
            for wave in ("first", "second"):
                before = private_bytes()
                for _ in range(runs):
                    await swarm.spawn(WAITS, unattended=False)
                while swarm.hall.home.live:  # noqa: ASYNC110 - until all of them sleep
                    await anyio.sleep(0.5)
                gc.collect()
                figure(f"scale/sleeping/{wave}", (private_bytes() - before) / runs, "B private a run")
        journal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--latency", type=float, default=2.0)
    parser.add_argument("--pool", type=int, default=1_000)
    parser.add_argument("--burst", default="10,100,500")
    parser.add_argument("--part", choices=("many", "sleeping", "burst"), help="measure this part, in this process")
    args = parser.parse_args()
    if args.part == "many":
        anyio.run(many, args)
    elif args.part == "sleeping":
        anyio.run(sleeping, args.runs)
    elif args.part == "burst":
        anyio.run(burst, args.runs)
    else:
        # Each in a process of its own: memory that one gave back would hide what the next one takes.
        pool = ["--latency", str(args.latency), "--pool", str(args.pool)]
        measured("many", args.runs, *pool)
        measured("sleeping", min(args.runs, 4_000))
        for runs in args.burst.split(","):
            measured("burst", int(runs))


def measured(part: str, runs: int, *more: str) -> None:
    """Measure *part* with so many *runs* in a process of its own."""
    subprocess.run([sys.executable, __file__, "--part", part, "--runs", str(runs), *more], check=True)


if __name__ == "__main__":
    main()
