"""A process that dies anywhere: what scripts decided stands in the journal, and the end is the same."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from runkit import TALK, TASK, blueprint, events_of, payloads, stage, swarm_of, write_files

from shoal.blueprints import (
    Blueprint,
    CallerSeed,
    FanOut,
    FileTracking,
    Nudge,
    Region,
    Route,
    Stage,
    ToolRouting,
    dumps,
)
from shoal.runtime import Event, Limits, Outcome, Permissions, SqliteJournal
from shoal.runtime.scripts import ScriptLimits
from shoal.testing import ScriptedProvider, call

pytestmark = [pytest.mark.anyio, pytest.mark.wall_limit(120)]

AMPLE = Limits(scripts=ScriptLimits(seconds=30))
ALLOWED = Permissions(launch={"count": "allow"})
FILES = {
    "talk.py": """
def render(ctx):
    said = []
    for entry in ctx["entries"]:
        if entry["kind"] == "assistant_turn":
            said.append({"role": "assistant", "content": entry["content"], "tool_calls": entry["tool_calls"]})
        elif entry["kind"] == "tool_result":
            said.append({"role": "user", "tool_results": [
                {"tool_call_id": entry["tool_call_id"], "content": entry["content"]}]})
        else:
            said.append({"role": "user", "content": entry["content"]})
    return {"messages": said}
def on_write(ctx):
    return ctx["entry"]["content"] + "." if ctx["entry"]["kind"] == "assistant_turn" else None
""",
    "brain.py": """
def render(ctx):
    return " ".join([entry["content"] for entry in ctx["entries"]])
def on_write(ctx):
    return ctx["entry"]["content"].split("\\n")[0]
def on_overflow(ctx):
    return [0]
""",
    "hooks.py": """
def on_stage_enter(ctx):
    return {"action": "modify", "value": {"plan": "made by a hook"}}
def on_tool_call(ctx):
    calls = [dict(c, arguments=dict(c["arguments"])) for c in ctx["tool_calls"]]
    for c in calls:
        if c["name"] == "count":
            c["arguments"]["text"] += " more"
    return {"action": "modify", "value": calls}
def after_inference(ctx):
    return {"action": "modify", "value": ctx["response"].upper()}
def on_completion(ctx):
    return {"action": "modify", "value": ctx["output"] + "!"}
""",
    "tools/count.py": '# @param text string required\ndef run(args):\n    return args["text"] + "\\n" + "x" * 60\n',
}


def made(folder: Path) -> Blueprint:
    write_files(folder, FILES)
    names = ("on_stage_enter", "on_tool_call", "after_inference", "on_completion")
    work = stage(
        available_tools=("count", "read_file"),
        nudge=Nudge(enabled=False),
        hooks=dict.fromkeys(names, "hooks.py"),
        tool_routing=ToolRouting(overrides={"count": Route("brain")}),
    )
    regions = (
        TASK,
        Region("plan", kind="pinned", max_tokens=100),
        Region("files", kind="hashmap", max_tokens=500),
        Region("brain", kind="custom", script="brain.py", max_tokens=12),
        Region("conversation", kind="custom", script="talk.py", max_tokens=4_000),
    )
    return blueprint(work, regions=regions, folder=folder, file_tracking=FileTracking())


def replies() -> ScriptedProvider:
    """Return a provider that goes by what it is shown, so that one that comes later goes on where the first was."""

    def reply(request: Any) -> Any:
        answered = sum(m.role == "tool" for segment in request.messages for m in segment.messages)
        said = [
            call("count", text="one two three four"),
            call("read_file", path="a.txt"),
            call("count", text="five six"),
        ]
        return said[answered] if answered < len(said) else "done"

    return ScriptedProvider(script=reply, purposes={"titling": "A title"})


async def finish(path: Path, provider: ScriptedProvider, *, limits: Limits = AMPLE) -> tuple[Outcome, list[Event]]:
    journal = SqliteJournal(path, host="second")
    async with swarm_of(provider, journal=journal, seed=1, limits=limits, permissions=ALLOWED) as swarm:
        run = swarm.runs()[0]
        if run.status in ("interrupted", "paused"):
            await swarm.resume_tree(run.run_id)
        outcome = await run.result()
        events = events_of(swarm, run)
    journal.close()
    return outcome, events


def shown(events: list[Event]) -> list[Any]:
    """Return what went into regions, whatever numbers its events have."""
    return [(p.region, p.kind, p.key, p.cut, str(p.text)) for p in payloads(events, "EntryWritten")]


class Commits:
    """An observer that notes after how many events each commit ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.ends: list[int] = []

    def __call__(self, _event: Event) -> None:
        with sqlite3.connect(self._path) as db:
            count = db.execute("SELECT count(*) FROM events").fetchone()[0]
        db.close()
        if not self.ends or self.ends[-1] != count:
            self.ends.append(count)


def killed_after(whole: Path, events: int, where: Path) -> Path:
    """Return a journal as a process would have left it that died right after its first *events* events."""
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


async def test_a_run_with_scripts_that_dies_after_any_commit_ends_as_if_it_had_not(tmp_path: Path):
    workdir = write_files(tmp_path / "work", {"a.txt": "alpha"})
    whole = tmp_path / "whole.db"
    journal = SqliteJournal(whole, host="first")
    commits = Commits(whole)
    async with swarm_of(replies(), journal=journal, limits=AMPLE, permissions=ALLOWED, observers=[commits]) as swarm:
        run = await swarm.spawn(made(tmp_path / "made"), task="t", workdir=workdir)
        expected = await run.result()
        all_events = events_of(swarm, run)
    journal.close()
    assert (expected.output, len(payloads(all_events, "HookRan"))) == ("DONE!", 9)
    assert len(commits.ends) > 12
    for count in commits.ends[:-1:2]:
        cut = killed_after(whole, count, tmp_path / f"cut-{count}.db")
        outcome, events = await finish(cut, replies())
        assert outcome.output == expected.output, count
        assert [row for row in shown(events) if row[0] in ("brain", "plan")][-2:] == [
            row for row in shown(all_events) if row[0] in ("brain", "plan")
        ][-2:], count
        cut.unlink()


async def test_answers_of_workers_that_a_script_takes_in_one_by_one_stand_there_once(tmp_path: Path):
    taken = """
def render(ctx):
    return " ".join([entry["content"] for entry in ctx["entries"]])
def on_write(ctx):
    return ctx["entry"]["content"].upper()
"""
    path = Region("path", kind="pinned", max_tokens=100, seed=CallerSeed("path"))
    worker = Blueprint("worker", (Stage("read", nudge=Nudge(enabled=False)),), regions=(path, TALK))
    write_files(tmp_path / "worker", {"blueprint.toml": dumps(worker)})
    folder = write_files(tmp_path / "lead", {"finds.py": taken})
    hands_out = FanOut(worker_agent=str(tmp_path / "worker"), results_region="finds")
    made = blueprint(
        Stage("split", mode="fan_out", fan_out=hands_out),
        stage("merge", available_tools=()),
        regions=(TASK, Region("finds", kind="custom", script="finds.py", max_tokens=2_000), TALK),
        folder=folder,
    )

    def plays() -> ScriptedProvider:
        def reply(request: Any) -> Any:
            paths = [block.text.splitlines()[1] for block in request.system if block.owner == "path"]
            if paths:
                return f"about {paths[0]}"
            if "fan_out" in str(request.tools):
                return call("fan_out", items=[{"id": name, "seeds": {"path": name}} for name in "abc"])
            return "merged"

        return ScriptedProvider(script=reply, purposes={"titling": "A title"})

    whole = tmp_path / "whole.db"
    journal = SqliteJournal(whole, host="first")
    commits = Commits(whole)
    async with swarm_of(plays(), journal=journal, limits=AMPLE, observers=[commits]) as swarm:
        run = await swarm.spawn(made, task="t")
        assert (await run.result()).output == "merged"
        expected = [row for row in shown(events_of(swarm, run)) if row[0] == "finds"]
    journal.close()
    assert [text.splitlines()[1] for *_, text in expected] == ["ABOUT A", "ABOUT B", "ABOUT C"]
    for count in commits.ends[len(commits.ends) // 2 : -1]:
        cut = killed_after(whole, count, tmp_path / f"cut-{count}.db")
        outcome, events = await finish(cut, plays())
        assert outcome.output == "merged"
        assert [row for row in shown(events) if row[0] == "finds"] == expected, count
        cut.unlink()
