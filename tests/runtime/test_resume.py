"""A killed process resumes where it was: at every commit, with the same end, and no tool run twice."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from runkit import NOTES, TALK, TASK, blueprint, events_of, kinds, payloads, stage, swarm_of, write_files

from shoal.blueprints import Nudge
from shoal.errors import DefinitionMissing, RunEnded, RunNotFound
from shoal.providers import Provider, offline
from shoal.runtime import Event, Outcome, SqliteJournal, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio


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


async def finish(path: Path, provider: Provider, tools: Sequence[object] = ()) -> tuple[Outcome, list[Event]]:
    """Resume the first run of the journal at *path* and return how it ended, with its events."""
    journal = SqliteJournal(path, host="second")
    async with swarm_of(provider, journal=journal, seed=1) as swarm:
        first = swarm.runs()[0]
        if first.status in ("interrupted", "paused"):
            await swarm.resume_tree(first.run_id, tools=tools)  # type: ignore[arg-type]
        outcome = await first.result()
        events = events_of(swarm, first)
    journal.close()
    return outcome, events


async def test_a_swarm_that_dies_after_any_commit_ends_as_if_it_had_not(tmp_path: Path):
    folder = write_files(
        tmp_path / "work", {"a.md": "Ants are small. " * 30, "b.md": "Bees make honey.\n", "c.md": "Cats sleep.\n"}
    )
    whole = tmp_path / "whole.db"
    journal = SqliteJournal(whole, host="first")
    commits = Commits(whole)
    async with swarm_of(offline(), journal=journal, observers=[commits]) as swarm:
        expected = await (await swarm.spawn("digest", task="insects and cats", workdir=folder)).result()
    journal.close()
    assert len(commits.ends) > 15
    for number, events in enumerate(commits.ends[:-1]):
        cut = killed_after(whole, events, tmp_path / f"cut{number}.db")
        outcome, _ = await finish(cut, offline())
        assert (outcome.status, outcome.flags, outcome.output) == (expected.status, expected.flags, expected.output), (
            events
        )
        cut.unlink()


async def test_an_answer_that_the_journal_holds_is_never_asked_for_again(tmp_path: Path):
    made = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))
    whole = tmp_path / "whole.db"
    journal = SqliteJournal(whole, host="first")
    commits = Commits(whole)
    async with swarm_of(
        ScriptedProvider("one", "two", purposes={"titling": "T"}), journal=journal, observers=[commits]
    ) as swarm:
        await (await swarm.spawn(made, task="x")).result()
    journal.close()
    for number, events in enumerate(commits.ends[:-1]):
        cut = killed_after(whole, events, tmp_path / f"cut{number}.db")
        with sqlite3.connect(cut) as db:
            replies = db.execute("SELECT CAST(payload AS TEXT) FROM events WHERE kind = 41").fetchall()
            held = sum(reply.startswith('["stage"') for (reply,) in replies)
        db.close()
        provider = ScriptedProvider(*["one", "two"][held:], purposes={"titling": "T"})
        await finish(cut, provider)
        assert sum(request.purpose == "stage" for request in provider.requests) == 2 - held


# --- tools


def calling(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "T"})  # type: ignore[arg-type]


async def interrupted(tmp_path: Path, *, reads: bool) -> tuple[list[str], list[Event]]:
    """Kill a run while its tool runs, resume it, and return what the tool did in all and the events."""
    done: list[str] = []
    path = tmp_path / "runs.db"
    made = blueprint(stage(available_tools=("touch",), nudge=Nudge(enabled=False)), regions=(TASK, NOTES, TALK))

    @tool(name="touch", reads=reads, writes=not reads)
    async def hanging(name: str) -> str:
        """Touch a file and never come back."""
        done.append(name)
        await anyio.sleep_forever()
        return ""

    @tool(name="touch", reads=reads, writes=not reads)
    async def working(name: str) -> str:
        """Touch a file."""
        done.append(name)
        return "touched"

    journal = SqliteJournal(path, host="first")
    async with swarm_of(calling(call("touch", name="a")), journal=journal) as swarm:
        await swarm.spawn(made, task="x", tools=(hanging,))
        while not done:  # noqa: ASYNC110 - virtual time
            await anyio.sleep(1)
    journal.close()
    with pytest.warns(RuntimeWarning, match="'touch'"):  # it hangs no more
        _, events = await finish(path, calling("done"), (working,))
    return done, events


async def test_a_tool_that_writes_is_not_run_twice_and_the_model_is_told(tmp_path: Path):
    done, events = await interrupted(tmp_path, reads=False)
    assert done == ["a"]
    result = payloads(events, "ToolCallCompleted")[0]
    assert (result.interrupted, result.is_error) == (True, True)
    assert "whether it had an effect is unknown" in str(result.text)


async def test_a_tool_that_only_reads_is_simply_run_again(tmp_path: Path):
    done, events = await interrupted(tmp_path, reads=True)
    assert done == ["a", "a"]
    assert str(payloads(events, "ToolCallCompleted")[0].text) == "touched"


async def test_finished_calls_of_a_batch_are_replayed_and_not_run_again(tmp_path: Path):
    done: list[str] = []
    path = tmp_path / "runs.db"

    @tool(writes=True)
    async def touch(name: str) -> str:
        """Touch a file; the second one hangs."""
        done.append(name)
        if name == "b":
            await anyio.sleep_forever()
        return f"touched {name}"

    made = blueprint(stage(available_tools=("touch",), nudge=Nudge(enabled=False)))
    journal = SqliteJournal(path, host="first")
    async with swarm_of(
        calling(Say(calls=(call("touch", name="a"), call("touch", name="b")))), journal=journal
    ) as swarm:
        run = await swarm.spawn(made, task="x", tools=(touch,))
        while "ToolCallCompleted" not in kinds(events_of(swarm, run)):  # noqa: ASYNC110 - virtual time
            await anyio.sleep(1)
    journal.close()
    _, events = await finish(path, calling("done"), (touch,))
    assert sorted(done) == ["a", "b"]  # each once; siblings begin in any order
    assert [(p.index, p.interrupted) for p in payloads(events, "ToolCallCompleted")] == [(0, False), (1, True)]


async def test_a_run_whose_functions_are_not_given_again_says_which(tmp_path: Path):
    path = tmp_path / "runs.db"

    @tool
    async def touch(name: str) -> str:
        """Hang."""
        await anyio.sleep_forever()
        return name

    journal = SqliteJournal(path, host="first")
    async with swarm_of(calling(call("touch", name="a")), journal=journal) as swarm:
        await swarm.spawn(blueprint(stage(available_tools=("touch",))), task="x", tools=(touch,))
        await anyio.sleep(1)
    journal.close()
    with pytest.raises(DefinitionMissing, match="`touch`"):
        await finish(path, calling("done"))


async def test_a_function_that_has_changed_is_named_before_its_run_goes_on(tmp_path: Path):
    @tool(name="touch", reads=True)
    async def before(name: str) -> str:
        """Hang."""
        await anyio.sleep_forever()
        return name

    @tool(name="touch", reads=True)
    async def after(name: str) -> str:
        """Touch."""
        return name

    path = tmp_path / "runs.db"
    journal = SqliteJournal(path, host="first")
    async with swarm_of(calling(call("touch", name="a")), journal=journal) as swarm:
        await swarm.spawn(blueprint(stage(available_tools=("touch",))), task="x", tools=(before,))
        await anyio.sleep(1)
    journal.close()
    with pytest.warns(RuntimeWarning, match="the function 'touch', a tool of this run, is not what it was"):
        outcome, _ = await finish(path, calling("done"), (after,))
    assert outcome.status == "complete"


# --- what cannot be resumed


async def test_a_run_that_is_over_is_not_resumed(tmp_path: Path):
    async with swarm_of(calling("hello"), journal=SqliteJournal(tmp_path / "runs.db")) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=())), task="x")
        await run.result()
        with pytest.raises(RunEnded, match="is over"):
            await swarm.resume_tree(run.run_id)
    swarm.journal.close()


async def test_a_run_that_is_not_there_is_named():
    async with swarm_of(calling()) as swarm:
        with pytest.raises(RunNotFound, match="nothing-like-it"):
            await swarm.resume_tree("nothing-like-it")


async def test_a_paused_run_goes_on_after_a_restart(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path, host="first")
    async with swarm_of(calling(Say("hello", delay_s=10)), journal=journal) as swarm:
        run = await swarm.spawn(blueprint(stage("a", available_tools=()), stage("b", available_tools=())), task="x")
        await run.pause()
        await anyio.sleep(60)
        assert run.status == "paused"
    journal.close()
    outcome, events = await finish(path, calling("world"))
    assert outcome.status == "complete"
    assert kinds(events, "RunPaused", "RunResumed") == ["RunPaused", "RunResumed"]


# --- a real process, really killed

SCRIPT = """
import os, signal, sys, anyio
from pathlib import Path
from shoal.blueprints import Blueprint, CallerSeed, Nudge, Region, Stage
from shoal.runtime import Swarm, SqliteJournal, tool
from shoal.testing import ScriptedProvider, call

path, ledger, die_at, backend = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]

@tool(writes=True)
async def touch(n: int) -> str:
    "Append a line to a file."
    with ledger.open("a") as file:
        file.write(f"{n}\\n")
    if n == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"touched {n}"

def script(request):
    if request.purpose != "stage":
        return "A title"
    turns = sum(m.role == "assistant" for s in request.messages for m in s.messages)
    return call("touch", n=turns) if turns < 5 else "done"

made = Blueprint("counting", (Stage("count", available_tools=("touch",), nudge=Nudge(enabled=False)),),
    regions=(Region("task", kind="pinned", max_tokens=100, seed=CallerSeed("task")),))

async def main():
    journal = SqliteJournal(path, host=str(os.getpid()))
    async with Swarm([ScriptedProvider(script=script)], journal) as swarm:
        if swarm.runs():
            run = await swarm.resume_tree(swarm.runs()[0].run_id, tools=(touch,))
        else:
            run = await swarm.spawn(made, task="count", tools=(touch,))
        outcome = await run.result()
        print(outcome.status)
    journal.close()

anyio.run(main, backend=backend)
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_process_killed_in_the_middle_of_a_tool_resumes_without_running_it_twice(tmp_path: Path, backend: str):
    script = tmp_path / "count.py"
    script.write_text(SCRIPT)
    ledger = tmp_path / "lines.txt"

    def execute(die_at: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script), str(tmp_path / "runs.db"), str(ledger), str(die_at), backend]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ})

    deaths = [execute(n) for n in (0, 2, 3)]
    last = execute(-1)
    assert [death.returncode for death in deaths] == [-signal.SIGKILL] * 3, deaths
    assert last.stdout.strip() == "complete", last.stderr
    assert ledger.read_text().split() == ["0", "1", "2", "3", "4"]
