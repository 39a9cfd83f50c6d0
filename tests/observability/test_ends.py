"""Traces of runs that were cancelled, cut off, or taken up again by another process."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from spankit import Kept, blueprint, fanned, named, one, parent_of

from shoal.blueprints import Blueprint, Nudge, Stage
from shoal.observability import Span, Telemetry, trace_of
from shoal.runtime import SqliteJournal, Swarm, tool, virtual
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio
TITLED = {"titling": "A title"}
FOREVER = Say("too late", delay_s=1e6)


@tool
async def post(text: str) -> str:
    """Post a text, which is not to be repeated."""
    await anyio.sleep_forever()
    return text


@tool(reads=True)
async def fetch(what: str) -> str:
    """Fetch something; slow the first time."""
    fetched.append(what)
    if len(fetched) == 1:
        await anyio.sleep_forever()
    return what


fetched: list[str] = []


async def stopped(journal: SqliteJournal, made: Blueprint, provider: ScriptedProvider, kept: Kept) -> str:
    """Begin a run, and let its process end when it hangs; return the run's id."""
    async with Swarm([provider], journal, [Telemetry(kept)], clock=virtual()) as swarm:
        run = await swarm.spawn(made, task="go", tools=[post, fetch])
        with anyio.move_on_after(10):
            await run.result()
    return run.run_id


async def resumed(journal: SqliteJournal, run_id: str, provider: ScriptedProvider, kept: Kept) -> None:
    """Take the run up in another process, whose telemetry has seen nothing, and let it end."""
    clock = virtual(began_at=1_767_300_000.0)
    async with Swarm([provider], journal, [Telemetry(kept, history=journal)], clock=clock) as swarm:
        run = await swarm.resume_tree(run_id, tools=[post, fetch])
        await run.result()


async def twice(
    folder: Path, made: Blueprint, first: ScriptedProvider, second: ScriptedProvider
) -> tuple[list[Span], list[Span], tuple[Span, ...]]:
    """Return what the first process exported, what the second did, and what the journal gives."""
    before, after = Kept(), Kept()
    journal = SqliteJournal(folder / "runs.db", durability="off")
    run_id = await stopped(journal, made, first, before)
    journal.close()
    journal = SqliteJournal(folder / "runs.db", durability="off")
    await resumed(journal, run_id, second, after)
    whole = trace_of(journal, run_id)
    journal.close()
    return before.spans, after.spans, whole


async def test_a_cancelled_run_says_so_on_every_span_that_it_left_open():
    provider = ScriptedProvider(FOREVER, purposes=TITLED)
    async with Swarm([provider], clock=virtual()) as swarm:
        run = await swarm.spawn(blueprint(Stage("read")), task="go")
        with anyio.move_on_after(10):
            await run.result()
        await swarm.cancel(run.run_id, "nobody needs it")
        spans = trace_of(swarm.journal, run.run_id)
    cancelled = {span.name for span in spans if span.attributes["shoal.outcome"] == "cancelled"}
    assert cancelled == {"chat scripted-model", "stage read", "invoke_agent desk"}
    assert {span.status for span in spans if span.name in cancelled and span.attributes.get("error.type")} == {"error"}
    assert one(spans, "invoke_agent desk").attributes["shoal.reason"] == "nobody needs it"


async def test_a_cancelled_tree_leaves_no_span_of_a_child_open():
    provider = ScriptedProvider(call("fan_out", items=[{"id": "a", "task": "one"}]), FOREVER, purposes=TITLED)
    async with Swarm([provider], clock=virtual()) as swarm:
        run = await swarm.spawn(fanned(), task="go")
        with anyio.move_on_after(10):
            await run.result()
        await swarm.cancel(run.run_id)
        spans = trace_of(swarm.journal, run.run_id)
    assert [span.attributes["shoal.outcome"] for span in named(spans, "invoke_agent desk")] == ["cancelled"] * 2
    assert "unfinished" not in {span.attributes["shoal.outcome"] for span in spans}


async def test_a_run_that_is_still_open_is_shown_up_to_its_newest_event():
    provider = ScriptedProvider(FOREVER, purposes=TITLED)
    async with Swarm([provider], clock=virtual()) as swarm:
        run = await swarm.spawn(blueprint(Stage("read")), task="go")
        with anyio.move_on_after(10):
            await run.result()
        spans = trace_of(swarm.journal, run.run_id)
    open_spans = {span.name: span.status for span in spans if span.attributes["shoal.outcome"] == "unfinished"}
    assert open_spans == {"invoke_agent desk": "unset", "stage read": "unset", "chat scripted-model": "unset"}


async def test_a_request_that_a_dead_process_left_open_is_exported_under_its_id_with_its_true_start(tmp_path: Path):
    first = ScriptedProvider(FOREVER, purposes=TITLED)
    second = ScriptedProvider("read it", purposes=TITLED)
    made = blueprint(Stage("read", nudge=Nudge(enabled=False)))
    before, after, _ = await twice(tmp_path, made, first, second)
    broken, again = [span for span in after if span.attributes.get("shoal.purpose") == "stage"]
    assert not [span for span in before if span.span_id == broken.span_id]
    assert broken.attributes["shoal.interrupted"] is True
    assert broken.start_ns < again.start_ns
    assert [(link.span_id, link.kind) for link in again.links] == [(broken.span_id, "retry_of")]


async def test_two_processes_export_one_trace_and_the_journal_gives_the_same(tmp_path: Path):
    first = ScriptedProvider(call("list_dir"), FOREVER, purposes=TITLED)
    second = ScriptedProvider("read it", purposes=TITLED)
    made = blueprint(Stage("read", available_tools=("list_dir",)))
    before, after, whole = await twice(tmp_path, made, first, second)
    assert before
    assert sorted([*before, *after], key=lambda span: span.span_id) == sorted(whole, key=lambda span: span.span_id)


async def test_a_call_that_a_dead_process_left_open_ends_under_its_id_as_interrupted(tmp_path: Path):
    first = ScriptedProvider(call("post", text="hello"), purposes=TITLED)
    second = ScriptedProvider("it may be posted", purposes=TITLED)
    made = blueprint(Stage("read", available_tools=("post",)))
    before, after, _ = await twice(tmp_path, made, first, second)
    posted = one(after, "execute_tool post")
    assert not named(before, "execute_tool post")
    assert (posted.attributes["error.type"], posted.status) == ("interrupted", "error")
    assert posted.end_ns - posted.start_ns > 3600e9
    assert parent_of(after, posted).name == "stage read"


async def test_a_call_that_runs_again_is_one_span_that_says_it_was_interrupted(tmp_path: Path):
    fetched.clear()
    first = ScriptedProvider(call("fetch", what="news"), purposes=TITLED)
    second = ScriptedProvider("fetched", purposes=TITLED)
    made = blueprint(Stage("read", available_tools=("fetch",)))
    _, after, _ = await twice(tmp_path, made, first, second)
    again = one(after, "execute_tool fetch")
    assert fetched == ["news", "news"]
    assert (again.status, again.attributes["shoal.interrupted"]) == ("ok", True)


async def test_a_child_that_another_process_takes_up_still_hangs_below_the_call_of_its_parent(tmp_path: Path):
    first = ScriptedProvider(call("fan_out", items=[{"id": "a", "task": "one"}]), FOREVER, purposes=TITLED)
    second = ScriptedProvider("a says", purposes=TITLED)
    before, after, whole = await twice(tmp_path, fanned(), first, second)
    [child] = [span for span in after if span.attributes.get("shoal.item") == "a" and span.name == "invoke_agent desk"]
    assert parent_of(after, child).name == "execute_tool fan_out"
    assert sorted([*before, *after], key=lambda span: span.span_id) == sorted(whole, key=lambda span: span.span_id)
