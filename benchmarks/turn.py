"""Framework time of one turn at 50, 200 and 800 turns, in memory and with the journal, against a bare loop.

    python benchmarks/turn.py [--turns 50 200 800] [--rounds 5]

A turn is one reply that calls a tool and the tool's result of 1 kB. The provider answers at once, but encodes each
request and reads every byte of it (it returns a digest), so that a prompt nobody builds cannot be fast; what that
reading takes is timed by itself, shown beside, and subtracted. The bare loop keeps messages in a list of dicts.

Figures are ratios within one run: the machine's own speed does not enter. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
import zlib
from collections.abc import AsyncIterator, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Literal

import anyio

from shoal.blueprints import Blueprint, CallerSeed, Region, Stage
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

RESULT = "x" * 1000
PRICE = Price(Decimal(1), Decimal(5), Decimal("0.1"))
CALL = (ToolCall("c", "work", Text.of('{"n": 1}')),)


@tool(reads=True)
async def work(n: int) -> str:
    """Do a piece of work."""
    return RESULT


class Instant:
    """Answers at once: a tool call a turn, then a closing text. It reads every byte of every request."""

    name = "instant"
    default_model = "m"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.asked = 0
        self.reading_s = 0.0
        self.encoding_s = 0.0
        self.bytes = 0
        self.digest = 0
        self._encoder = chat_encoder(SERVERS["generic"])

    def profile(self, model: str) -> ModelProfile:
        return ModelProfile(model, window_tokens=10_000_000, max_output_tokens=4096, price=PRICE)

    async def count_tokens(self, request: Request) -> TokenCount:
        return TokenCount(0, "estimate")

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        body = self._encoder.encode(request)
        self.read(body.pieces())
        self.asked += 1
        usage = Usage(uncached=body.size // 4, output=10)
        if self.asked <= self.turns:
            yield Completed(Reply(Text.of(""), CALL), usage, "tool_calls", simulated=True)
        else:
            yield Completed(Reply(Text.of("done")), usage, simulated=True)

    def read(self, pieces: Iterable[bytes]) -> None:
        began = time.perf_counter()
        for piece in pieces:
            self.digest = zlib.crc32(piece, self.digest)
            self.bytes += len(piece)
        self.reading_s += time.perf_counter() - began

    async def aclose(self) -> None:
        pass


BLUEPRINT = Blueprint(
    "turns",
    (Stage("work", available_tools=("work",)),),
    regions=(
        Region("task", kind="pinned", seed=CallerSeed("task"), volatility="stable"),
        Region("notes", kind="temporary", volatility="grows"),
        Region("todos", kind="checklist"),
        Region("facts", kind="hashmap"),
        Region("stage_instructions", kind="pinned"),
        Region("conversation", kind="sliding_window", budget=1.0, max_items=None),
    ),
)


async def bare(turns: int) -> float:
    """Return seconds a turn of a list of dicts that is sent nowhere."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "task"}]
    began = time.perf_counter()
    for n in range(turns):
        await anyio.lowlevel.checkpoint()
        messages.append({"role": "assistant", "tool_calls": [{"id": f"c{n}", "name": "work", "arguments": '{"n": 1}'}]})
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": await work(1)})
    return (time.perf_counter() - began) / turns


async def run_once(turns: int, where: str, folder: Path) -> tuple[float, float]:
    """Return seconds a turn, the provider's reading subtracted, and that reading."""
    provider = Instant(turns)
    journal: Journal = MemoryJournal()
    if where != "memory":
        durability: Literal["normal", "full"] = "full" if where == "full" else "normal"
        journal = SqliteJournal(folder / f"{time.perf_counter_ns()}.db", durability=durability)
    limits = Limits(max_iterations=turns + 10)
    async with Swarm([provider], journal, limits=limits) as swarm:
        gc.collect()
        began = time.perf_counter()
        run = await swarm.spawn(BLUEPRINT, task="work", tools=[work])
        outcome = await run.result()
        took = time.perf_counter() - began
    assert outcome.status == "complete", outcome
    assert provider.asked == turns + 1
    journal.close()
    return (took - provider.reading_s) / turns, provider.reading_s / turns


def figure(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"figure": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, nargs="+", default=[50, 200, 800])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backend", default="asyncio")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for where in ("memory", "normal", "full"):
            medians: dict[int, float] = {}
            ratios: dict[int, float] = {}
            readings: dict[int, float] = {}
            samples: dict[int, list[tuple[float, float, float]]] = {turns: [] for turns in args.turns}
            for _ in range(args.rounds):
                for turns in args.turns:
                    base = anyio.run(bare, turns, backend=args.backend)
                    ours, reading = anyio.run(run_once, turns, where, folder, backend=args.backend)
                    samples[turns].append((base, ours, reading))
            for turns, rows in samples.items():
                medians[turns] = statistics.median(row[1] for row in rows)
                ratios[turns] = statistics.median(row[1] / row[0] for row in rows)
                readings[turns] = statistics.median(row[2] for row in rows)
                figure(
                    f"turn/{where}/{turns}",
                    ratios[turns],
                    "x bare loop",
                    us_per_turn=round(medians[turns] * 1e6, 1),
                    reading_us_subtracted=round(readings[turns] * 1e6, 1),
                )
            first, last = args.turns[0], args.turns[-1]
            figure(f"turn/{where}/growth", medians[last] / medians[first], f"x from {first} to {last} turns")


if __name__ == "__main__":
    main()
