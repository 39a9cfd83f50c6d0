"""The life of an agentic function: paused, cancelled, under a budget, resumed with other code, forked, supervised."""

from __future__ import annotations

from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, final

import anyio
import anyio.lowlevel
import pytest
from agentkit import called, cut_after, journaled, resumed
from journalkit import changed as changed_rows
from runkit import blueprint, payloads, stage, swarm_of

import shoal
from shoal.errors import ConfigInvalid, DefinitionMissing, JournalFailed, RunIsPaused, SpawnRefused
from shoal.providers import Usage
from shoal.runtime import BudgetGiven, Event, MemoryJournal, SpawnRequest, SqliteJournal, SqliteReader
from shoal.runtime._live import Late
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

WORDS: list[str] = ["one", "two"]
"""What the function below asks; a test that changes it changes what the function does."""


@shoal.agentic
async def asking(ctx: shoal.Context) -> list[str]:
    """Ask for words."""
    return [await ctx.infer(f"say {word}") for word in WORDS]


@shoal.agentic
async def recording(ctx: shoal.Context) -> str:
    """Record what cannot be repeated."""
    await ctx.step(len, WORDS[0])
    return WORDS[0]


@pytest.fixture(autouse=True)
def words() -> Any:
    WORDS[:] = ["one", "two"]
    yield
    WORDS[:] = ["one", "two"]


async def changed(path: Path, function: Any, provider: ScriptedProvider) -> Any:
    """Cut a run of *function* before its end, change what it does, and take it up again."""
    _, cuts = await journaled(function.bound(), ScriptedProvider("a", "b"), path)
    WORDS[:] = ["three", "four"]
    return await resumed(cut_after(path, cuts[-2]), provider, [function])


async def test_a_function_that_asks_for_something_else_ends_before_anything_is_sent(tmp_path: Path):
    provider = ScriptedProvider()
    outcome, events = await changed(tmp_path / "runs.db", asking, provider)
    assert outcome.status == "error"
    assert outcome.reason.startswith("ReplayMismatch: call 1 of `asking` (frame 7) is `infer` (")
    assert not provider.requests
    left = payloads(events, "FrameLeft")[-1]
    assert (left.frame, left.status, left.error) == (7, "error", "ReplayMismatch")


async def test_a_step_of_another_kind_is_no_repetition_either(tmp_path: Path):
    outcome, _ = await changed(tmp_path / "runs.db", recording, ScriptedProvider())
    assert outcome.reason.startswith("ReplayMismatch: call 1 of `recording`")


@shoal.agentic
async def swallowing(ctx: shoal.Context) -> str:
    """Take no notice of what it is told."""
    for word in WORDS:
        with suppress(Exception):
            await ctx.infer(f"say {word}")
    return "fine"


async def test_a_function_that_takes_no_notice_ends_all_the_same(tmp_path: Path):
    provider = ScriptedProvider()
    outcome, _ = await changed(tmp_path / "runs.db", swallowing, provider)
    assert outcome.reason.startswith("ReplayMismatch: ")
    assert not provider.requests


async def test_a_function_that_repeats_is_not_asked_what_it_returned_before(tmp_path: Path):
    _, cuts = await journaled(asking.bound(), ScriptedProvider("a", "b"), tmp_path / "runs.db")
    outcome, _ = await resumed(cut_after(tmp_path / "runs.db", cuts[-2]), ScriptedProvider(), [asking])
    assert outcome.output == ["a", "b"]


# --- finding it again


async def test_a_function_is_found_by_its_name_where_that_can_be_imported(tmp_path: Path, monkeypatch: Any):
    (tmp_path / "papers.py").write_text(
        "import shoal\n\n\n@shoal.agentic\nasync def title(ctx) -> str:\n    return await ctx.infer('t')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    papers: Any = import_module("papers")
    _, cuts = await journaled(papers.title.bound(), ScriptedProvider("a"), tmp_path / "runs.db")
    outcome, _ = await resumed(cut_after(tmp_path / "runs.db", cuts[-2]), ScriptedProvider(), [])
    assert outcome.output == "a"


@pytest.mark.parametrize("gone", ["papers_that_are_gone:title", "json:loads", "json:nothing", "x:f.<locals>.g"])
async def test_a_function_that_cannot_be_found_is_named(gone: str):
    async with swarm_of(ScriptedProvider()) as swarm:
        with pytest.raises(DefinitionMissing, match="give it again with"):
            swarm.hall.programs.function(gone)


async def test_a_function_whose_source_changed_is_named_before_it_goes_on(tmp_path: Path):
    @shoal.agentic
    async def here(ctx: Any) -> str:
        return str(await ctx.infer("x"))

    _, cuts = await journaled(here.bound(), ScriptedProvider("a"), tmp_path / "runs.db")

    @shoal.agentic
    async def there(ctx: Any) -> str:
        return str(await ctx.infer("x")) + "!"

    there.source = type(here.source)(here.source.qualname, "another")
    with pytest.warns(RuntimeWarning, match="is not what it was when the run began"):
        outcome, _ = await resumed(cut_after(tmp_path / "runs.db", cuts[-2]), ScriptedProvider(), [there])
    assert outcome.output == "a!"


# --- steering


async def test_a_paused_function_asks_for_nothing_until_it_is_resumed():
    provider = ScriptedProvider(Say("a", delay_s=5), "b")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(asking.bound())
        await anyio.sleep(1)
        await run.pause()
        await anyio.sleep(60)
        assert len(provider.requests) == 1
        with pytest.raises(RunIsPaused):
            await run.result()
        await run.resume()
        assert (await run.result()).output == ["a", "b"]


async def test_a_cancelled_function_goes_no_further():
    provider = ScriptedProvider(Say("a", delay_s=5), "b")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(asking.bound())
        await anyio.sleep(1)
        await run.cancel()
        assert (await run.result()).status == "cancelled"
        await anyio.sleep(60)
    assert len(provider.requests) == 1


async def test_a_function_that_is_paused_while_it_sleeps_wakes_when_it_is_resumed():
    @shoal.agentic
    async def sleepy(ctx: Any) -> str:
        await ctx.sleep(10)
        return "awake"

    async with swarm_of(ScriptedProvider()) as swarm:
        run = await swarm.spawn(sleepy.bound())
        await anyio.sleep(1)
        await run.pause()
        await anyio.sleep(60)
        assert run.status == "paused"
        await run.resume()
        assert (await run.result()).output == "awake"


async def test_a_swarm_that_closes_leaves_a_function_to_be_resumed(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db", host="first")
    async with swarm_of(ScriptedProvider(Say("a", delay_s=50), "b"), journal=journal) as swarm:
        await swarm.spawn(asking.bound())
        await anyio.sleep(1)
    journal.close()
    outcome, events = await resumed(tmp_path / "runs.db", ScriptedProvider("a", "b"), [asking])
    assert outcome.output == ["a", "b"]
    assert [left.status for left in payloads(events, "FrameLeft")] == ["done"]


async def test_a_budget_pauses_a_function_and_a_higher_one_lets_it_go_on():
    provider = ScriptedProvider(Say("a", usage=Usage(5_000)), "b")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(asking.bound(), budget=BudgetGiven(max_tokens=12_000))
        with pytest.raises(RunIsPaused, match="max_tokens"):
            await run.result()
        await run.resume(budget=BudgetGiven(max_tokens=90_000))
        assert (await run.result()).output == ["a", "b"]


async def test_a_function_reads_no_messages():
    async with swarm_of(ScriptedProvider(Say("a", delay_s=5), "b")) as swarm:
        run = await swarm.spawn(asking.bound())
        for send in (run.send("hello"), run.wake_at(0.0)):
            with pytest.raises(ConfigInvalid, match="reads no messages"):
                await send
        await run.result()


async def test_no_blueprint_takes_the_place_of_a_function():
    async with swarm_of(ScriptedProvider(Say("a", delay_s=5), "b")) as swarm:
        run = await swarm.spawn(asking.bound())
        await anyio.sleep(1)
        await run.pause()
        with pytest.raises(SpawnRefused, match="is an agentic function, which goes on with its own source"):
            await swarm.resume_tree(run.run_id, blueprint=blueprint(stage()))


async def test_a_blueprint_gets_no_component_of_calls():
    async with swarm_of(ScriptedProvider()) as swarm:
        with pytest.raises(SpawnRefused, match="the component 'situation'"):
            await swarm.spawn(blueprint(stage(), components=("situation",)), task="x")


async def test_the_same_key_gives_the_same_function_run():
    async with swarm_of(ScriptedProvider("a", "b")) as swarm:
        first = await swarm.spawn(asking.bound(), key="order-1")
        again = await swarm.spawn(asking.bound(), key="order-1")
        assert first.run_id == again.run_id
        assert (await again.result()).output == ["a", "b"]


async def test_functions_are_spawned_among_others():
    async with swarm_of(ScriptedProvider(script=lambda _: "a")) as swarm:
        first, second = await swarm.spawn_many([SpawnRequest(asking.bound()), SpawnRequest(recording.bound())])
        assert (await first.result()).output == ["a", "a"]
        assert (await second.result()).output == "one"


async def test_a_fork_goes_on_from_where_its_function_was():
    provider = ScriptedProvider("a", "b", "another b")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(asking.bound())
        await run.result()
        fork = await swarm.fork(run.run_id, tools=[asking])
        outcome = await fork.result()
    assert outcome.output == '["a","another b"]'
    assert len(provider.requests) == 3


async def test_a_supervisor_keeps_a_function_as_any_agent(tmp_path: Path):
    tree = shoal.Supervisor("tree", children=[shoal.agent("one", blueprint=asking.bound())])
    async with swarm_of(ScriptedProvider("a", "b")) as swarm:
        await swarm.start(tree)
        await anyio.sleep(1)
        [run] = swarm.runs()
        assert (await run.result()).output == '["a","b"]'


# --- steps


async def slowly(word: str) -> str:
    await anyio.lowlevel.checkpoint()
    return word.upper()


@shoal.agentic
async def stepping(ctx: shoal.Context) -> list[Any]:
    """Do what is recorded."""
    first = await ctx.step(slowly, "a")
    try:
        second = await ctx.step(lambda: slowly("b"))
    except TypeError as exc:
        second = str(exc)[:37]
    third = await ctx.step(tuple, [1, 2])
    now = await ctx.now()
    luck = [await ctx.random(), await ctx.random()]
    try:
        await ctx.step(object)
    except TypeError as exc:
        return [first, second, third, now.isoformat(), luck[0] != luck[1], str(exc)[:14]]
    return []


async def test_a_step_gives_plain_values_the_first_time_too():
    outcome, events = await called(stepping.bound(), ScriptedProvider())
    first, second, third, now, differs, said = outcome.output
    assert (first, second, third, differs, said) == (
        "A",
        "a step was given a function that retu",
        [1, 2],
        True,
        "<object object",
    )
    assert now.startswith("2026-01-01T00:00:0")
    assert [each.step for each in payloads(events, "StepRecorded")] == [
        "step",
        "step",
        "step",
        "now",
        "random",
        "random",
        "step",
    ]


async def test_an_argument_that_json_cannot_say_stands_for_its_type():
    @shoal.agentic
    async def odd(ctx: Any) -> bool:
        return bool(await ctx.step(callable, lambda: None))

    outcome, _ = await called(odd.bound(), ScriptedProvider())
    assert outcome.output is True


async def test_a_run_that_is_gone_for_a_while_wakes_at_its_time(tmp_path: Path):
    @shoal.agentic
    async def napping(ctx: Any) -> str:
        await ctx.sleep(3_600)
        return "up"

    _, cuts = await journaled(napping.bound(), ScriptedProvider(), tmp_path / "runs.db")
    outcome, events = await resumed(cut_after(tmp_path / "runs.db", cuts[-2]), ScriptedProvider(), [napping])
    assert outcome.output == "up"
    assert [each.step for each in payloads(events, "StepRecorded")] == ["sleep"]


# --- a damaged record

TOUCHED: list[str] = []


@shoal.tool(writes=True)
async def touch(name: str) -> str:
    """Touch a file."""
    TOUCHED.append(name)
    return f"touched {name}"


@shoal.agentic
async def touching(ctx: shoal.Context) -> str:
    """Touch a file."""
    return await ctx.infer("Touch.", tools=[touch])


async def damaged(path: Path, kind: str, provider: ScriptedProvider) -> Any:
    """Leave a function behind that has touched a file, damage its record at *kind*, and take it up again."""
    TOUCHED.clear()
    await journaled(touching.bound(), ScriptedProvider(call("touch", name="a"), "done"), path)
    with closing(SqliteReader(path)) as reader:
        [run] = reader.runs()
        seq = next(event.seq for event in reader.read(run.run_id) if event.kind == kind)
    whole = cut_after(path, 12)
    changed_rows(whole, f"UPDATE events SET payload = x'00' WHERE seq = {seq}")
    return await resumed(whole, provider, [touching])


async def test_a_call_that_may_have_begun_behind_the_damage_is_not_run_again(tmp_path: Path):
    provider = ScriptedProvider("looked")
    outcome, _ = await damaged(tmp_path / "runs.db", "ToolCallStarted", provider)
    assert (outcome.output, TOUCHED) == ("looked", ["a"])
    assert "whether it had an effect is unknown" in str(shoal.testing.request_json(provider.requests[0]))


async def test_a_function_whose_arguments_are_lost_ends(tmp_path: Path):
    outcome, _ = await damaged(tmp_path / "runs.db", "FrameEntered", ScriptedProvider())
    assert outcome.reason == "its record ends before its function was called; spawn it again"


# --- what ends a life


@final
class Full(MemoryJournal):
    """A journal that takes nothing any more once it is full."""

    full = False

    def append(self, event: Event) -> None:
        if self.full:
            raise JournalFailed("the disk is full")
        super().append(event)


async def test_a_journal_that_fails_stops_a_function_where_it_is():
    journal = Full()

    @shoal.agentic
    async def filling(ctx: Any) -> str:
        journal.full = True
        with suppress(ValueError):
            await ctx.step(int, "no number")
        return "done"

    async with swarm_of(ScriptedProvider(), journal=journal) as swarm:
        run = await swarm.spawn(filling.bound())
        with pytest.raises(JournalFailed, match="the disk is full"):
            await run.result()


async def test_a_function_that_outlives_its_run_begins_nothing_new():
    kept: list[Any] = []

    @shoal.agentic
    async def keeping(ctx: Any) -> str:
        kept.append(ctx)
        return "done"

    provider = ScriptedProvider()
    async with swarm_of(provider) as swarm:
        await (await swarm.spawn(keeping.bound())).result()
        for begin in (kept[0].infer("x"), kept[0].spawn("digest"), kept[0].now()):
            with pytest.raises(Late):
                await begin
    assert not provider.requests


@shoal.agentic(as_tool=True)
async def changing(ctx: shoal.Context) -> str:
    """Say a word that changes."""
    return await ctx.infer(f"say {WORDS[0]}")


@shoal.agentic
async def having(ctx: shoal.Context) -> str:
    """Have a model call."""
    return await ctx.infer("call", tools=[changing])


async def test_a_tool_that_does_not_repeat_ends_the_run(tmp_path: Path):
    path = tmp_path / "runs.db"
    _, cuts = await journaled(having.bound(), ScriptedProvider(call("changing"), "a", "b"), path)
    WORDS[:] = ["three"]
    provider = ScriptedProvider()
    outcome, _ = await resumed(cut_after(path, cuts[-6]), provider, [having, changing])
    assert outcome.reason.startswith("ReplayMismatch: call 1 of `changing`")
    assert not provider.requests
