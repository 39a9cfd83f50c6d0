"""Fan-out: a stage hands each item to a worker run; the answers come in the order of the items.

A worker sees its caller's values and nothing else of its parent. A parent that waits holds no place in any pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import anyio
import msgspec

from shoal.blueprints import FanOut
from shoal.errors import ShoalError
from shoal.providers import Message, Text
from shoal.runtime._calls import failure_text, permitted, write_waiting
from shoal.runtime._host import ChildRequest
from shoal.runtime._live import Live
from shoal.runtime._state import Child, Turn
from shoal.runtime.context import CONVERSATION, Draft, estimate
from shoal.runtime.events import ToolCallCompleted, ToolCallStarted
from shoal.runtime.tools import judge


@final
class Item(msgspec.Struct, frozen=True):
    """One item: its id, the worker's values, and its task."""

    id: str
    seeds: Mapping[str, str]
    task: str | None


@final
class Fate(msgspec.Struct, frozen=True):
    """What became of one item: the child that ended, or why there was none."""

    item: Item
    child: Child | None
    refused: str = ""

    @property
    def failed(self) -> bool:
        """It gave no answer that counts."""
        ended = None if self.child is None else self.child.ended
        return ended is None or ended.status not in ("complete", "complete_interactive")

    @property
    def status(self) -> str:
        """How it ended, one word."""
        ended = None if self.child is None else self.child.ended
        return "refused" if ended is None else ended.status

    @property
    def said(self) -> str:
        """Its answer, or why there is none."""
        ended = None if self.child is None else self.child.ended
        if ended is None:
            return self.refused
        return str(ended.output or ended.reason)


async def run_fan_out(live: Live, index: int) -> None:
    """Run call *index* of the newest reply: start a worker for each item, wait for all, and write their answers."""
    turn = live.state.turn
    assert turn is not None  # decided so
    call = turn.calls[index]
    verdict = judge(live.state.stage.tools, call.name, str(call.arguments), permitted(live))
    if verdict.gate is not None or verdict.asks:
        said = verdict.said or f"[denied] `{call.name}` needs somebody's approval and nobody is there"
        live.emit(ToolCallCompleted(turn.seq, index, Text.of(said), is_error=True, gate=verdict.gate or "permission"))
        return
    settings = live.state.stage.stage.fan_out or FanOut()
    items, problem, left_out = _items(verdict.args, settings)
    worker = settings.worker_agent or settings.worker_stage or verdict.args.get("agent")
    if worker is None:
        problem = "this stage names no worker; name a blueprint in `agent`"
    if problem:
        live.emit(ToolCallCompleted(turn.seq, index, Text.of(f"[error] {problem}"), is_error=True))
        return
    if index not in turn.started:
        live.emit(ToolCallStarted(turn.seq, index))
        await live.durable()
    width = verdict.args.get("max_workers") or settings.max_workers or len(items) or 1
    fates = await _work(live, turn, index, items, str(worker), settings, int(width))
    await _answer(live, turn, index, settings, fates, left_out)


def _items(args: Mapping[str, Any], settings: FanOut) -> tuple[list[Item], str, int]:
    """Return the items of a call, what is wrong with them, and how many are left out for `max_items`."""
    items = [Item(str(raw["id"]), dict(raw.get("seeds", {})), raw.get("task")) for raw in args["items"]]
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            return [], f"the item id {item.id!r} stands there twice; give each item an id of its own", 0
        seen.add(item.id)
    most = settings.max_items or len(items)
    return items[:most], "", max(0, len(items) - most)


async def _work(
    live: Live, turn: Turn, index: int, items: list[Item], worker: str, settings: FanOut, width: int
) -> list[Fate]:
    """Start a worker an item, *width* at once, and return what became of each, in the order of the items."""
    refused: dict[str, str] = {}
    places = anyio.Semaphore(width)
    shared = _stage_seeds(live)
    begun = {c.spawned.item: name for name, c in live.state.children.items() if c.spawned.source == turn.seq}

    async def one(item: Item) -> None:
        async with places:
            child = begun.get(item.id)
            if child is None:
                wanted = ChildRequest(
                    worker,
                    item.task,
                    {**shared, **item.seeds},
                    item.id,
                    settings.worker_stage,
                    turn.seq,
                    index,
                    by_model=settings.worker_agent is None and settings.worker_stage is None,
                )
                try:
                    child = await live.host.spawn_child(live.run_id, wanted)
                except ShoalError as exc:
                    refused[item.id] = failure_text(exc)
                    return
            if live.state.children[child].ended is None:
                live.emit(await live.host.child_end(child))

    async with anyio.create_task_group() as tasks:
        for item in items:
            tasks.start_soon(one, item)
    children = {c.spawned.item: c for c in live.state.children.values() if c.spawned.source == turn.seq}
    return [Fate(item, children.get(item.id), refused.get(item.id, "")) for item in items]


def _stage_seeds(live: Live) -> dict[str, str]:
    """Return the regions that the stage hands to its workers, as text by caller name."""
    states = live.state.view.states
    return {
        name: "\n\n".join(entry.text for entry in states[region].all_entries())
        for name, region in live.state.stage.stage.seeds.items()
        if not states[region].empty
    }


async def _answer(live: Live, turn: Turn, index: int, settings: FanOut, fates: list[Fate], left_out: int) -> None:
    failed = [fate for fate in fates if fate.failed]
    lines = [f"{len(fates)} workers: {len(fates) - len(failed)} complete, {len(failed)} failed."]
    if left_out:
        lines.append(f"{left_out} items were left out: a fan-out takes at most {settings.max_items}.")
    lines.extend(f"- {fate.item.id}: {fate.status}: {_line(fate.said)}" for fate in failed)
    staged = live.state.stage.stage.mode == "fan_out"
    region = settings.results_region
    if staged and region != CONVERSATION:
        await _write_sections(live, region, fates)
        lines.append(f"Their answers are in the region `{region}`.")
    elif fates:
        lines.append("")
        lines.append("\n\n".join(_section(fate) for fate in fates))
    fatal = bool(failed) and settings.on_worker_failure == "fail_all"
    live.emit(
        ToolCallCompleted(turn.seq, index, Text.of("\n".join(lines)), is_error=fatal, gate="workers" if fatal else "")
    )


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else f"{line[:199]}…"


def _section(fate: Fate) -> str:
    heading = f"--- {fate.item.id} (refused) ---" if fate.child is None else fate.child.heading
    return f"{heading}\n{fate.said}"


async def _write_sections(live: Live, region: str, fates: list[Fate]) -> None:
    """Put each answer into *region*, in the order of the items, each with an equal share of what is left there."""
    state = live.state.view.states[region]
    room = state.limits.estimated(live.state.view.ratio).budget - state.charged
    share = max(1, room // max(1, len(fates)))
    for fate in fates:
        message = Message("user", (Text.of(_section(fate)),))
        source = 0 if fate.child is None else fate.child.ended_seq
        draft = Draft("text", message, max(1, estimate(message)), source, key=fate.item.id, writer="routing")
        await write_waiting(live, region, draft, share)
