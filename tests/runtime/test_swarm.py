"""The swarm as its user holds it: spawning, refusing, watching, steering, trees of agents."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from runkit import TALK, TASK, blueprint, events_of, kinds, payloads, stage, swarm_of

from shoal.actors import DynamicSupervisor, Supervisor, Worker
from shoal.blueprints import Blueprint, CallerSeed, Region, Stage
from shoal.errors import (
    NotBuiltYet,
    ProviderRefused,
    ProviderSetup,
    ProviderUnavailable,
    RestartsExhausted,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunIsPaused,
    RunNotFound,
    SpawnRefused,
)
from shoal.providers import RetryPolicy, Text, TextDelta, ToolCall
from shoal.runtime import FunctionTool, _unbuilt, agent, checked, tool
from shoal.runtime._started import Trees
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

PLAIN = blueprint(stage(available_tools=()))


def scripted(*replies: object, **more: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"}, **more)  # type: ignore[arg-type]


# --- spawning


async def test_a_task_that_no_region_takes_is_refused():
    made = blueprint(
        stage(available_tools=()), regions=(Region("brief", kind="pinned", seed=CallerSeed("brief")), TALK)
    )
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="takes no task; give it its seeds instead: `brief`"):
            await swarm.spawn(made, task="x")
        assert swarm.runs() == []


async def test_a_seed_that_no_region_takes_is_refused_with_the_names_that_are_taken():
    made = blueprint(
        stage(available_tools=()), regions=(Region("brief", kind="pinned", seed=CallerSeed("brief")), TALK)
    )
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="takes no seed 'breif'; it takes `brief`"):
            await swarm.spawn(made, seeds={"breif": "x"})


async def test_a_required_seed_that_is_missing_is_refused():
    made = blueprint(
        stage(available_tools=()),
        regions=(Region("brief", kind="pinned", seed=CallerSeed("brief"), required=True), TALK),
    )
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="needs the seed `brief`"):
            await swarm.spawn(made)


async def test_a_task_that_its_region_cannot_hold_is_refused_and_not_cut():
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="is 1000 tokens, and it holds 500"):
            await swarm.spawn(PLAIN, task="word " * 800)


async def test_a_tool_that_nobody_has_is_refused():
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="lists `fly`, which nobody has"):
            await swarm.spawn(blueprint(stage(available_tools=("fly",))), task="x")


async def test_functions_that_look_the_same_are_kept_apart_by_run():
    def teller(word: str) -> FunctionTool[[], str]:
        @tool(reads=True)
        async def tell() -> str:
            """Tell the word."""
            return word

        return tell

    ask = ToolCall("c", "tell", Text.of("{}"))
    async with swarm_of(scripted(ask, Say("done"), ask, Say("done"))) as swarm:
        for word in ("first", "second"):
            run = await swarm.spawn(PLAIN, task="x", tools=[teller(word)])
            await run.result()
            told = payloads(events_of(swarm, run), "ToolCallCompleted")
            assert [str(payload.text) for payload in told] == [word]


async def test_a_working_directory_that_is_not_there_is_refused():
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="is no folder"):
            await swarm.spawn(PLAIN, task="x", workdir="/does/not/exist")


async def test_keys_that_are_not_acted_on_refuse_the_spawn_instead_of_being_half_obeyed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(_unbuilt, "os", SimpleNamespace(name="nt"))
    made = blueprint(stage(available_tools=()), shell_hint=True)
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(NotBuiltYet, match=r"agent.shell_hint"):
            await swarm.spawn(made, task="x")


async def test_a_model_of_a_provider_that_is_not_here_is_refused_with_those_that_are():
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="no provider here serves other:big; this swarm has scripted"):
            await swarm.spawn(PLAIN, task="x", model="other:big")


async def test_instructions_that_their_region_cannot_hold_are_refused_at_spawn():
    long = Stage("work", system_prompt="word " * 500)
    made = blueprint(long, regions=(TASK, Region("stage_instructions", kind="pinned", max_tokens=100), TALK))
    async with swarm_of(scripted()) as swarm:
        with pytest.raises(SpawnRefused, match="raise its budget or shorten `system_prompt`"):
            await swarm.spawn(made, task="x")


# --- watching


async def test_events_come_in_order_and_end_with_the_run():
    async with swarm_of(scripted("hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        seen = [event async for event in run.events()]
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))  # type: ignore[union-attr]
    assert seen[-1].kind == "RunEnded"  # type: ignore[union-attr]


async def test_events_behind_a_known_one_leave_out_what_was_seen():
    async with swarm_of(scripted("hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await run.result()
        seen = [event.seq async for event in run.events(after=3)]  # type: ignore[union-attr]
    assert seen[0] == 4


async def test_deltas_stream_between_events_and_have_no_seq():
    async with swarm_of(scripted(Say("one\ntwo\n", delay_s=5))) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        pieces = [item.text async for item in run.events(deltas=True) if isinstance(item, TextDelta)]
    assert pieces == ["one\n", "two\n"]


async def test_a_result_can_be_had_long_after_the_end():
    async with swarm_of(scripted("hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        first = await run.result()
        assert await swarm.get(run.run_id[:13]).result() == first


async def test_a_run_is_found_by_the_beginning_of_its_id():
    async with swarm_of(scripted("hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        assert swarm.get(run.run_id[:20]).run_id == run.run_id
        with pytest.raises(RunNotFound):
            swarm.get("zzz")


async def test_the_ledger_adds_up_to_the_bill():
    async with swarm_of(scripted("hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await run.result()
        billed = [p.billed for p in payloads(events_of(swarm, run), "InferenceCompleted")]
        ledger = run.ledger()
    assert ledger.total.usage.input == sum(usage.input for usage in billed)
    assert ledger.total.usage.output == sum(usage.output for usage in billed)


# --- ends


async def test_checked_raises_what_a_status_stands_for():
    async with swarm_of(scripted(ProviderRefused("no"))) as swarm:
        outcome = await (await swarm.spawn(PLAIN, task="x")).result()
        with pytest.raises(RunFailed, match="failed: no"):
            checked(outcome)


async def test_a_cancelled_run_says_so_and_takes_no_mail():
    async with swarm_of(scripted(Say("late", delay_s=100))) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await anyio.sleep(1)
        await run.cancel("enough")
        outcome = await run.result()
        assert (outcome.status, outcome.reason) == ("cancelled", "enough")
        with pytest.raises(RunCancelled):
            checked(outcome)
        with pytest.raises(RunEnded):
            await run.send("hello?")


async def test_nothing_is_written_to_a_run_after_its_end():
    async with swarm_of(scripted(Say("late", delay_s=100))) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await anyio.sleep(1)
        await run.cancel()
        await anyio.sleep(1000)
        assert kinds(events_of(swarm, run))[-1] == "RunEnded"


async def test_leaving_the_block_leaves_no_task_and_closes_the_providers():
    provider = scripted(Say("late", delay_s=1000))
    async with swarm_of(provider) as swarm:
        await swarm.spawn(PLAIN, task="x")
        await anyio.sleep(1)
    assert provider.closed
    assert repr(swarm) == "<Swarm closed>"


async def test_a_swarm_says_how_many_runs_live_in_it_and_what_is_ready():
    async with swarm_of(scripted(Say("late", delay_s=1000))) as swarm:
        await swarm.spawn(PLAIN, task="x")
        await anyio.sleep(1)
        assert repr(swarm) == "<Swarm <Hall 1 runs live here>>"
        assert repr(swarm.hall.home) == "<Home of 1 runs>"
        assert repr(swarm.hall.programs) == "<Programs 1 ready, 0 files read>"


async def test_files_that_were_read_long_ago_are_forgotten(tmp_path: Path):
    async with swarm_of(scripted()) as swarm:
        for number in range(260):
            file = tmp_path / f"{number}.toml"
            file.write_text(f'[agent]\nname = "n{number}"\n[stages.a]\n')
            swarm.hall.programs.bundle(file)
        assert repr(swarm.hall.programs) == "<Programs 0 ready, 256 files read>"


def test_trees_name_what_was_started_among_them():
    assert repr(Trees(DynamicSupervisor("runs"))) == "<Trees []>"


# --- pausing


async def test_a_reply_that_lands_while_paused_is_kept_and_not_asked_for_again():
    provider = scripted(Say("hello", delay_s=10), "world")
    made = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x")
        await anyio.sleep(1)
        await run.pause()
        await anyio.sleep(100)
        with pytest.raises(RunIsPaused):
            await run.result()
        await run.resume()
        outcome = await run.result()
    assert outcome.output == "world"
    assert sum(request.purpose == "stage" for request in provider.requests) == 2


async def test_a_pause_says_why_and_what_lets_it_go_on():
    async with swarm_of(scripted(ProviderSetup("no credits"), "hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        with pytest.raises(RunIsPaused) as paused:
            await run.result()
        assert paused.value.reason == "needs setup"
        await run.resume()
        assert (await run.result()).output == "hello"


async def test_waiting_through_a_pause_is_possible():
    async with swarm_of(scripted(ProviderSetup("no credits"), "hello")) as swarm:
        run = await swarm.spawn(PLAIN, task="x")

        async def help_out() -> None:
            await anyio.sleep(50)
            await run.resume()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(help_out)
            outcome = await run.result(wait_paused=True)
    assert outcome.output == "hello"


# --- retries and failover


async def test_runs_that_one_failure_hit_together_come_back_one_by_one():
    provider = scripted(*[ProviderUnavailable("gone")] * 4, *["hello"] * 4)
    async with swarm_of(provider) as swarm:
        runs = [await swarm.spawn(PLAIN, task="x") for _ in range(4)]
        for run in runs:
            await run.result()
        delays = [p.delay_s for run in runs for p in payloads(events_of(swarm, run), "InferenceRetried")]
    assert len(delays) == len(set(delays)) == 4


async def test_attempts_that_are_repeated_are_journaled_with_their_delay():
    provider = scripted(ProviderUnavailable("gone"), "hello")
    async with swarm_of(provider, retry=RetryPolicy(blip_s=2.0)) as swarm:
        run = await swarm.spawn(PLAIN, task="x")
        await run.result()
        retried = payloads(events_of(swarm, run), "InferenceRetried")
    assert [(p.attempt, p.error, p.delay_s) for p in retried] == [(1, "ProviderUnavailable", 2.0)]


async def test_a_stage_goes_on_with_its_next_candidate():
    from shoal.blueprints import ModelChoice, ModelSettings

    first = scripted(script=lambda _: ProviderRefused("not me"), name="first")
    second = scripted("hello", name="second")
    models = ModelSettings((ModelChoice("first"), ModelChoice("second")))
    async with swarm_of(first, second) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=(), model=models)), task="x")
        outcome = await run.result()
        changed = payloads(events_of(swarm, run), "ModelChanged")
    assert outcome.output == "hello"
    assert [(p.provider, p.reason) for p in changed] == [("second", "ProviderRefused")]


async def test_a_provider_that_keeps_failing_is_left_alone():
    provider = scripted(script=lambda r: "T" if r.purpose == "titling" else ProviderUnavailable("gone"))
    async with swarm_of(provider, retry=RetryPolicy(attempts=1)) as swarm:
        for _ in range(3):
            await (await swarm.spawn(PLAIN, task="x")).result()
        asked = len(provider.requests)
        outcome = await (await swarm.spawn(PLAIN, task="x")).result()
        assert "is left alone for a while" in outcome.reason
        assert len([r for r in provider.requests[asked:] if r.purpose == "stage"]) == 0
        assert not swarm.healthy


# --- crashes


class Buggy:
    """A provider with a bug: its second request raises something that no provider may raise."""

    def __init__(self, crashes: int) -> None:
        self._inner = scripted(*["hello"] * 50)
        self.name, self.default_model = self._inner.name, self._inner.default_model
        self.crashes = crashes
        self.asked = 0

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def stream(self, request):
        if request.purpose == "stage":
            self.asked += 1
            if 1 < self.asked <= 1 + self.crashes:
                raise RuntimeError("a bug")
        from contextlib import aclosing

        async with aclosing(self._inner.stream(request)) as events:
            async for event in events:
                yield event


TWO = blueprint(stage("a", available_tools=()), stage("b", available_tools=()))


async def test_a_run_that_crashes_is_restarted_from_its_journal():
    async with swarm_of(provider := Buggy(1)) as swarm:  # type: ignore[arg-type]
        run = await swarm.spawn(TWO, task="x")
        outcome = await run.result()
        restarted = payloads(events_of(swarm, run), "RunRestarted")
    assert outcome.status == "complete"
    assert provider.asked == 3
    assert "RuntimeError: a bug" in restarted[0].error


async def test_a_run_that_crashes_twice_at_one_place_ends_with_both_tracebacks():
    provider = ScriptedProvider(RuntimeError("one"), RuntimeError("another"), purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        outcome = await (await swarm.spawn(TWO, task="x")).result()
    assert outcome.status == "error"
    assert outcome.reason.splitlines()[0] == "it crashed 2 times without getting on, with RuntimeError: another"
    assert outcome.reason.count("Traceback") == 2


async def test_two_crashes_with_one_traceback_show_it_once():
    async with swarm_of(Buggy(9)) as swarm:  # type: ignore[arg-type]
        outcome = await (await swarm.spawn(TWO, task="x")).result()
    first = outcome.reason.splitlines()[0]
    assert first == "it crashed 2 times without getting on, with RuntimeError: a bug, in the same way each time"
    assert outcome.reason.count("Traceback") == 1


async def test_a_crash_is_that_runs_alone():
    async with swarm_of(Buggy(9)) as swarm:  # type: ignore[arg-type]
        crashing = await swarm.spawn(TWO, task="x")
        await crashing.result()
        other = await swarm.spawn(blueprint(stage(available_tools=())), task="x")
        assert (await other.result()).status in ("complete", "error")
        assert swarm.tree.status == "running"


# --- trees of agents


async def test_an_agent_in_a_tree_runs_like_any_other():
    async with swarm_of(scripted("hello")) as swarm:
        await swarm.start(Supervisor("team", children=[agent("one", blueprint=PLAIN, task="x")]))
        outcome = await swarm.runs()[0].result()
    assert outcome.output == "hello"


async def test_a_crashing_agent_goes_on_from_its_journal_while_its_siblings_go_on():
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            ticks.append(1)
            await anyio.sleep(1)

    async with swarm_of(provider := Buggy(1)) as swarm:  # type: ignore[arg-type]
        tree = Supervisor(
            "team", max_restarts=3, children=[Worker("ticker", tick), agent("one", blueprint=TWO, task="x")]
        )
        await swarm.start(tree)
        run = swarm.runs()[0]
        outcome = await run.result()
        assert len(swarm.runs()) == 1
        await anyio.sleep(5)
        assert [event.kind for event in tree.history() if event.child == "ticker"] == ["started"]
    assert (outcome.status, provider.asked) == ("complete", 3)
    assert len(ticks) > 4


async def test_a_fresh_restart_spawns_the_agent_anew():
    async with swarm_of(Buggy(1)) as swarm:  # type: ignore[arg-type]
        spec = agent("one", blueprint=TWO, task="x", resume="fresh")
        await swarm.start(Supervisor("team", max_restarts=3, children=[spec]))
        await anyio.sleep(10)
        assert [run.status for run in swarm.runs()] == ["cancelled", "complete"]


async def test_a_tree_that_gives_up_never_looks_alive():
    async def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RestartsExhausted):  # noqa: PT012 - leaving the block raises
        async with swarm_of(scripted()) as swarm:
            started = await swarm.start(Supervisor("team", children=[Worker("w", fail)]))
            with pytest.raises(RestartsExhausted):
                await started.wait()
            assert not swarm.healthy


async def test_a_critical_tree_that_gives_up_ends_the_block():
    async def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RestartsExhausted):  # noqa: PT012 - leaving the block raises
        async with swarm_of(scripted()) as swarm:
            await swarm.start(Supervisor("team", children=[Worker("w", fail)]))
            await anyio.sleep_forever()


async def test_a_tree_that_is_not_critical_gives_up_alone():
    async def fail() -> None:
        raise RuntimeError("broken")

    async with swarm_of(scripted("hello")) as swarm:
        await swarm.start(Supervisor("team", children=[Worker("w", fail)]), critical=False)
        await anyio.sleep(1)
        assert (await (await swarm.spawn(PLAIN, task="x")).result()).output == "hello"


async def test_an_agent_without_a_swarm_says_how_to_start_it():
    from shoal.actors import running
    from shoal.errors import StartFailed

    with pytest.raises(StartFailed) as failed:
        async with running(Supervisor("team", children=[agent("one", blueprint=PLAIN, task="x")])):
            pass
    assert "start its tree with `swarm.start`" in str(failed.value.__cause__)


# --- which runs there are


async def test_runs_are_listed_by_where_they_stand_and_what_they_are_of_and_below():
    other = Blueprint("other", (stage(available_tools=()),), regions=(TASK, TALK))
    provider = ScriptedProvider(script=lambda _: Say("done", delay_s=5))
    async with swarm_of(provider) as swarm:
        first = await swarm.spawn(TWO, task="x")
        await first.result()
        second = await swarm.spawn(other, task="x")
        await second.pause()
        child = await second.spawn(TWO, task="x")
        assert [run.run_id for run in swarm.runs(status="complete")] == [first.run_id]
        assert [run.run_id for run in swarm.runs(status=("running", "paused"))] == [second.run_id, child.run_id]
        assert [run.run_id for run in swarm.runs(name="other")] == [second.run_id]
        assert [run.run_id for run in swarm.runs(root=second.run_id)] == [second.run_id, child.run_id]
        assert [run.run_id for run in swarm.runs(root=second.run_id, name="other")] == [second.run_id]
        await second.cancel()
