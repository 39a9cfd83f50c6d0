"""The swarm as users open it: from names and places to objects."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import shoal
from shoal.actors import Supervisor, Worker
from shoal.blueprints import Blueprint, CallerSeed, Region, Stage
from shoal.errors import ConfigInvalid, JournalFailed, RestartsExhausted, RunFailed, RunIsPaused, RunOwned, SpawnRefused
from shoal.observability import Span, Telemetry, exporting
from shoal.providers import Purpose, offline
from shoal.runtime import BudgetGiven, MemoryJournal, SqliteJournal, SqliteReader, virtual
from shoal.runtime.journal import host_name
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

ANSWERS = Blueprint(
    "answers",
    (Stage("answer", mode="output", require_output=True),),
    regions=(Region("task", kind="pinned", seed=CallerSeed("task"), volatility="stable"),),
)
TITLED: dict[Purpose, str] = {"titling": "A title"}


def answering(text: str) -> ScriptedProvider:
    return ScriptedProvider(call("submit_output", content=text), "done", purposes=TITLED)


def silent() -> ScriptedProvider:
    """A provider whose answer does not come while the test lasts."""
    return ScriptedProvider(Say("late", delay_s=1e6), purposes=TITLED)


def names_in(folder: Path) -> list[str]:
    """What lies in a folder; the write-ahead log of an open journal lies beside it."""
    return sorted(each.name for each in folder.iterdir())


async def test_a_swarm_without_arguments_is_offline_and_in_memory():
    async with shoal.Swarm() as swarm:
        assert isinstance(swarm.journal, MemoryJournal)
        run = await swarm.spawn(ANSWERS, task="Say something.")
        assert run.name == "answers"
        assert [s.provider.name for s in swarm.hall.serving(None, None, None)] == ["offline"]


async def test_the_environment_names_the_provider(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOAL_PROVIDER", "nobody")
    with pytest.raises(ConfigInvalid):
        shoal.Swarm()
    assert shoal.Swarm([offline()])


async def test_a_path_keeps_the_events_in_a_file_that_others_can_read_later(tmp_path: Path):
    async with shoal.Swarm([answering("42")], journal=tmp_path / "runs.db") as swarm:
        run = await swarm.spawn(ANSWERS, task="What is it?", workdir=tmp_path)
        await run.result()
    with closing(SqliteReader(tmp_path / "runs.db")) as reader:
        assert [row.status for row in reader.runs()] == ["complete"]


async def test_a_swarm_that_was_left_holds_no_run_and_no_file(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with shoal.Swarm([silent()], journal=str(path)) as swarm:
        run = await swarm.spawn(ANSWERS, task="Wait.", workdir=tmp_path)
        assert swarm.row(run.run_id).host is not None
    with pytest.raises(JournalFailed, match="is closed"):
        swarm.runs()
    assert names_in(tmp_path) == ["runs.db"]
    with closing(SqliteReader(path)) as reader:
        assert (reader.find(run.run_id).host, reader.hosts()) == (None, {})


async def test_a_run_that_lives_in_one_swarm_cannot_be_taken_up_by_another(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with shoal.Swarm([silent()], journal=path) as first:
        run = await first.spawn(ANSWERS, task="Wait.", workdir=tmp_path)
        async with shoal.Swarm([answering("mine")], journal=path) as second:
            with pytest.raises(RunOwned, match="is hosted by process"):
                await second.resume_tree(run.run_id)


async def test_a_run_whose_swarm_was_left_can_be_taken_up(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with shoal.Swarm([silent()], journal=path) as first:
        run = await first.spawn(ANSWERS, task="Wait.", workdir=tmp_path)
    async with shoal.Swarm([answering("mine")], journal=path) as second:
        outcome = await (await second.resume_tree(run.run_id)).result()
    assert (outcome.status, outcome.output) == ("complete", "mine")


async def test_a_swarm_shows_again_and_again_that_it_lives(tmp_path: Path):
    clock = virtual()
    async with shoal.Swarm([silent()], journal=tmp_path / "runs.db", clock=clock) as swarm:
        journal = swarm.journal
        assert isinstance(journal, SqliteJournal)
        [(_, first)] = journal.hosts().values()
        await anyio.sleep(30)
        [(_, later)] = journal.hosts().values()
        assert clock.unix() - later <= 4
        assert later - first > 20


async def test_a_beat_that_cannot_be_written_takes_nothing_down(tmp_path: Path):
    path = tmp_path / "runs.db"
    async with shoal.Swarm([silent()], journal=path) as swarm:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DROP TABLE hosts")
        await anyio.sleep(10)
        assert swarm.healthy
        assert swarm.tree.render().count("running") > 5


async def test_a_given_journal_with_a_name_is_beaten_for_and_stays_open(tmp_path: Path):
    with closing(SqliteJournal(tmp_path / "runs.db", host=host_name())) as journal:
        async with shoal.Swarm([silent()], journal=journal):
            assert len(journal.hosts()) == 1
        assert journal.hosts() == {}


class Kept:
    """A sink that keeps spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.flushed = 0

    def emit(self, span: Span) -> None:
        self.spans.append(span)

    def flush(self, timeout_s: float) -> bool:
        self.flushed += 1
        return True

    def close(self, timeout_s: float) -> None:
        raise AssertionError("it is its user's")

    def counts(self) -> tuple[int, int, int, int]:
        return len(self.spans), 0, 0, 0


async def test_a_telemetry_of_the_users_gets_the_spans_and_stays_open(tmp_path: Path):
    sink = Kept()
    async with shoal.Swarm([answering("42")], telemetry=Telemetry(sink)) as swarm:
        run = await swarm.spawn(ANSWERS, task="What is it?", workdir=tmp_path)
        await run.result()
        assert "telemetry" in swarm.tree.render()
    assert [span.name for span in sink.spans][-1] == "invoke_agent answers"
    assert sink.flushed > 0


async def test_one_run_may_be_asked_for_an_answer_of_a_type(tmp_path: Path):
    outcome = await shoal.run(ANSWERS, task="?", workdir=tmp_path, providers=[answering("[1, 2]")], returns=list[int])
    assert outcome.output == [1, 2]


@shoal.agentic
async def doubled(ctx: shoal.Context, number: int) -> int:
    """Double a number."""
    return 2 * number


async def test_one_run_may_be_of_a_function():
    assert (await shoal.run(doubled.bound(21), providers=[silent()])).output == 42


async def test_one_run_has_the_limits_that_are_given(tmp_path: Path):
    with pytest.raises(RunIsPaused, match="`max_tokens` = 1"):
        await shoal.run(
            ANSWERS, task="?", workdir=tmp_path, providers=[answering("42")], budget=BudgetGiven(max_tokens=1)
        )


async def test_telemetry_of_the_users_catches_up_with_a_run_that_began_before(tmp_path: Path):
    sink = Kept()
    async with shoal.Swarm([silent()], journal=tmp_path / "runs.db") as swarm:
        run = await swarm.spawn(ANSWERS, task="What is it?", workdir=tmp_path)
    async with shoal.Swarm([answering("42")], journal=tmp_path / "runs.db", telemetry=Telemetry(sink)) as swarm:
        await (await swarm.resume_tree(run.run_id)).result()
    assert [span.name for span in sink.spans][-1] == "invoke_agent answers"


async def test_telemetry_keeps_the_history_that_it_was_made_with():
    own = Telemetry(Kept(), history=MemoryJournal())
    async with shoal.Swarm([silent()], telemetry=own) as swarm:
        assert own._following.history is not swarm.journal


async def test_a_swarm_may_be_opened_again_with_the_same_telemetry(tmp_path: Path):
    sink = Kept()
    swarm = shoal.Swarm([ScriptedProvider(script=lambda _request: "done")], telemetry=Telemetry(sink))
    for _ in range(2):
        async with swarm:
            await (await swarm.spawn(Blueprint("b", (Stage("s"),)), workdir=tmp_path)).result()
    assert [span.name for span in sink.spans].count("invoke_agent b") == 2


async def test_a_tracer_provider_of_the_users_gets_the_spans(tmp_path: Path):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with shoal.Swarm([answering("42")], telemetry=provider) as swarm:
        with provider.get_tracer("mine").start_as_current_span("mine") as mine:
            run = await swarm.spawn(ANSWERS, task="What is it?", workdir=tmp_path)
        await run.result()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    parent, here = spans["invoke_agent answers"].parent, mine.get_span_context()
    assert parent is not None
    assert (parent.trace_id, parent.span_id) == (here.trace_id, here.span_id)


async def test_otlp_is_opened_and_closed_with_the_swarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    exporter = InMemorySpanExporter()
    monkeypatch.setattr("shoal._swarm.otlp", lambda history: exporting(exporter, history=history))
    async with shoal.Swarm([answering("42")], telemetry="otlp") as swarm:
        await (await swarm.spawn(ANSWERS, task="What is it?", workdir=tmp_path)).result()
    assert "invoke_agent answers" in {span.name for span in exporter.get_finished_spans()}
    assert exporter._stopped


async def test_telemetry_of_another_kind_is_refused():
    with pytest.raises(ConfigInvalid, match="name `otlp`"):
        async with shoal.Swarm([silent()], telemetry="jaeger"):  # type: ignore[arg-type]
            pass


async def test_a_swarm_opens_and_closes_without_a_block(tmp_path: Path):
    swarm = await shoal.Swarm([answering("42")], journal=tmp_path / "runs.db").open()
    run = await swarm.spawn(ANSWERS, task="What is it?", workdir=tmp_path)
    assert (await run.result()).output == "42"
    await swarm.close()
    await swarm.close()
    assert "closed" in repr(swarm)


async def test_an_open_swarm_cannot_be_opened_again():
    swarm = await shoal.Swarm([silent()]).open()
    with pytest.raises(ConfigInvalid, match="is open"):
        await swarm.open()
    await swarm.close()


async def test_what_opening_raises_reaches_whoever_opens(tmp_path: Path):
    (tmp_path / "folder.db").mkdir()
    swarm = shoal.Swarm([silent()], journal=tmp_path / "folder.db")
    with pytest.raises(JournalFailed, match=r"folder\.db"):
        await swarm.open()
    await swarm.close()


async def test_an_opening_that_is_cancelled_leaves_nothing_open(tmp_path: Path):
    path = tmp_path / "runs.db"
    with anyio.CancelScope() as scope:
        scope.cancel()
        await shoal.Swarm([silent()], journal=path).open()
    await anyio.sleep(1)
    assert names_in(tmp_path) in ([], ["runs.db"])


async def test_an_opening_that_fails_leaves_no_file_open(tmp_path: Path):
    with pytest.raises(ConfigInvalid, match="needs providers"):
        await shoal.Swarm([], journal=tmp_path / "runs.db").open()
    assert names_in(tmp_path) == ["runs.db"]


async def test_closing_tells_that_a_tree_gave_up():
    async def fall() -> None:
        raise ValueError("again")

    swarm = await shoal.Swarm([silent()]).open()
    await swarm.start(Supervisor("doomed", children=[Worker("falls", fall)]))
    await anyio.sleep(1)
    with pytest.raises(RestartsExhausted):
        await swarm.close()


async def test_one_call_runs_a_blueprint(tmp_path: Path):
    outcome = await shoal.run(ANSWERS, task="What is it?", workdir=tmp_path, providers=[answering("42")])
    assert (outcome.status, outcome.output) == ("complete", "42")


async def test_one_call_raises_where_the_run_failed(tmp_path: Path):
    with pytest.raises(RunFailed):
        await shoal.run(ANSWERS, task="?", workdir=tmp_path, providers=[ScriptedProvider()])


async def test_one_call_returns_a_failed_outcome_where_that_is_wanted(tmp_path: Path):
    outcome = await shoal.run(ANSWERS, task="?", workdir=tmp_path, providers=[ScriptedProvider()], check=False)
    assert outcome.status == "error"


async def test_one_call_refuses_what_cannot_start():
    with pytest.raises(SpawnRefused, match="no folder"):
        await shoal.run(ANSWERS, task="?", workdir="/nowhere", providers=[answering("42")])


@pytest.mark.parametrize("pool", ["offlin", "openai:gpt-5"])
def test_a_pool_that_is_nobodys_is_refused(pool: str):
    with pytest.raises(
        ConfigInvalid, match=f"the pool '{pool}' is no provider's that is here; name `tools`, `offline`"
    ):
        shoal.Swarm([offline()], pools={pool: 3})
    shoal.Swarm([offline()], pools={"offline": 1, "offline:any": 1, "tools": 1})


async def test_a_swarm_is_not_opened_twice_at_once(tmp_path: Path):
    async with shoal.Swarm([answering("42")], journal=tmp_path / "runs.db") as swarm:
        with pytest.raises(ConfigInvalid, match="open already; leave its block"):
            async with swarm:
                raise AssertionError("unreachable")
        assert (await (await swarm.spawn(ANSWERS, task="?", workdir=tmp_path)).result()).output == "42"


class Half:
    """Half a provider."""

    name = "half"
    default_model = None

    def __repr__(self) -> str:
        return "<a half>"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ["openai"],
            r"holds 'openai', which is no provider; make `shoal\.providers\.openai\(…\)`, or set `SHOAL_PROVIDER`",
        ),
        ("openai-chat", r"make `shoal\.providers\.openai_chat\(…\)`"),
        (["gpt"], "holds 'gpt', which is no provider; make one"),
        (ScriptedProvider(), "is <ScriptedProvider .*> alone; give a list of it"),
        (3, r"`providers` is 3; give a list, such as"),
        ([3], "holds 3, which is no provider; make one"),
        ([Half()], "the provider <a half> has no `stream`, `count_tokens`, `profile`, `aclose`; write what"),
    ],
)
def test_what_is_no_list_of_providers_is_refused_with_what_to_write(given: Any, said: str):
    with pytest.raises(ConfigInvalid, match=said):
        shoal.Swarm(given)


def test_telemetry_among_the_observers_is_refused_since_it_would_send_nothing():
    with pytest.raises(ConfigInvalid, match="give it as `telemetry=` instead"):
        shoal.Swarm(observers=[Telemetry(lambda _spans: None)])
