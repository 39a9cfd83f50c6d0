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
from shoal.runtime._agents import handed_over
from shoal.runtime._failures import answer_of, failure_text
from shoal.runtime._host import ChildRequest
from shoal.runtime._live import Live
from shoal.runtime._people import approved
from shoal.runtime._results import write_waiting
from shoal.runtime.context import CONVERSATION, Draft, estimate
from shoal.runtime.events import ENDED_WELL, ItemRefused, ToolCallCompleted, ToolCallStarted
from shoal.runtime.state import Child, Turn, heading_of
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
    child: Child | None = None
    refused: ItemRefused | None = None
    refused_seq: int = 0

    @property
    def done(self) -> bool:
        """Nothing more comes of it."""
        return self.refused is not None if self.child is None else self.child.ended is not None

    @property
    def source(self) -> int:
        """Seq of the event that says what became of it."""
        return self.refused_seq if self.child is None else self.child.ended_seq

    @property
    def failed(self) -> bool:
        """It gave no answer that counts."""
        ended = None if self.child is None else self.child.ended
        return ended is None or ended.status not in ENDED_WELL

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
            return "" if self.refused is None else str(self.refused.why)
        return answer_of(ended)


@final
class Plan(msgspec.Struct):
    """How a fan-out call is carried out, worked out once a life of the run.

    Args:
        items: Its items, in order.
        worker: What each is handed to: a blueprint, or a stage.
        settings: The stage's settings.
        width: How many work at once.
        left_out: Items beyond what one call takes.
    """

    items: list[Item]
    worker: str
    settings: FanOut
    width: int
    left_out: int


async def advance_fan_out(live: Live, index: int) -> bool:
    """Take call *index* of the newest reply as far as it goes: start workers, and answer once all are done.

    Returns:
        Whether the run goes on at once; otherwise it has only to wait for workers, and is woken by their ends.
    """
    turn = live.state.turn
    assert turn is not None  # decided so
    plan = live.fan_outs.get((turn.seq, index)) or _planned(live, turn, index)
    if plan is None:
        return True
    live.fan_outs[turn.seq, index] = plan
    if index not in turn.started:
        live.emit(ToolCallStarted(turn.seq, index))
        await live.durable()
    await _start(live, turn, index, plan)
    fates = _fates(live, turn, index, plan)
    if not all(fate.done for fate in fates):
        return False
    await _answer(live, turn, index, plan, fates)
    del live.fan_outs[turn.seq, index]
    return True


def _planned(live: Live, turn: Turn, index: int) -> Plan | None:
    """Return how the call is carried out; `None` where it cannot be, and has its answer."""
    call = turn.calls[index]
    verdict = judge(live.state.stage.tools, call.name, str(call.arguments), live.permitted)
    if verdict.gate is not None:
        live.emit(ToolCallCompleted(turn.seq, index, Text.of(verdict.said), is_error=True, gate=verdict.gate))
        return None
    if verdict.asks and approved(live, turn, index, verdict) is not True:
        return None
    settings = live.state.stage.stage.fan_out or FanOut()
    items, problem, left_out = _items(verdict.args, settings)
    worker = _named(settings) or verdict.args.get("agent")
    if worker is None:
        problem = "this stage names no worker; name a blueprint in `agent`"
    if problem:
        live.emit(ToolCallCompleted(turn.seq, index, Text.of(f"[error] {problem}"), is_error=True))
        return None
    width = verdict.args.get("max_workers") or settings.max_workers or len(items) or 1
    return Plan(items, str(worker), settings, int(width), left_out)


def _named(settings: FanOut) -> str | None:
    """Return the worker that the stage names, in whichever way; `None` where the model names it."""
    return settings.worker_agent or settings.worker_stage or settings.worker_query


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


async def _start(live: Live, turn: Turn, index: int, plan: Plan) -> None:
    """Hand out as many items as may be worked on at once."""
    shared = handed_over(live)
    while live.state.phase == "running":
        fates = _fates(live, turn, index, plan)
        room = plan.width - sum(fate.child is not None and not fate.done for fate in fates)
        waiting = [fate.item for fate in fates if fate.child is None and fate.refused is None]
        if room < 1 or not waiting:
            return
        async with anyio.create_task_group() as tasks:
            for item in waiting[:room]:
                tasks.start_soon(_hand_out, live, turn, index, plan, item, shared)


async def _hand_out(live: Live, turn: Turn, index: int, plan: Plan, item: Item, shared: Mapping[str, str]) -> None:
    settings = plan.settings
    wanted = ChildRequest(
        plan.worker,
        item.task,
        {**shared, **item.seeds},
        item.id,
        settings.worker_stage,
        turn.seq,
        index,
        by_model=_named(settings) is None,
        waited=True,
    )
    try:
        await live.host.spawn_child(live.run_id, wanted)
    except ShoalError as exc:
        live.emit(ItemRefused(turn.seq, index, item.id, Text.of(failure_text(exc))))


def _fates(live: Live, turn: Turn, index: int, plan: Plan) -> list[Fate]:
    """Return what became of the items of a call so far, in their order."""
    made = (c for c in live.state.children.values() if (c.spawned.source, c.spawned.index) == (turn.seq, index))
    children = {child.spawned.item: child for child in made}
    refused = {each.item: (each, seq) for seq, each in turn.refused if each.index == index}
    return [Fate(item, children.get(item.id), *refused.get(item.id, (None, 0))) for item in plan.items]


async def _answer(live: Live, turn: Turn, index: int, plan: Plan, fates: list[Fate]) -> None:
    settings = plan.settings
    failed = [fate for fate in fates if fate.failed]
    lines = [f"{len(fates)} workers: {len(fates) - len(failed)} complete, {len(failed)} failed."]
    if plan.left_out:
        lines.append(f"{plan.left_out} items were left out: a fan-out takes at most {settings.max_items}.")
    lines.extend(f"- {_line(fate.item.id)}: {fate.status}: {_line(fate.said)}" for fate in failed)
    staged = live.state.stage.stage.mode == "fan_out"
    region = settings.results_region
    if staged and region != CONVERSATION:
        await _write_sections(live, region, [fate for fate in fates if not _is_written(turn, fate)])
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
    heading = heading_of(fate.item.id, "refused") if fate.child is None else fate.child.heading
    return f"{heading}\n{fate.said}"


def _is_written(turn: Turn, fate: Fate) -> bool:
    """Return whether an answer stood in its region already when the run, or its process, was stopped at the next."""
    return fate.source in turn.brought


async def _write_sections(live: Live, region: str, fates: list[Fate]) -> None:
    """Put each answer into *region*, in the order of the items, each with an equal share of what is left there."""
    state = live.state.view.states[region]
    room = state.limits.estimated(live.state.view.ratio).budget - state.charged
    share = max(1, room // max(1, len(fates)))
    for fate in fates:
        message = Message("user", (Text.of(_section(fate)),))
        draft = Draft("text", message, max(1, estimate(message)), fate.source, key=fate.item.id, writer="routing")
        await write_waiting(live, region, draft, share)
