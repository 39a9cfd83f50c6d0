"""What the actor kernel costs, against the bare primitives it stands on, measured in the same run.

Each figure is the median over several rounds in which the contenders take turns, so that a slow moment of the machine
hits all of them. Speeds are ratios (ours over theirs; 1 is as fast); `asyncio_queue` is an `asyncio.Queue` between two
tasks, `stream` a memory object stream of anyio, `task` a bare task in a task group of anyio.

    python benchmarks/actors.py [--rounds 7] [--scale 1.0]

One JSON line per figure.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import anyio

from shoal.actors import Actor, ChildSpec, DynamicSupervisor, Question, Supervisor, running

MAIL = 1000


@dataclass(frozen=True, slots=True)
class Note:
    """Something to send."""

    number: int


@dataclass(frozen=True, slots=True)
class Ping(Question[int]):
    """Something to ask."""

    number: int


class Sink(Actor):
    """Counts what it gets, and says when it got all."""

    def __init__(self, expected: int, done: anyio.Event) -> None:
        self.left = expected
        self.done = done

    async def receive(self, message: Note) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()


class Echo(Actor):
    """Answers with the number it was asked with."""

    async def receive(self, message: Ping) -> int:
        return message.number


class Idle(Actor):
    """Does nothing."""


async def send_actor(count: int) -> float:
    done = anyio.Event()
    async with running(Supervisor("bench", children=[ChildSpec("sink", lambda: Sink(count, done))])) as tree:
        ref = tree.ref("sink")
        began = time.perf_counter()
        for number in range(count):
            await ref.send(Note(number))
        await done.wait()
        return count / (time.perf_counter() - began)


async def send_queue(count: int) -> float:
    queue: asyncio.Queue[Note] = asyncio.Queue(MAIL)

    async def drain() -> None:
        for _ in range(count):
            await queue.get()

    async with anyio.create_task_group() as tasks:
        began = time.perf_counter()
        tasks.start_soon(drain)
        for number in range(count):
            await queue.put(Note(number))
    return count / (time.perf_counter() - began)


async def send_stream(count: int) -> float:
    outlet, inlet = anyio.create_memory_object_stream[Note](MAIL)

    async def drain() -> None:
        for _ in range(count):
            await inlet.receive()

    with outlet, inlet:
        async with anyio.create_task_group() as tasks:
            began = time.perf_counter()
            tasks.start_soon(drain)
            for number in range(count):
                await outlet.send(Note(number))
        return count / (time.perf_counter() - began)


async def ask_actor(count: int) -> float:
    async with running(Supervisor("bench", children=[ChildSpec("echo", Echo)])) as tree:
        ref = tree.ref("echo")
        began = time.perf_counter()
        for number in range(count):
            await ref.ask(Ping(number), timeout_s=5.0)
        return count / (time.perf_counter() - began)


async def ask_queue(count: int) -> float:
    questions: asyncio.Queue[Ping] = asyncio.Queue(MAIL)
    answers: asyncio.Queue[int] = asyncio.Queue(MAIL)

    async def echo() -> None:
        for _ in range(count):
            await answers.put((await questions.get()).number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(echo)
        began = time.perf_counter()
        for number in range(count):
            await questions.put(Ping(number))
            await answers.get()
        return count / (time.perf_counter() - began)


async def ask_stream(count: int) -> float:
    outlet, inlet = anyio.create_memory_object_stream[Ping](MAIL)
    back, front = anyio.create_memory_object_stream[int](MAIL)

    async def echo() -> None:
        for _ in range(count):
            await back.send((await inlet.receive()).number)

    with outlet, inlet, back, front:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(echo)
            began = time.perf_counter()
            for number in range(count):
                await outlet.send(Ping(number))
                await front.receive()
            return count / (time.perf_counter() - began)


async def spawn_actor(count: int) -> float:
    async with running(DynamicSupervisor("bench", template=ChildSpec("idle", Idle))) as tree:
        began = time.perf_counter()
        for _ in range(count):
            await tree.start_child()
        return count / (time.perf_counter() - began)


async def spawn_task(count: int) -> float:
    async def idle(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        began = time.perf_counter()
        for _ in range(count):
            await tasks.start(idle)
        took = time.perf_counter() - began
        tasks.cancel_scope.cancel()
    return count / took


Contender = Callable[[int], Awaitable[float]]

RACES: tuple[tuple[str, int, Contender, tuple[tuple[str, Contender], ...]], ...] = (
    ("sends", 20_000, send_actor, (("asyncio_queue", send_queue), ("stream", send_stream))),
    ("asks", 5_000, ask_actor, (("asyncio_queue", ask_queue), ("stream", ask_stream))),
    ("spawns", 1_000, spawn_actor, (("task", spawn_task),)),
)


def race(backend: str, rounds: int, scale: float) -> None:
    for figure, count, ours, theirs in RACES:
        contenders = [
            ("ours", ours),
            *((name, run) for name, run in theirs if backend == "asyncio" or name != "asyncio_queue"),
        ]
        speeds: dict[str, list[float]] = {name: [] for name, _ in contenders}
        for _ in range(rounds):
            for name, run in contenders:
                gc.collect()
                speeds[name].append(anyio.run(run, max(1, int(count * scale)), backend=backend))
        own = statistics.median(speeds["ours"])
        show(f"{figure}_per_s", round(own), "per second", backend=backend)
        for name, _ in contenders[1:]:
            ratio = statistics.median(mine / other for mine, other in zip(speeds["ours"], speeds[name], strict=True))
            show(f"{figure}_over_{name}", round(ratio, 3), "ratio", backend=backend)


async def idle_bytes(count: int) -> float:
    async with running(DynamicSupervisor("bench", template=ChildSpec("idle", Idle))) as tree:
        await tree.start_child()
        gc.collect()
        tracemalloc.start()
        for _ in range(count):
            await tree.start_child()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size / count


def show(figure: str, value: float, unit: str, **more: Any) -> None:
    print(json.dumps({"figure": figure, "value": value, "unit": unit, **more}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each contender runs")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies how much each does in a round")
    options = parser.parse_args()
    for backend in ("asyncio", "trio"):
        race(backend, options.rounds, options.scale)
        count = max(1, int(2_000 * options.scale))
        show("idle_actor", round(anyio.run(idle_bytes, count, backend=backend)), "bytes", backend=backend, actors=count)


if __name__ == "__main__":
    main()
