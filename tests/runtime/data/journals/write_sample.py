"""Writes the sample of a journal: `python write_sample.py format-N.db`, run with the version that has format N.

Each format that was ever released keeps its sample, so that later versions are held to reading it. It uses only what
the first version had.
"""

from __future__ import annotations

import sys
from contextlib import closing

import anyio

from shoal.blueprints import Blueprint, CallerSeed, Edge, Region, Stage
from shoal.providers import Request
from shoal.runtime import SqliteJournal, Swarm
from shoal.testing import Say, ScriptedProvider, call

MADE = Blueprint(
    "sample",
    (
        Stage("read", available_tools=("context_append", "todo_add", "todo_done"), transitions=(Edge("write"),)),
        Stage("write", mode="output", available_tools=("context_write",)),
    ),
    regions=(
        Region("task", kind="pinned", max_tokens=200, seed=CallerSeed("task"), volatility="stable"),
        Region("notes", kind="pinned", max_tokens=500),
        Region("facts", kind="hashmap", max_tokens=500),
        Region("todos", kind="checklist", max_tokens=500),
        Region("conversation", kind="sliding_window", max_tokens=4000),
    ),
)


def answer(request: Request) -> object:
    """Work in three turns; the run whose task says so never gets its last reply."""
    if request.purpose != "stage":
        return "A sample"
    said = [message for segment in request.messages for message in segment.messages]
    turns = sum(message.role == "assistant" for message in said)
    interrupted = any("be interrupted" in str(text) for block in request.system for text in block.texts)
    return [
        Say("Grüße", calls=(call("context_append", region="notes", content="noted"),)),
        Say(calls=(call("todo_add", region="todos", item="one"), call("todo_done", region="todos", id=1))),
        "read",
        call("context_write", region="facts", key="colour", content="blue"),
        Say(calls=(call("submit_output", content="an answer"),), delay_s=3600.0 if interrupted else 0.0),
        "submitted",
    ][turns]


async def main(path: str) -> None:
    """Write one run that is complete and one that was interrupted."""
    with closing(SqliteJournal(path, host="sample")) as journal:
        async with Swarm([ScriptedProvider(script=answer)], journal) as swarm:  # type: ignore[arg-type]
            done = await swarm.spawn(MADE, task="go through")
            assert (await done.result()).ok
            await swarm.spawn(MADE, task="be interrupted")
            await anyio.sleep(0.5)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
