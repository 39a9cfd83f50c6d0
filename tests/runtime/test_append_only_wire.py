"""Runs on a model that binds its thinking to every byte before it, against a server that refuses as its vendor does.

Whatever happens to a window, every request is legal, and within an epoch no byte that was sent changes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from runkit import TASK, blueprint, edge, events_of, folded, payloads, stage

from shoal.blueprints import FilesSeed, Region, Stage
from shoal.providers import anthropic
from shoal.runtime import Event, Limits, MemoryJournal, Swarm
from shoal.runtime.events import InferenceStarted
from shoal.testing import wire

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.wall_limit(120)]

MODEL = "claude-opus-5-5"
WORKING = ("context_append", "context_write", "context_delete", "context_list", "todo_add", "todo_done")
REGIONS = (
    TASK,
    Region("rules", kind="pinned", max_tokens=400),
    Region("log", kind="temporary", max_tokens=400, volatility="grows"),
    Region("facts", kind="hashmap", max_tokens=300, max_entries=3),
    Region("todos", kind="checklist", max_tokens=200),
    Region("talk", kind="sliding_window", max_tokens=200),
    Region("files", seed=FilesSeed(("news.txt",), refresh="each_stage")),
    Region("plan", max_tokens=200, placement="tail"),
    Region("stage_instructions", kind="pinned", max_tokens=200),
    Region("conversation", kind="sliding_window", max_tokens=900, max_items=14, strategy="bulk", overflow=6),
)


class Agent:
    """Thinks, and then works on its regions at random; it says at last that it is done.

    Args:
        seed: Another seed, another agent.
        turns: How often it calls tools.
        before: Called in front of each turn.
    """

    def __init__(self, seed: int, *, turns: int = 24, before: Callable[[], None] = lambda: None) -> None:
        self._dice = random.Random(seed)
        self._left = turns
        self._before = before

    def __call__(self, ask: wire.Ask) -> wire.Turn:
        self._before()
        self._left -= 1
        dice = self._dice
        parts: list[Any] = [wire.think(f"Let me see {self._left}.")] if dice.random() < 0.8 else []
        if not ask.tools or self._left < 0 or dice.random() < 0.12:
            return wire.turn(*parts, f"Stage done at {self._left}.")
        parts += [self._call() for _ in range(dice.choice((1, 1, 2)))]
        return wire.turn(*parts)

    def _call(self) -> wire.Call:
        dice = self._dice
        text = f"{dice.randint(0, 9)} " * dice.choice((1, 20, 120))
        region = dice.choice(("rules", "log", "facts", "plan", "talk", "todos"))
        key = f"k{dice.randint(0, 4)}"
        match dice.randint(0, 6):
            case 0 | 1 | 2:
                return wire.call("context_append", region=region, content=text, key=key)
            case 3:
                return wire.call("context_write", region=region, content=text, key=key)
            case 4:
                return wire.call("todo_add", region="todos", item=f"item {dice.randint(0, 99)}")
            case 5:
                return wire.call("todo_done", region="todos", id=dice.randint(1, 5))
            case _:
                return wire.call("context_delete", region=region, oldest=1)


def stages() -> Sequence[Stage]:
    return (
        stage("a", available_tools=WORKING, system_prompt="Gather.", transitions=(edge("b"),)),
        stage("b", available_tools=WORKING, system_prompt="Write.", transitions=(edge("c"),)),
        stage("c", available_tools=WORKING[:4], system_prompt="Write.", transitions=(edge("d"),)),
        stage("d", available_tools=(), transitions=()),
    )


def unchanged(events: Sequence[Event], bodies: Sequence[dict[str, Any]]) -> int:
    """Check that within an epoch each request begins with all of the one before; return how many did."""
    fresh = True
    sent: list[bool] = []
    for event in events:
        if event.kind == "PromptEpoch":
            fresh = True
        elif isinstance(event.payload, InferenceStarted) and event.payload.purpose == "stage":
            sent.append(fresh)
            fresh = False
    assert len(sent) == len(bodies)
    held = 0
    for before, body, is_fresh in zip(bodies, bodies[1:], sent[1:], strict=False):
        if not is_fresh:
            assert (body.get("tools"), body.get("system")) == (before.get("tools"), before.get("system"))
            said, earlier = blocks(body), blocks(before)
            assert said[: len(earlier)] == earlier
            held += 1
    return held


def blocks(body: dict[str, Any]) -> list[Any]:
    """Return what *body* says, block by block, without cache markers: they bind nothing."""
    return [
        (message["role"], message.get("clear_at"), bare(block))
        for message in body["messages"]
        for block in message["content"]
    ]


def bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


@pytest.mark.parametrize("seed", range(8))
async def test_every_request_is_legal_and_begins_with_what_the_epoch_has_sent(seed: int, tmp_path: Any):
    news = tmp_path / "news.txt"
    turns = 0

    def write() -> None:
        nonlocal turns
        turns += 1
        news.write_text(f"edition {turns // 3}")

    write()
    async with wire.serve(Agent(seed, before=write)) as server:
        provider = anthropic("a-key-of-the-tests", base_url=server.base_url, model=MODEL, prefix_leader=False)
        async with Swarm([provider], MemoryJournal(), limits=Limits()) as swarm:
            with anyio.fail_after(60):
                run = await swarm.spawn(blueprint(*stages(), regions=REGIONS), task="news", workdir=tmp_path)
                await run.result()
            events = events_of(swarm, run)
            assert folded(swarm, run).dump()["epoch"] == swarm.hall.home.load(run.run_id).dump()["epoch"]
        assert [str(violation) for violation in server.violations] == []
        sent = [exchange.body for exchange in server.journal if "Give the task" not in str(exchange.body)]
    assert unchanged(events, sent) > 0
    assert payloads(events, "PromptAmended")
