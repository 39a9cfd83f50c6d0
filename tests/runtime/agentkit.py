"""What tests of agentic functions share: a journal that is cut after any event, and a run of one function."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runkit import events_of, swarm_of

from shoal.providers import Provider
from shoal.runtime import AgenticCall, AgenticFunction, Event, Outcome, SqliteJournal
from shoal.testing import ScriptedProvider, request_json


def said(request: Any) -> str:
    """Return the text of the newest user message of *request*."""
    users = [m for m in request_json(request)["messages"] if m["role"] == "user"]
    return str(users[-1]["content"])


def asked(provider: ScriptedProvider) -> list[str]:
    """Return what each request of *provider* asks, in order: the block behind the situation."""
    return [said(request).partition("</situation>")[2].strip() for request in provider.requests]


def tree_of(request: Any) -> str:
    """Return the call tree that *request* shows, without its tags."""
    first = next(m for m in request_json(request)["messages"] if m["role"] == "user")
    return str(first["content"]).removeprefix("<call_tree>\n").removesuffix("\n</call_tree>")


async def called(function: AgenticCall[Any], provider: Provider, **more: Any) -> tuple[Outcome[Any], list[Event]]:
    """Run *function* once, and return how that ended, with its events."""
    options = {
        name: more.pop(name) for name in ("limits", "memory", "components", "permissions", "retry") if name in more
    }
    async with swarm_of(provider, **options) as swarm:
        run = await swarm.spawn(function, **more)
        outcome = await run.result()
        return outcome, events_of(swarm, run)


BIRTH = 7
"""How many events a function's run begins with; they become durable together."""


async def journaled(function: AgenticCall[Any], provider: Provider, path: Path) -> tuple[Outcome[Any], list[int]]:
    """Run *function* with its journal at *path*; return how that ended, and after how many events it can be cut."""
    journal = SqliteJournal(path, host="first")
    async with swarm_of(provider, journal=journal) as swarm:
        outcome = await (await swarm.spawn(function)).result()
    journal.close()
    with sqlite3.connect(path) as db:
        births = db.execute("SELECT rowid FROM events WHERE seq <= ? ORDER BY rowid", (BIRTH,)).fetchall()
        count: int = db.execute("SELECT count(*) FROM events").fetchone()[0]
    db.close()
    together = {row[0] - 1 for row in births}
    return outcome, [number for number in range(1, count) if number not in together]


def cut_after(whole: Path, events: int) -> Path:
    """Return a copy of the journal *whole* with its first *events* events, as a process leaves it that dies there."""
    where = whole.with_name(f"cut{events}.db")
    shutil.copy(whole, where)
    with sqlite3.connect(where) as db:
        db.execute("DELETE FROM events WHERE rowid NOT IN (SELECT rowid FROM events ORDER BY rowid LIMIT ?)", (events,))
        db.execute("DELETE FROM runs WHERE run NOT IN (SELECT run FROM events)")
        db.execute(
            "UPDATE runs SET status = 'running', ended_at = NULL "
            "WHERE run NOT IN (SELECT run FROM events WHERE kind = 7)"
        )
    db.close()
    return where


async def resumed(
    path: Path, provider: Provider, functions: Sequence[AgenticFunction[..., Any]]
) -> tuple[Outcome[Any], list[Event]]:
    """Take up the first run of the journal at *path*, and return how it ended, with its events."""
    journal = SqliteJournal(path, host="second")
    async with swarm_of(provider, journal=journal, seed=1) as swarm:
        first = swarm.runs()[0]
        if first.status == "interrupted":
            first = await swarm.resume_tree(first.run_id, tools=functions)
        outcome = await first.result()
        events = events_of(swarm, first)
    journal.close()
    return outcome, events


def replies(path: Path) -> int:
    """Return how many replies the journal at *path* holds."""
    with sqlite3.connect(path) as db:
        count: int = db.execute("SELECT count(*) FROM events WHERE kind = 41").fetchone()[0]
    db.close()
    return count
