"""Children that code spawns: with answers of a type, many at once, under keys, budgets and models of their own."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pydantic
import pytest
from agentkit import cut_after, journaled, resumed
from runkit import TALK, TASK, blueprint, events_of, kinds, payloads, stage, swarm_of

import shoal
from shoal.blueprints import Blueprint, CallerSeed, Region
from shoal.errors import ConfigInvalid, DefinitionMissing, OutputInvalid, RunEnded, RunIsPaused, SpawnRefused
from shoal.providers import Request
from shoal.runtime import BudgetGiven, SpawnRequest, SqliteJournal, Swarm, tool
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

HOLDS = Blueprint("holds", (stage("hold", available_tools=()),), regions=(TASK, TALK))
COUNTS = Blueprint(
    "counts",
    (stage("count", mode="output", available_tools=()),),
    regions=(Region("page", kind="pinned", max_tokens=200, seed=CallerSeed("page"), required=True), TALK),
)


class Count(pydantic.BaseModel):
    """How many words a page has."""

    words: int


def counting(request: Request) -> Any:
    """Hold for an hour, or count the words of the page; then be done."""
    page = next((str(block.text) for block in request.system if block.owner == "page"), None)
    if request.purpose != "stage":
        return "A title"
    if page is None:
        return Say("held", delay_s=3600.0)
    submitted = any(message.role == "tool" for segment in request.messages for message in segment.messages)
    words = len(page.split()) - 2  # without the heading
    return "done" if submitted else call("submit_output", content=f'{{"words": {words}}}')


def counters() -> ScriptedProvider:
    return ScriptedProvider(script=counting)


def pages(*texts: str, **more: Any) -> list[SpawnRequest[Count]]:
    return [SpawnRequest(COUNTS, seeds={"page": text}, returns=Count, **more) for text in texts]


async def test_a_child_answers_with_a_value_of_the_type_that_is_asked_for():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        child = await parent.spawn(COUNTS, seeds={"page": "three words here"}, returns=Count)
        assert (await child.result()).output == Count(words=3)


async def test_many_children_begin_at_once_and_answer_in_order():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        children = await parent.spawn_many(pages("one", "one two", "one two three"))
        assert [(await child.result()).output for child in children] == [Count(words=n) for n in (1, 2, 3)]
        assert [spawned.child for spawned in payloads(events_of(swarm, parent), "ChildSpawned")] == [
            child.run_id for child in children
        ]


async def test_of_many_children_all_begin_or_none():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        with pytest.raises(SpawnRefused, match="needs the seed `page`"):
            await parent.spawn_many([*pages("one"), SpawnRequest(COUNTS, returns=Count)])
        assert [run.name for run in swarm.runs()] == ["holds"]
        assert "ChildSpawned" not in kinds(events_of(swarm, parent))


@pytest.mark.parametrize(
    ("said", "word"),
    [({"workdir": "/tmp"}, "workdir"), ({"unattended": False}, "unattended"), ({"output_dir": "x"}, "output_dir")],
)
async def test_what_a_parent_decides_is_not_said_of_a_child(said: dict[str, Any], word: str):
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        with pytest.raises(SpawnRefused, match=f"a child has the `{word}` of its parent; leave it out"):
            await parent.spawn_many(pages("one", **said))


async def test_a_child_is_spawned_once_under_a_key():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        first = await parent.spawn(COUNTS, seeds={"page": "one"}, key="page-1", returns=Count)
        again = await parent.spawn(COUNTS, seeds={"page": "one"}, key="page-1", returns=Count)
        assert (again.run_id, (await again.result()).output) == (first.run_id, Count(words=1))


async def test_a_child_has_limits_of_its_own():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        child = await parent.spawn(COUNTS, seeds={"page": "one"}, budget=BudgetGiven(max_tokens=10))
        with pytest.raises(RunIsPaused, match="`max_tokens` = 10"):
            await child.result()
        assert parent.status == "running"


async def test_a_child_is_served_by_the_model_that_is_named_for_it():
    async with swarm_of(counters(), ScriptedProvider(script=counting, name="other")) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        child = await parent.spawn(COUNTS, seeds={"page": "one"}, model="other:m")
        [entered] = payloads(events_of(swarm, child), "StageEntered")
        assert (entered.provider, entered.model) == ("other", "m")


async def test_a_run_that_is_over_says_what_to_spawn_from():
    async with swarm_of(ScriptedProvider("over", purposes={"titling": "T"})) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        await parent.result()
        with pytest.raises(RunEnded, match="spawn them from the swarm, or from a run that waits for them"):
            await parent.spawn(COUNTS, seeds={"page": "one"})


@shoal.agentic
async def doubled(ctx: shoal.Context, number: int) -> int:
    """Double a number."""
    return 2 * number


class Slow:
    """A memory that holds nothing, and takes ten seconds to say so."""

    place = "nowhere"

    async def resident(self, budget_tokens: int) -> str:
        """Take ten seconds."""
        await anyio.sleep(10.0)
        return ""

    async def recall(self, query: str) -> list[Any]:
        """Find nothing."""
        return []

    async def remember(self, name: str, text: str, *, append: bool = False) -> None:
        """Forget it."""


async def test_a_run_that_ends_while_its_child_is_made_ready_is_over():
    made = blueprint(stage(available_tools=()))
    provider = ScriptedProvider(Say("done", delay_s=5.0), purposes={"titling": "T"})
    async with swarm_of(provider, memory=Slow()) as swarm:
        parent = await swarm.spawn(made, task="x")
        with pytest.raises(RunEnded, match="is over; it can have no more children"):
            await parent.spawn(blueprint(stage(), components=("memory",)), task="y")
        assert [run.run_id for run in swarm.runs()] == [parent.run_id]


async def test_a_run_spawns_an_agentic_function():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        child = await parent.spawn(doubled.bound(21))
        assert (await child.result()).output == 42


async def test_a_region_that_a_run_does_not_have_is_named_with_those_it_has():
    async with swarm_of(counters()) as swarm:
        parent = await swarm.spawn(HOLDS, task="x")
        with pytest.raises(KeyError, match="has no region 'tasks'; there is `task`, `conversation`"):
            parent.region("tasks")


# --- by agentic functions


@shoal.agentic
async def total(ctx: shoal.Context, texts: list[str]) -> int:
    """Add up the words of some pages."""
    spawned = await ctx.gather(
        *[ctx.spawn(COUNTS, seeds={"page": text}, returns=Count, model="scripted:m") for text in texts]
    )
    ended = await ctx.gather(*[child.result() for child in spawned])
    return sum(each.output.words for each in ended if each.output is not None)


async def test_a_function_gets_typed_answers_of_its_children_wherever_it_is_cut(tmp_path: Path):
    outcome, cuts = await journaled(total.bound(["one", "one two"]), counters(), tmp_path / "whole.db")
    assert outcome.output == 3
    for cut in cuts:
        again, _ = await resumed(cut_after(tmp_path / "whole.db", cut), counters(), [total])
        assert (cut, again.output) == (cut, 3)


@shoal.agentic
async def careless(ctx: shoal.Context) -> str:
    """Ask for a number where words are given."""
    child = await ctx.spawn(HOLDS, task="x", returns=int)
    try:
        await child.result()
    except OutputInvalid as error:
        return str(error)
    return "no error"


async def test_an_answer_of_another_type_is_raised_in_the_function():
    async with swarm_of(ScriptedProvider("words", purposes={"titling": "T"})) as swarm:
        said = (await (await swarm.spawn(careless.bound())).result()).output
        assert "is no int: Invalid JSON" in str(said)


TALKS = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))


@shoal.agentic
async def patient(ctx: shoal.Context) -> str:
    """Wait for two children of which one is to give a number."""
    children = [await ctx.spawn(TALKS, task="x", returns=int), await ctx.spawn(TALKS, task="x")]
    ends = [await child.result() for child in children]
    return str([(end.status, end.output) for end in ends])


def stalling(request: Request) -> Any:
    """Say something in the first stage, and take ten minutes for the second."""
    said = any(message.role == "assistant" for segment in request.messages for message in segment.messages)
    return Say("late", delay_s=600.0) if said else "words"


async def test_a_child_that_was_cancelled_has_no_value_of_its_type():
    async with swarm_of(ScriptedProvider(script=stalling)) as swarm:
        run = await swarm.spawn(patient.bound())
        await anyio.sleep(60)
        for child in swarm.runs(name="test"):
            await child.cancel("enough")
            await anyio.sleep(60)
        assert (await run.result()).output == "[('cancelled', None), ('cancelled', 'words')]"


@shoal.agentic
async def limited(ctx: shoal.Context) -> str:
    """Spawn with a limit that is none."""
    try:
        await ctx.spawn(HOLDS, task="x", budget=BudgetGiven(max_tokens=0))
    except ConfigInvalid as error:
        return str(error)
    return "no error"


async def test_a_limit_that_is_none_is_raised_in_the_function():
    async with swarm_of(counters()) as swarm:
        said = (await (await swarm.spawn(limited.bound())).result()).output
        assert "`max_tokens` of the budget is 0" in str(said)


# --- what a key finds interrupted


async def left_behind(path: Path) -> str:
    """Spawn a run under a key in a process that ends before the run does, and return its id."""
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(ScriptedProvider(Say("late", delay_s=60.0)), journal=journal) as swarm:
            run = await swarm.spawn(COUNTS, seeds={"page": "one two"}, key="october", returns=Count)
        journal.leave()
    return run.run_id


async def test_a_spawn_under_the_key_of_a_run_that_was_interrupted_lets_it_go_on(tmp_path: Path):
    run_id = await left_behind(tmp_path / "runs.db")
    with closing(SqliteJournal(tmp_path / "runs.db", host="second")) as journal:
        async with swarm_of(counters(), journal=journal, seed=1) as swarm:
            run = await swarm.spawn(COUNTS, seeds={"page": "one two"}, key="october", returns=Count)
            assert (run.run_id, (await run.result()).output) == (run_id, Count(words=2))


async def test_a_run_that_is_taken_up_answers_with_a_value_of_the_type_that_is_named_again(tmp_path: Path):
    run_id = await left_behind(tmp_path / "runs.db")
    with closing(SqliteJournal(tmp_path / "runs.db", host="second")) as journal:
        async with swarm_of(counters(), journal=journal, seed=1) as swarm:
            run = await swarm.resume_tree(run_id, returns=Count)
            assert (await run.result()).output == Count(words=2)
            assert (await swarm.get(run_id, returns=Count).result()).output == Count(words=2)
            assert (await swarm.get(run_id).result()).output == '{"words": 2}'


async def test_many_spawns_take_up_those_that_were_interrupted_and_begin_the_others(tmp_path: Path):
    run_id = await left_behind(tmp_path / "runs.db")
    with closing(SqliteJournal(tmp_path / "runs.db", host="second")) as journal:
        async with swarm_of(counters(), journal=journal, seed=1) as swarm:
            orders = [*pages("one two", key="october"), *pages("one", key="november")]
            first, second = await swarm.spawn_many(orders)
            assert first.run_id == run_id
            assert [(await run.result()).output for run in (first, second)] == [Count(words=2), Count(words=1)]


async def test_a_run_that_another_process_hosts_is_left_to_it(tmp_path: Path):
    with (
        closing(SqliteJournal(tmp_path / "runs.db", host="first")) as one,
        closing(SqliteJournal(tmp_path / "runs.db", host="second")) as two,
    ):
        async with swarm_of(counters(), journal=one) as first, swarm_of(counters(), journal=two, seed=1) as second:
            one.beat(first.hall.clock.unix())
            hosted = await first.spawn(HOLDS, task="x", key="k")
            again = await second.spawn(HOLDS, task="x", key="k")
            assert (again.run_id, again.status) == (hosted.run_id, "running")
            assert "RunResumed" not in kinds(events_of(first, hosted))


async def test_a_run_under_a_key_goes_on_with_the_functions_that_are_given_again(tmp_path: Path):
    @tool(reads=True)
    async def look() -> str:
        """Look."""
        await anyio.sleep(60.0)
        return "seen"

    made = blueprint(stage(available_tools=("look",)))

    async def spawned(swarm: Swarm, *tools: Any) -> Any:
        return await swarm.spawn(made, task="x", tools=tools, key="k")

    with closing(SqliteJournal(tmp_path / "runs.db", host="first")) as journal:
        async with swarm_of(ScriptedProvider(call("look"), purposes={"titling": "T"}), journal=journal) as swarm:
            await spawned(swarm, look)
            await anyio.sleep(1)
        journal.leave()
    with closing(SqliteJournal(tmp_path / "runs.db", host="second")) as journal:
        provider = ScriptedProvider(*["done"] * 3, purposes={"titling": "T"})
        async with swarm_of(provider, journal=journal, seed=1) as swarm:
            with pytest.raises(DefinitionMissing, match="look"):
                await spawned(swarm)
            assert (await (await spawned(swarm, look)).result()).status == "complete"


async def test_an_agentic_function_under_a_key_goes_on(tmp_path: Path):
    with closing(SqliteJournal(tmp_path / "runs.db", host="first")) as journal:
        async with swarm_of(ScriptedProvider(Say("late", delay_s=60.0)), journal=journal) as swarm:
            await swarm.spawn(total.bound(["one"]), key="k")
            await anyio.sleep(1)
        journal.leave()
    with closing(SqliteJournal(tmp_path / "runs.db", host="second")) as journal:
        async with swarm_of(counters(), journal=journal, seed=1) as swarm:
            run = await swarm.spawn(total.bound(["one"]), key="k")
            assert (await run.result()).output == 1
