"""Runs of runs: what a model starts with its tools, what code starts below a run, and what ends with what."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import TALK, TASK, blueprint, bodies, events_of, kinds, messages, payloads, stage, swarm_of

from shoal.blueprints import Blueprint, CallerSeed, ChildSupervision, Nudge, Region, dumps
from shoal.errors import RunEnded, RunNotFound, SpawnRefused
from shoal.providers import Request, Text, ToolCall
from shoal.runtime import Limits, SqliteJournal, tool
from shoal.runtime.events import RunEnded as RunEndedEvent
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

AGENTS = ("spawn_agent", "check_agent", "wait_for_agent", "send_to_agent", "kill_agent")
BRIEF = Region("brief", kind="pinned", max_tokens=500, seed=CallerSeed("brief"), volatility="stable")
PLAN = Region("plan", kind="pinned", max_tokens=500)
QUIET = Nudge(enabled=False)
PARENT = blueprint(stage(available_tools=AGENTS, nudge=QUIET))


def call(name: str, call_id: str = "c1", **arguments: Any) -> ToolCall:
    return ToolCall(call_id, name, Text.of(json.dumps(arguments)))


def does(name: str, call_id: str = "c1", **arguments: Any) -> Say:
    return Say(calls=(call(name, call_id, **arguments),))


def child_files(folder: Path, made: Blueprint | None = None) -> str:
    """Write a child's blueprint beside the run's folder and return its path."""
    made = made or Blueprint("child", (stage("c", available_tools=()),), regions=(TASK, BRIEF, TALK))
    path = folder / "blueprints" / f"{made.name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(dumps(made))
    return str(path)


class Cast:
    """Replies for a parent and for its children, told apart by what their requests hold."""

    def __init__(self, parent: list[Any], child: list[Any]) -> None:
        self.parent = list(parent)
        self.child = list(child)

    def __call__(self, request: Request) -> Any:
        offered = {spec.name for spec in request.tools.specs}
        queue = self.parent if "spawn_agent" in offered else self.child
        reply = queue.pop(0)
        return reply(request) if callable(reply) else reply


def known_agent(request: Request) -> str:
    """Return the id of the agent that the newest tool result names."""
    said = [message for segment in request.messages for message in segment.messages if message.role == "tool"]
    text = " ".join(message.text for message in said)
    return re.findall(r"as agent ([0-9a-f-]{36})", text)[-1]


def on_agent(name: str, **arguments: Any) -> Any:
    """Return a reply that calls *name* on the agent that was started last."""

    def reply(request: Request) -> Say:
        return does(name, f"on-{name}", agent_id=known_agent(request), **arguments)

    return reply


def cast(parent: list[Any], child: list[Any]) -> ScriptedProvider:
    return ScriptedProvider(script=Cast(parent, child), purposes={"titling": "A title"})


def results(provider: ScriptedProvider) -> list[str]:
    newest = [body for body in bodies(provider) if "spawn_agent" in str(body.get("tools"))][-1]
    return [text for role, text in messages(newest) if role == "tool"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def run_parent(provider: ScriptedProvider, work: Path, made: Blueprint = PARENT, **more: Any) -> tuple[Any, Any]:
    async with swarm_of(provider, **more) as swarm:
        run = await swarm.spawn(made, task="x", workdir=work)
        outcome = await run.result()
        return outcome, events_of(swarm, run)


# --- started by a model


async def test_an_agent_that_is_waited_for_answers_in_the_call_that_started_it(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    provider = cast([does("spawn_agent", blueprint=path, task="count", wait=True), "done"], ["seven"])
    outcome, events = await run_parent(provider, work)
    assert outcome.output == "done"
    assert results(provider) == ["[child complete]\nseven"]
    assert kinds(events, "ChildSpawned", "ChildEnded", "ToolCallCompleted") == [
        "ChildSpawned",
        "ChildEnded",
        "ToolCallCompleted",
    ]


async def test_a_model_reads_that_its_agent_gave_no_answer_because_its_model_refused(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    asked = does("spawn_agent", blueprint=path, task="count", wait=True)
    provider = cast([asked, "done"], [Say("", finish="refusal")])
    _, events = await run_parent(provider, work)
    assert results(provider) == ["[child complete] It gave no answer: its model refused to give one."]
    assert [ended.flags for ended in payloads(events, "ChildEnded")] == [("replies_refused",)]


async def test_an_agent_sees_its_task_and_its_seeds_and_nothing_else_of_its_parent(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    asked = does("spawn_agent", blueprint=path, task="count", seeds={"brief": "gently"}, wait=True)
    provider = cast([asked, "done"], ["seven"])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="the parent's secret", workdir=work)
        await run.result()
    (childs,) = [str(body) for body in bodies(provider) if "gently" in str(body) and "spawn_agent" not in str(body)]
    assert "count" in childs
    assert "secret" not in childs


async def test_an_agent_that_is_not_waited_for_works_beside_its_parent(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    provider = cast(
        [does("spawn_agent", blueprint=path, task="count"), on_agent("wait_for_agent"), "done"],
        [Say("seven", delay_s=100)],
    )
    await run_parent(provider, work)
    started, waited = results(provider)
    assert re.fullmatch(r"Started 'child' as agent [0-9a-f-]{36}; `wait_for_agent` gets its answer.", started)
    assert waited == "[child complete]\nseven"


async def test_a_parent_that_waits_for_its_agent_holds_no_place_in_a_pool_and_leaves_memory(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    provider = cast([does("spawn_agent", blueprint=path, task="x", wait=True), "done"], [Say("seven", delay_s=500)])
    async with swarm_of(provider, limits=Limits(idle_s=60)) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await anyio.sleep(300)
        assert run.run_id not in swarm.hall.home.live
        assert swarm.hall.pools.get("tools").statistics().busy == 0
        assert (await run.result()).output == "done"


async def test_an_agent_is_looked_at_while_it_works_and_when_it_is_over(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    parent = [
        does("spawn_agent", blueprint=path, task="count"),
        on_agent("check_agent"),
        on_agent("wait_for_agent"),
        on_agent("check_agent"),
        "done",
    ]
    provider = cast(parent, [Say("seven", delay_s=100)])
    await run_parent(provider, work)
    _, before, _, after = results(provider)
    assert before == "[child running] in stage c"
    assert after == "[child complete]\nseven"


async def test_a_message_to_an_agent_is_in_its_next_request(tmp_path: Path, work: Path):
    two = Blueprint("two", (stage("a", available_tools=()), stage("b", available_tools=())), regions=(TASK, TALK))
    parent = [
        does("spawn_agent", blueprint=child_files(tmp_path, two), task="count"),
        on_agent("send_to_agent", message="look left"),
        on_agent("wait_for_agent"),
        "done",
    ]
    provider = cast(parent, [Say("one", delay_s=100), "two"])
    await run_parent(provider, work)
    assert "look left" in str([body for body in bodies(provider) if "spawn_agent" not in str(body)][-1])


async def test_a_message_goes_to_the_region_that_it_names(tmp_path: Path, work: Path):
    two = Blueprint("two", (stage("a", available_tools=()), stage("b", available_tools=())), regions=(TASK, PLAN, TALK))
    parent = [
        does("spawn_agent", blueprint=child_files(tmp_path, two), task="count"),
        on_agent("send_to_agent", message="look left", target_region="plan"),
        on_agent("wait_for_agent"),
        "done",
    ]
    async with swarm_of(cast(parent, [Say("one", delay_s=100), "two"])) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await run.result()
        (child,) = [row.run_id for row in swarm.journal.runs() if row.parent]
        assert swarm.get(child).region("plan") == "look left"


async def test_an_agent_is_ended_with_everything_below_it(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    parent = [
        does("spawn_agent", blueprint=path, task="count"),
        on_agent("kill_agent"),
        on_agent("kill_agent"),
        "done",
    ]
    provider = cast(parent, [Say("seven", delay_s=500)])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await run.result()
        (child,) = [row for row in swarm.journal.runs() if row.parent]
    assert child.status == "cancelled"
    assert results(provider)[1:] == [
        "It is ended, with everything below it.",
        "It was over already (cancelled).",
    ]


async def test_an_agent_that_failed_says_why(tmp_path: Path, work: Path):
    owes = Blueprint(
        "owes", (stage("c", available_tools=("submit_output",), require_output=True),), regions=(TASK, TALK)
    )
    path = child_files(tmp_path, owes)
    provider = cast([does("spawn_agent", blueprint=path, task="x", wait=True), "done"], ["no"] * 12)
    await run_parent(provider, work)
    (result,) = results(provider)
    assert result.startswith("[owes error] ")
    assert "owes an output" in result


async def test_an_agent_without_an_answer_says_so(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    provider = cast([does("spawn_agent", blueprint=path, task="x", wait=True), "done"], [""])
    await run_parent(provider, work)
    assert results(provider) == ["[child complete] It gave no answer."]


async def test_a_run_that_is_no_agent_of_its_own_is_out_of_reach(work: Path):
    strangers: list[str] = []

    def kills(_: Request) -> Say:
        return does("kill_agent", agent_id=strangers[0])

    provider = cast([kills, "done"], [Say("hello", delay_s=50)])
    async with swarm_of(provider) as swarm:
        stranger = await swarm.spawn(blueprint(stage(available_tools=())), task="x")
        strangers.append(stranger.run_id)
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await run.result()
        assert (await stranger.result()).status == "complete"
    assert results(provider) == [f"[error] you have no sub-agent '{strangers[0]}'; you have: none"]


async def test_an_agent_that_is_not_there_is_named_with_those_that_are(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    parent = [does("spawn_agent", blueprint=path, task="x", wait=True), does("check_agent", agent_id="0-0"), "done"]
    provider = cast(parent, ["seven"])
    await run_parent(provider, work)
    assert re.fullmatch(
        r"\[error\] you have no sub-agent '0-0'; you have: [0-9a-f-]{36} \(child, complete\)", results(provider)[1]
    )


async def test_a_blueprint_that_is_not_there_is_an_error_that_the_model_reads(work: Path):
    provider = cast([does("spawn_agent", blueprint="nobody", task="x"), "done"], [])
    outcome, events = await run_parent(provider, work)
    assert results(provider)[0].startswith("[error] there is no blueprint 'nobody'")
    assert "ChildSpawned" not in kinds(events)
    assert outcome.status == "complete"


async def test_a_model_may_not_run_a_blueprint_that_it_could_have_written(work: Path):
    path = child_files(work)
    provider = cast([does("spawn_agent", blueprint=path, task="x"), "done"], [])
    await run_parent(provider, work)
    assert "a model may not run what it could write" in results(provider)[0]


async def test_a_run_at_the_deepest_level_may_have_no_agents(tmp_path: Path, work: Path):
    provider = cast([does("spawn_agent", blueprint=child_files(tmp_path), task="x"), "done"], [])
    await run_parent(provider, work, limits=Limits(max_child_depth=0))
    assert "this run may have no children; raise `max_child_depth`" in results(provider)[0]


async def test_a_model_may_allow_its_agent_fewer_levels(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    provider = cast([does("spawn_agent", blueprint=path, task="x", wait=True, max_child_depth=0), "done"], ["seven"])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await run.result()
        (child,) = [row.run_id for row in swarm.journal.runs() if row.parent]
        assert swarm.state(child).made_by.children_deeper == 0


async def test_what_a_stage_hands_over_reaches_the_agents_that_take_it(tmp_path: Path, work: Path):
    made = blueprint(
        stage(available_tools=AGENTS, nudge=QUIET, seeds={"brief": "notes", "other": "notes"}),
        regions=(TASK, Region("notes", kind="pinned", max_tokens=500, seed=CallerSeed("notes")), TALK),
    )
    provider = cast([does("spawn_agent", blueprint=child_files(tmp_path), task="x", wait=True), "done"], ["seven"])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x", seeds={"notes": "handle with care"}, workdir=work)
        await run.result()
        (child,) = [row.run_id for row in swarm.journal.runs() if row.parent]
        assert swarm.get(child).region("brief") == "handle with care"


async def test_an_agent_is_told_what_its_answer_is_to_look_like(tmp_path: Path, work: Path):
    answers = Blueprint("answers", (stage("c", mode="output", available_tools=()),), regions=(TASK, TALK))
    asked = does(
        "spawn_agent",
        blueprint=child_files(tmp_path, answers),
        task="x",
        wait=True,
        output_format="json",
        output_instructions="One object.",
    )
    child = [does("submit_output", content="no json"), does("submit_output", "c2", content="{}"), "done"]
    provider = cast([asked, "done"], child)
    await run_parent(provider, work)
    assert results(provider) == ["[answers complete]\n{}"]
    childs = [body for body in bodies(provider) if "spawn_agent" not in str(body)]
    assert "Write it as json.\\nOne object." in json.dumps(childs[0]["tools"])


async def test_two_agents_of_one_reply_work_at_the_same_time(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    both = Say(
        calls=(
            call("spawn_agent", "1", blueprint=path, task="a", wait=True),
            call("spawn_agent", "2", blueprint=path, task="b", wait=True),
        )
    )
    provider = cast([both, "done"], [Say("one", delay_s=100), Say("two", delay_s=100)])
    async with swarm_of(provider) as swarm:
        started = anyio.current_time()
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await run.result()
        assert anyio.current_time() - started < 150
    assert results(provider) == ["[child complete]\none", "[child complete]\ntwo"]


async def test_a_run_waits_for_the_agent_of_its_agent(tmp_path: Path, work: Path):
    path, deep = child_files(tmp_path), list[str]()
    parent = [lambda _: Say(calls=(call("wait_for_agent", "w", agent_id=deep[0]),)), "done"]
    provider = cast(
        [Say(calls=(call("check_agent", "c", agent_id="none"),), delay_s=10), *parent],
        [Say("slow", delay_s=100), "deep"],
    )
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        child = await run.spawn(TALKING, task="x")
        deep.append((await child.spawn(path, task="x")).run_id)
        await run.result()
    assert results(provider)[-1].startswith("[child complete]")


# --- started by code


TALKING = blueprint(stage("talks", available_tools=()))


async def test_code_starts_a_child_with_a_region_of_its_parent(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    provider = cast([Say("done", delay_s=100)], ["seven"])
    made = blueprint(stage(available_tools=AGENTS, nudge=QUIET), regions=(TASK, PLAN, TALK))
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x", workdir=work)
        await run.send("two steps", region="plan")
        child = await run.spawn(path, task="count", seeds={"brief": "as said"})
        assert (await child.result()).output == "seven"
        assert child.region("brief") == "as said"
        await anyio.sleep(1)
        assert [p.child for p in payloads(events_of(swarm, run), "ChildEnded")] == [child.run_id]
        await run.cancel()


async def test_the_end_of_a_run_is_the_end_of_its_children(tmp_path: Path, work: Path):
    provider = cast([Say("done", delay_s=10)], [Say("late", delay_s=500)])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        child = await run.spawn(child_files(tmp_path), task="x")
        await run.result()
        outcome = await child.result()
        assert (outcome.status, outcome.reason) == ("cancelled", "its parent ended")


async def test_a_detached_child_outlives_its_parent(tmp_path: Path, work: Path):
    provider = cast([Say("done", delay_s=10)], [Say("late", delay_s=500)])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        child = await run.spawn(child_files(tmp_path), task="x", detached=True)
        await run.result()
        assert (await child.result()).output == "late"


async def test_a_run_that_is_over_has_no_more_children(tmp_path: Path, work: Path):
    async with swarm_of(cast(["done"], [])) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await run.result()
        with pytest.raises(RunEnded, match="is over; it can have no more children"):
            await run.spawn(child_files(tmp_path), task="x")


async def test_a_run_that_nobody_hosts_has_no_children(tmp_path: Path, work: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_of(cast([Say("late", delay_s=500)], []), journal=journal) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_of(cast([], []), journal=journal) as swarm:
        with pytest.raises(RunNotFound, match="does not live here; take it up with `shoal resume"):
            await swarm.get(run.run_id).spawn(child_files(tmp_path), task="x")
    journal.close()


async def test_a_sleeping_run_is_brought_back_to_have_a_child(tmp_path: Path, work: Path):
    provider = cast(
        [does("spawn_agent", blueprint=child_files(tmp_path), task="x", wait=True), "done"],
        [Say("seven", delay_s=500), "eight"],
    )
    async with swarm_of(provider, limits=Limits(idle_s=60)) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await anyio.sleep(300)
        assert run.run_id not in swarm.hall.home.live
        child = await run.spawn(child_files(tmp_path), task="x")
        assert (await child.result()).output == "eight"
        assert (await run.result()).output == "done"


async def test_a_stage_that_requires_it_waits_for_all_its_children(tmp_path: Path, work: Path):
    made = blueprint(stage(available_tools=AGENTS, nudge=QUIET, requires_children=True))
    provider = cast([Say("done", delay_s=10)], [Say("late", delay_s=500)])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x", workdir=work)
        child = await run.spawn(child_files(tmp_path), task="x")
        assert (await run.result()).output == "done"
        assert child.status == "complete"


# --- after a death


async def interrupted(journal: SqliteJournal, provider: ScriptedProvider, work: Path, after_s: float) -> str:
    async with swarm_of(provider, journal=journal) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        await anyio.sleep(after_s)
    journal.close()
    return run.run_id


async def test_a_resumed_run_goes_on_waiting_and_starts_no_second_agent(tmp_path: Path, work: Path):
    path = child_files(tmp_path)
    asks = does("spawn_agent", blueprint=path, task="x", wait=True)
    database = tmp_path / "runs.db"
    run_id = await interrupted(SqliteJournal(database), cast([asks], [Say("late", delay_s=500)]), work, 10)
    journal = SqliteJournal(database)
    provider = cast(["done"], ["seven"])
    async with swarm_of(provider, journal=journal) as swarm:
        run = await swarm.resume_tree(run_id)
        assert (await run.result()).output == "done"
        assert kinds(events_of(swarm, run), "ChildSpawned") == ["ChildSpawned"]
    journal.close()
    assert results(provider) == ["[child complete]\nseven"]


async def test_a_child_whose_parent_ended_while_nobody_looked_is_ended_when_it_is_taken_up(tmp_path: Path, work: Path):
    database = tmp_path / "runs.db"
    journal = SqliteJournal(database)
    async with swarm_of(cast([Say("late", delay_s=500)], [Say("late", delay_s=500)]), journal=journal) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work)
        child = await run.spawn(child_files(tmp_path), task="x")
        await swarm.side.terminate_child("housekeeping")
        live = swarm.hall.home.live[run.run_id]
        live.emit(RunEndedEvent("complete", "it was enough"))
        await live.durable()
    journal.close()
    journal = SqliteJournal(database)
    async with swarm_of(cast([], [Say("late", delay_s=500)]), journal=journal) as swarm:
        again = await swarm.resume_tree(child.run_id)
        assert (await again.result()).reason == "its parent ended"
    journal.close()


# --- how often children may crash


class Crashes:
    """A child whose first replies are bugs, and a parent that waits for it."""

    def __init__(self, path: str, crashes: int) -> None:
        self.parent = [does("spawn_agent", blueprint=path, task="x", wait=True), "done"]
        self.left = crashes
        self.stages = 0

    def __call__(self, request: Request) -> Any:
        if request.purpose == "titling":
            return "A title"
        if any(spec.name == "spawn_agent" for spec in request.tools.specs):
            return self.parent.pop(0)
        if self.left:
            self.left -= 1
            raise ValueError("a bug")
        return "seven"


@pytest.mark.parametrize(
    ("supervision", "crashes", "status"),
    [
        (ChildSupervision(), 1, "complete"),
        (ChildSupervision(), 2, "error"),
        (ChildSupervision(restart="temporary"), 1, "error"),
        (ChildSupervision(max_restarts=0), 1, "error"),
        (ChildSupervision(max_restarts=1), 1, "complete"),
        (ChildSupervision(restart="transient", max_restarts=5, within_s=60.0), 1, "complete"),
    ],
)
async def test_children_may_crash_as_often_as_their_stage_says(
    tmp_path: Path, work: Path, supervision: ChildSupervision, crashes: int, status: str
):
    made = blueprint(stage(available_tools=AGENTS, nudge=QUIET, supervision=supervision))
    provider = ScriptedProvider(script=Crashes(child_files(tmp_path), crashes))
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(made, task="x", workdir=work)
        assert (await run.result()).output == "done"
        (child,) = [row.status for row in swarm.journal.runs() if row.parent]
    assert child == status


async def test_a_child_that_crashed_too_often_says_how_often_and_with_what(tmp_path: Path, work: Path):
    made = blueprint(stage(available_tools=AGENTS, nudge=QUIET, supervision=ChildSupervision(max_restarts=0)))
    provider = ScriptedProvider(script=Crashes(child_files(tmp_path), 1))
    async with swarm_of(provider) as swarm:
        await (await swarm.spawn(made, task="x", workdir=work)).result()
    (result,) = results(provider)
    assert result == "[child error] it crashed more than 0 times within 5 s, last with ValueError: a bug"


# --- functions


@tool
async def weigh(thing: str) -> str:
    """Weigh a thing."""
    return f"{thing} weighs 3"


@tool
async def measure(thing: str) -> str:
    """Measure a thing."""
    return f"{thing} is long"


def weigher(name: str = "weigher", **more: Any) -> Blueprint:
    return Blueprint(name, (stage("w", available_tools=("weigh",), nudge=QUIET, **more),), regions=(TASK, BRIEF, TALK))


async def test_a_child_may_call_the_functions_of_its_parent_that_it_lists(tmp_path: Path, work: Path):
    path = child_files(tmp_path, weigher())
    asked = does("spawn_agent", blueprint=path, task="weigh it", wait=True)
    provider = cast([asked, "done"], [does("weigh", thing="a stone"), "it weighs 3"])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work, tools=[weigh, measure])
        await run.result()
    offered = [{spec.name for spec in request.tools.specs} for request in provider.requests]
    assert {"weigh"} in offered
    assert "a stone weighs 3" in str(bodies(provider))


async def test_a_function_reaches_a_child_through_a_run_that_does_not_list_it(tmp_path: Path, work: Path):
    path = child_files(tmp_path, weigher())
    provider = cast([Say("slow", delay_s=50)], [Say("slow", delay_s=50), does("weigh", thing="a stone"), "it weighs 3"])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work, tools=[weigh])
        between = await run.spawn(TALKING, task="x")
        await anyio.sleep(1)
        deep = await between.spawn(path, task="x")
        assert (await deep.result()).output == "it weighs 3"
        await run.cancel()


async def test_a_function_that_comes_with_a_child_goes_before_that_of_its_parent(tmp_path: Path, work: Path):
    @tool(name="weigh")
    async def closer(thing: str) -> str:
        """Weigh a thing."""
        return f"{thing} weighs 3.01"

    path = child_files(tmp_path, weigher())
    provider = cast([Say("slow", delay_s=50)], [does("weigh", thing="a stone"), "done"])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work, tools=[weigh])
        await (await run.spawn(path, task="x", tools=[closer])).result()
        await run.cancel()
    assert "a stone weighs 3.01" in str(bodies(provider))


async def test_a_child_that_lists_what_nobody_gave_is_refused(tmp_path: Path, work: Path):
    path = child_files(tmp_path, weigher())
    provider = cast([Say("slow", delay_s=50)], [])
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work, tools=[measure])
        with pytest.raises(SpawnRefused, match="`weigh`"):
            await run.spawn(path, task="x")
        await run.cancel()


async def test_a_function_of_a_run_that_sleeps_reaches_what_is_below_it(tmp_path: Path, work: Path):
    provider = cast(
        [does("spawn_agent", blueprint=child_files(tmp_path), task="x", wait=True), "done"],
        [Say("slow", delay_s=500), does("weigh", thing="a stone"), "it weighs 3"],
    )
    async with swarm_of(provider, limits=Limits(idle_s=60)) as swarm:
        run = await swarm.spawn(PARENT, task="x", workdir=work, tools=[weigh])
        await anyio.sleep(300)
        assert run.run_id not in swarm.hall.home.live
        (child,) = payloads(events_of(swarm, run), "ChildSpawned")
        deep = await swarm.get(child.child).spawn(child_files(tmp_path, weigher()), task="x")
        assert (await deep.result()).output == "it weighs 3"
