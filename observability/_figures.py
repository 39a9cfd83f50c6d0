"""The figures of a run's report: its visits, its calls with the window by owner, its costs, its tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from shoal.runtime import Event, Reader, RunRow, account_of, ledger_of
from shoal.runtime.events import (
    InferenceCompleted,
    InferenceStarted,
    RunEnded,
    RunPaused,
    RunResumed,
    RunSpawned,
    StageEntered,
    StageLeft,
)


def figures_of(reader: Reader, run_id: str) -> dict[str, Any]:
    """Return the figures of a run, as plain values for JSON.

    Returns:
        `run`: who it is and how it stands; `visits` of stages with unix seconds, oldest first; `pauses`; `calls`: one a
        request that was answered, with its input tokens by owner in the order in which they were sent; `regions`: what
        each owner was billed in all; `ledger` as `Ledger.plain` says; `tree`: the run and what is below it.

    Raises:
        RunNotFound: The journal holds no such run.
    """
    row = reader.find(run_id)
    events = list(reader.read(row.run_id))
    ledger = account_of(reader, (row.run_id,)).plain()
    return {
        "run": _run(row, events),
        "visits": _visits(events),
        "pauses": _pauses(events),
        "calls": _calls(events),
        "regions": _regions(ledger["stages"]),
        "ledger": ledger,
        "tree": _tree(reader, row),
    }


def _run(row: RunRow, events: Iterable[Event]) -> dict[str, Any]:
    reason, task, flags = "", "", dict[str, Any]()
    for event in events:
        match event.payload:
            case RunSpawned() as spawned:
                task = "" if spawned.task is None else str(spawned.task)
            case RunEnded() as ended:
                reason, flags = ended.reason.partition("\n\n")[0], dict(ended.flags)
            case _:
                pass
    return {
        "run_id": row.run_id,
        "name": row.name,
        "title": row.title,
        "status": row.status,
        "reason": reason,
        "flags": flags,
        "task": task,
        "spawned_at": row.spawned_at,
        "ended_at": row.ended_at,
    }


def _visits(events: Iterable[Event]) -> list[dict[str, Any]]:
    visits: list[dict[str, Any]] = []
    for event in events:
        match event.payload:
            case StageEntered(stage, visit):
                visits.append({"stage": stage, "visit": visit, "from": event.at, "to": None, "reason": None})
            case StageLeft() as left if visits:
                visits[-1] |= {"to": event.at, "reason": left.reason}
            case RunEnded() if visits and visits[-1]["to"] is None:
                visits[-1]["to"] = event.at
            case _:
                pass
    return visits


def _pauses(events: Iterable[Event]) -> list[dict[str, Any]]:
    pauses: list[dict[str, Any]] = []
    for event in events:
        match event.payload:
            case RunPaused(reason):
                pauses.append({"from": event.at, "to": None, "reason": reason})
            case RunResumed() if pauses and pauses[-1]["to"] is None:
                pauses[-1]["to"] = event.at
            case _:
                pass
    return pauses


def _calls(events: Iterable[Event]) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    started: dict[int, tuple[InferenceStarted, float]] = {}
    stage = ""
    for event in events:
        match event.payload:
            case StageEntered(entered):
                stage = entered
            case InferenceStarted() as begun:
                started[event.seq] = (begun, event.at)
            case InferenceCompleted() as done:
                begun, at = started[done.started]
                calls.append(_call(event, done, begun, at, stage))
            case _:
                pass
    return calls


def _call(event: Event, done: InferenceCompleted, begun: InferenceStarted, at: float, stage: str) -> dict[str, Any]:
    by_owner: dict[str, int] = {}
    for share in done.attribution:
        tokens = share.uncached + share.cache_read + share.cache_write + share.cache_write_long
        if tokens:
            by_owner[share.owner] = by_owner.get(share.owner, 0) + tokens
    return {
        "seq": event.seq,
        "stage": stage,
        "purpose": done.purpose,
        "model": f"{begun.provider}:{begun.model}",
        "at": at,
        "seconds": round(event.at - at, 6),
        "tokens": by_owner,
        "cached": done.usage[1],
        "output": done.usage[4],
        "approx_context_chars": begun.approx_context_chars,
        "cost_usd": _usd(done.cost),
    }


def _regions(stages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what each owner was billed over all stages, the dearest first."""
    found: dict[str, dict[str, Any]] = {}
    for stage in stages:
        for region in stage["regions"]:
            name, cost = region["region"], region["cost_usd"]
            nothing = {
                "cost_usd": "0",
                "high_water_tokens": 0,
                "budget_tokens": None,
                "usage": _sum({}, region["usage"], 0),
            }
            known = found.setdefault(name, {"region": name, **nothing})
            known["usage"] = _sum(known["usage"], region["usage"])
            known["high_water_tokens"] = max(known["high_water_tokens"], region["high_water_tokens"])
            if region["budget_tokens"] is not None:
                known["budget_tokens"] = max(known["budget_tokens"] or 0, region["budget_tokens"])
            if known["cost_usd"] is not None:
                known["cost_usd"] = None if cost is None else _usd(Decimal(known["cost_usd"]) + Decimal(cost))
    return sorted(found.values(), key=lambda each: Decimal(each["cost_usd"] or 0), reverse=True)


def _sum(one: Mapping[str, int], other: Mapping[str, int], times: int = 1) -> dict[str, int]:
    return {name: one.get(name, 0) + times * tokens for name, tokens in other.items()}


def _tree(reader: Reader, top: RunRow) -> list[dict[str, Any]]:
    below: dict[str, int] = {top.run_id: 0}
    found: list[dict[str, Any]] = []
    for row in reader.runs(root=top.root):  # parents first
        if row.parent in below and row.run_id not in below:
            below[row.run_id] = below[row.parent] + 1
        if row.run_id in below:
            total = ledger_of(reader.read(row.run_id)).total.plain()
            found.append(
                {
                    "run_id": row.run_id,
                    "parent": None if row is top else row.parent,
                    "depth": below[row.run_id],
                    "name": row.name,
                    "title": row.title,
                    "status": row.status,
                    "cost_usd": total["cost_usd"],
                    "usage": total["usage"],
                }
            )
    return _in_tree_order(found, top.run_id)


def _in_tree_order(rows: list[dict[str, Any]], top: str) -> list[dict[str, Any]]:
    children: dict[str | None, list[dict[str, Any]]] = {}
    for row in rows:
        children.setdefault(None if row["run_id"] == top else row["parent"], []).append(row)
    ordered: list[dict[str, Any]] = []
    waiting = list(children.get(None, ()))
    while waiting:
        row = waiting.pop(0)
        ordered.append(row)
        waiting[:0] = children.get(row["run_id"], [])
    return ordered


def _usd(cost: Decimal | None) -> str | None:
    return None if cost is None else format(cost, "f")
