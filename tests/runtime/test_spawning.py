"""Spawns: many at once, under keys, and with answers of a type."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pydantic
import pytest
from runkit import blueprint, bodies, edge, events_of, payloads, stage, swarm_of

from shoal.blueprints import Gate, OutputSpec
from shoal.errors import BlueprintInvalid, OutputInvalid, RunCancelled, RunFailed, SpawnRefused
from shoal.runtime import MemoryJournal, SpawnRequest, SqliteJournal, Swarm
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))
ANSWERS = blueprint(stage(mode="output", available_tools=()))

OWES = blueprint(stage(available_tools=("submit_output",), require_output=True))


class Finding(pydantic.BaseModel):
    """What a reader found."""

    name: str
    lines: int


def scripted(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


def submits(content: str) -> Say:
    return Say(calls=(call("submit_output", content=content),))


# --- many at once


async def test_many_runs_are_journaled_in_one_transaction(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    groups: list[int] = []
    async with swarm_of(scripted(*["done"] * 5), journal=journal) as swarm:
        journal.observers.append(lambda event: groups.append(event.seq) if event.kind == "RunSpawned" else None)
        runs = await swarm.spawn_many(SpawnRequest(PLAIN, task=str(number)) for number in range(5))
        assert len(groups) == 5
        assert [(await run.result()).output for run in runs] == ["done"] * 5
        assert [run.region("task") for run in runs] == ["0", "1", "2", "3", "4"]
    journal.close()


async def test_of_many_runs_all_begin_or_none():
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="takes no seed 'nothing'"):
            await swarm.spawn_many(
                [SpawnRequest(PLAIN, task="x"), SpawnRequest(PLAIN, task="y", seeds={"nothing": "z"})]
            )
        assert swarm.runs() == []


async def test_nobody_may_be_spawned_twice_under_one_key():
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="two of the runs to spawn have the same key"):
            await swarm.spawn_many([SpawnRequest(PLAIN, task="x", key="a"), SpawnRequest(PLAIN, task="y", key="a")])


async def test_many_runs_of_which_some_are_there_already():
    async with swarm_of(scripted("one", "two")) as swarm:
        first = await swarm.spawn(PLAIN, task="x", key="a")
        await first.result()
        again, second = await swarm.spawn_many(
            [SpawnRequest(PLAIN, task="x", key="a"), SpawnRequest(PLAIN, task="y", key="b")]
        )
        assert again.run_id == first.run_id
        assert (await second.result()).output == "two"


# --- under a key


async def test_a_second_spawn_under_a_key_returns_the_same_run():
    async with swarm_of(scripted("done")) as swarm:
        first = await swarm.spawn(PLAIN, task="x", key="order-42")
        second = await swarm.spawn(PLAIN, task="x", key="order-42")
        assert second.run_id == first.run_id
        assert (await second.result()).output == "done"
        assert len(swarm.runs()) == 1


async def test_spawns_under_one_key_at_the_same_time_start_one_run():
    async with swarm_of(scripted("done")) as swarm:
        ids: set[str] = set()

        async def spawn() -> None:
            ids.add((await swarm.spawn(PLAIN, task="x", key="k")).run_id)

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(spawn)
        assert len(ids) == 1
        await swarm.get(ids.pop()).result()


async def test_a_spawn_that_was_refused_leaves_its_key_free(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    async with swarm_of(scripted("done"), journal=journal) as swarm:
        with pytest.raises(SpawnRefused):
            await swarm.spawn(PLAIN, task="x", seeds={"nothing": "y"}, key="k")
        run = await swarm.spawn(PLAIN, task="x", key="k")
        assert (await run.result()).output == "done"
    journal.close()


async def test_a_key_holds_in_a_later_process(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_of(scripted("done"), journal=journal) as swarm:
        first = await swarm.spawn(PLAIN, task="x", key="k")
        await first.result()
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_of(scripted(), journal=journal) as swarm:
        second = await swarm.spawn(PLAIN, task="x", key="k")
        assert second.run_id == first.run_id
        assert (await second.result()).output == "done"
    journal.close()


@asynccontextmanager
async def process(path: Path, name: str, *replies: Any) -> AsyncGenerator[Swarm]:
    journal = SqliteJournal(path, host=name)
    async with swarm_of(scripted(*replies), journal=journal) as swarm:
        journal.beat(swarm.hall.clock.unix())
        yield swarm
    journal.close()


async def test_of_two_processes_under_one_key_the_second_gets_the_run_of_the_first(tmp_path: Path):
    path = tmp_path / "runs.db"
    ids: list[str] = []
    async with process(path, "one", "done") as one, process(path, "two") as two:
        now = one.hall.clock.unix()
        assert one.journal.shared is not None
        assert one.journal.shared.reserve("k", "id-of-one", now=now) == "id-of-one"

        async def wait_for_it() -> None:
            ids.append((await two.spawn(PLAIN, task="x", key="k")).run_id)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_it)
            await anyio.sleep(1)
            assert ids == []
            ids.append((await one.spawn(PLAIN, task="x", key="k")).run_id)
        assert ids == ["id-of-one"] * 2


async def test_the_key_of_a_spawn_that_was_refused_is_free_for_other_processes(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with process(path, "one") as one, process(path, "two", "done") as two:
        with pytest.raises(SpawnRefused):
            await one.spawn(PLAIN, task="x", seeds={"nothing": "y"}, key="k")
        with anyio.fail_after(1):
            run = await two.spawn(PLAIN, task="x", key="k")
        assert (await run.result()).output == "done"


async def test_spawns_that_name_the_same_keys_in_another_order_do_not_wait_for_each_other(tmp_path: Path):
    orders = [SpawnRequest(PLAIN, task="x", key=key) for key in ("a", "b")]
    found: list[set[str]] = []
    async with process(tmp_path / "runs.db", "one", "done", "done") as swarm:

        async def spawn(*wanted: SpawnRequest) -> None:
            swarm.journal.define(str(wanted[0].key), b"x")  # each has a key by the time that this is durable
            found.append({run.run_id for run in await swarm.spawn_many(wanted)})

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(spawn, *orders)
                tasks.start_soon(spawn, *reversed(orders))
        assert found[0] == found[1]


async def test_the_key_of_a_process_that_died_is_taken_over(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with process(path, "dead") as dead, process(path, "two", "done") as two:
        assert dead.journal.shared is not None
        dead.journal.shared.reserve("k", "id-of-dead", now=dead.hall.clock.unix())
        await anyio.sleep(600)
        run = await two.spawn(PLAIN, task="x", key="k")
        assert (await run.result()).output == "done"


# --- answers of a type


async def test_an_answer_of_a_type_is_a_value_of_it():
    provider = scripted(submits('{"name": "a.py", "lines": 3}'), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(ANSWERS, task="x", returns=Finding)
        outcome = await run.result()
        assert outcome.output == Finding(name="a.py", lines=3)
    description = bodies(provider)[0]["tools"][0]["function"]["description"]
    assert "It has to match this JSON schema: {" in description


async def test_an_answer_that_is_not_of_the_type_is_sent_back_to_the_model():
    provider = scripted(submits('{"name": "a.py"}'), submits('{"name": "a.py", "lines": 3}'), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(ANSWERS, task="x", returns=Finding)
        await run.result()
        (first, _) = payloads(events_of(swarm, run), "ToolCallCompleted")
        assert "the answer breaks its schema" in str(first.text)


@pytest.mark.parametrize(("returns", "content", "value"), [(int, "3", 3), (list[str], '["a"]', ["a"])])
async def test_an_answer_may_have_any_type_that_pydantic_knows(returns: Any, content: str, value: object):
    async with swarm_of(scripted(submits(content), "done")) as swarm:
        run = await swarm.spawn(ANSWERS, task="x", returns=returns)
        assert (await run.result()).output == value


async def test_an_answer_that_nobody_checked_and_is_not_of_the_type_is_an_error_with_the_answer_kept():
    async with swarm_of(scripted("just words")) as swarm:
        run = await swarm.spawn(PLAIN, task="x", returns=Finding)
        with pytest.raises(OutputInvalid, match=r"is no Finding: Invalid JSON: [^;]*; read it with `shoal result`"):
            await run.result()
        assert (await swarm.get(run.run_id).result()).output == "just words"


async def test_a_type_without_a_name_is_written_out_where_an_answer_is_not_of_it():
    number: Any = int | None
    async with swarm_of(scripted("just words")) as swarm:
        run = await swarm.spawn(PLAIN, task="x", returns=number)
        with pytest.raises(OutputInvalid, match=r"is no int \| None: Invalid JSON"):
            await run.result()


async def test_a_typed_run_that_failed_has_no_value():
    async with swarm_of(scripted(*["no"] * 9)) as swarm:
        run = await swarm.spawn(OWES, task="x", returns=Finding)
        outcome = await run.result()
        assert (outcome.status, outcome.output) == ("error", None)


async def test_a_run_that_failed_raises_where_its_result_is_checked():
    async with swarm_of(scripted(*["no"] * 9)) as swarm:
        run = await swarm.spawn(OWES, task="x", returns=Finding)
        with pytest.raises(RunFailed, match="owes an output"):
            await run.result(check=True)


async def test_a_run_that_was_cancelled_raises_where_its_result_is_checked():
    async with swarm_of(scripted(Say("late", delay_s=60.0))) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await run.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await run.result(check=True)


async def test_a_run_that_is_complete_passes_the_check():
    async with swarm_of(scripted("done")) as swarm:
        assert (await (await swarm.spawn(PLAIN, task="x")).result(check=True)).output == "done"


# --- what the model is told of its answer


def described(provider: ScriptedProvider) -> str:
    (offered,) = bodies(provider)[0]["tools"]
    return str(offered["function"]["description"]).partition("earlier one.\n")[2]


async def test_a_model_is_told_what_its_answer_has_to_look_like():
    spec = OutputSpec("markdown", "Be brief.", {"type": "object"}, "# Title")
    made = blueprint(stage(mode="output", available_tools=(), output=spec))
    provider = scripted(submits("{}"), "done")
    async with swarm_of(provider) as swarm:
        await (await swarm.spawn(made, task="x")).result()
    assert described(provider) == (
        'Write it as markdown.\nBe brief.\nIt has to match this JSON schema: {"type": "object"}\nAn example:\n# Title'
    )


async def test_a_stages_word_on_its_answer_counts_over_the_blueprints_key_by_key():
    made = blueprint(
        stage(mode="output", available_tools=(), output=OutputSpec("markdown")),
        output=OutputSpec("json", "Be brief."),
    )
    provider = scripted(submits("# A"), "done")
    async with swarm_of(provider) as swarm:
        await (await swarm.spawn(made, task="x")).result()
    assert described(provider) == "Write it as markdown.\nBe brief."


async def test_the_word_of_a_spawn_counts_over_both_and_drops_the_schema_of_another_format():
    spec = OutputSpec("json", "Be brief.", {"type": "object"})
    made = blueprint(stage(mode="output", available_tools=(), output=spec))
    provider = scripted(submits("# A"), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x", output_format="markdown")
        assert (await run.result()).output == "# A"
    assert described(provider) == "Write it as markdown.\nBe brief."


async def test_the_word_of_a_spawn_in_the_declared_format_keeps_the_schema():
    spec = OutputSpec("json", "Be brief.", {"type": "object"})
    made = blueprint(stage(mode="output", available_tools=(), output=spec))
    provider = scripted(submits("[]"), submits("{}"), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x", output_format="JSON", output_instructions="One object.")
        assert (await run.result()).output == "{}"
    assert described(provider).startswith("Write it as JSON.\nOne object.\nIt has to match this JSON schema:")


def test_a_journal_in_memory_finds_runs_by_their_key():
    assert MemoryJournal().with_key("k") is None


async def test_a_blueprint_in_which_a_name_stands_for_nothing_is_refused_at_the_spawn():
    gated = stage("a", transitions=(edge("b", gate=Gate(require_region_updated="nowhere")),))
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(BlueprintInvalid, match="no layout declares a region 'nowhere'"):
            await swarm.spawn(blueprint(gated, stage("b")), task="x")
        assert swarm.runs() == []
