"""A run goes on with a changed blueprint where somebody asks for that: what stays, what goes, what is refused."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import (
    NOTES,
    TALK,
    TASK,
    blueprint,
    bodies,
    edge,
    events_of,
    folded,
    kinds,
    payloads,
    sent,
    stage,
    stages_of,
    swarm_of,
    system_text,
    write_files,
)
from test_control import QUIET, scripted
from test_run_parts import PNG

from shoal.actors import Supervisor
from shoal.blueprints import (
    Blueprint,
    Budget,
    CallerSeed,
    FanOut,
    FilesSeed,
    Gate,
    InteractionPoint,
    LiteralSeed,
    ModelChoice,
    ModelSettings,
    Region,
    Stage,
    ToolSeedCall,
    ToolsSeed,
    dumps,
)
from shoal.errors import DefinitionMissing, RunEnded, RunIsPaused, SpawnRefused
from shoal.runtime import (
    Event,
    Limits,
    MemoryJournal,
    Run,
    SqliteJournal,
    SqliteReader,
    Swarm,
    agent,
    fold,
    recorded,
    tool,
)
from shoal.runtime.journal import export_tree, import_tree, prune
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

LOOK = call("context_append", region="notes", content="noted")
BEFORE = blueprint(
    stage("a", system_prompt="Be brief.", nudge=QUIET, transitions=(edge("b"),)), stage("b", nudge=QUIET)
)
AFTER = replace(BEFORE, stages=(replace(BEFORE.stages[0], system_prompt="Be loud."), BEFORE.stages[1]))


async def paused(swarm: Swarm, made: Blueprint = BEFORE, **more: Any) -> Run:
    """Start a run of *made* and pause it behind its first reply."""
    run = await swarm.spawn(made, task="x", **more)
    await anyio.sleep(5)
    await run.pause()
    await anyio.sleep(60)
    return run


def first(*more: object) -> ScriptedProvider:
    """Return who makes a call, which ends while the run is paused, and then says *more*."""
    return scripted(Say(calls=(LOOK,), delay_s=20), *more)


async def test_a_paused_run_goes_on_with_the_changed_blueprint_and_what_it_held():
    provider = first("one", "two")
    async with swarm_of(provider) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=AFTER)
        assert (await run.result()).output == "two"
        assert run.region("notes") == "noted"
        [changed] = payloads(events_of(swarm, run), "BlueprintChanged")
    assert ["Be brief." in system_text(body) for body in bodies(provider)] == [True, False, False]
    assert "Be loud." in system_text(bodies(provider)[1])
    assert changed.changed == ("stages.a",)


async def test_what_is_journaled_adds_up_to_the_live_state():
    async with swarm_of(first("one", "two")) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=AFTER)
        await run.pause()
        live = swarm.state(run.run_id)
        assert folded(swarm, run).dump() == live.dump()
        assert live.program.blueprint == AFTER
        assert folded(swarm, run).prompt().digest_on("m") == live.prompt().digest_on("m")


async def test_a_run_without_a_host_goes_on_with_the_changed_blueprint(tmp_path: Path):
    path, provider = tmp_path / "runs.db", scripted("one", "two")
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(scripted(Say("late", delay_s=500)), journal=journal) as swarm:
            run = await swarm.spawn(BEFORE, task="x")
            await anyio.sleep(5)
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(provider, journal=journal, seed=1) as swarm:
            again = await swarm.resume_tree(run.run_id, blueprint=AFTER)
            assert (await again.result()).output == "two"
            assert kinds(events_of(swarm, again), "BlueprintChanged", "RunResumed") == [
                "BlueprintChanged",
                "RunResumed",
            ]
    assert "Be loud." in system_text(bodies(provider)[0])


async def test_a_title_that_was_being_made_is_made_all_the_same(tmp_path: Path):
    path, slow = tmp_path / "runs.db", ScriptedProvider(script=lambda _request: Say("too late", delay_s=500))
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(slow, journal=journal) as swarm:
            run = await swarm.spawn(BEFORE, task="x")
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(scripted(Say("one", delay_s=5), "two"), journal=journal, seed=1) as swarm:
            await (await swarm.resume_tree(run.run_id, blueprint=AFTER)).result()
            assert journal.find(run.run_id).title == "A title"


async def test_a_changed_run_that_is_taken_up_again_is_made_of_what_it_was_changed_to(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(first(Say("late", delay_s=500)), journal=journal) as swarm:
            run = await paused(swarm)
            await swarm.resume_tree(run.run_id, blueprint=AFTER)
            await anyio.sleep(5)
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(scripted("one", "two"), journal=journal, seed=1) as swarm:
            again = await swarm.resume_tree(run.run_id)
            await again.result()
            assert swarm.state(run.run_id).program.blueprint == AFTER
            assert len(payloads(events_of(swarm, again), "BlueprintChanged")) == 1


async def test_a_blueprint_that_is_the_same_changes_nothing():
    async with swarm_of(first("one", "two")) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=replace(BEFORE))
        await run.result()
        assert "BlueprintChanged" not in kinds(events_of(swarm, run))


async def test_a_stage_that_is_new_is_walked():
    longer = replace(
        BEFORE, stages=(replace(BEFORE.stages[0], transitions=(edge("c"),)), *BEFORE.stages[1:], stage("c"))
    )
    async with swarm_of(first("one", "three", "three")) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=longer)
        await run.result()
        assert stages_of(events_of(swarm, run)) == ["a", "c"]


# --- the window


RULES = Region("rules", kind="pinned", max_tokens=200, seed=LiteralSeed("No cats."))


async def test_a_region_that_is_new_begins_with_its_seed():
    provider = first("one", "two")
    async with swarm_of(provider) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=replace(AFTER, regions=(TASK, NOTES, RULES, TALK)))
        await run.result()
        assert run.region("rules") == "No cats."
    assert ["No cats." in sent(request) for request in provider.requests if request.purpose == "stage"] == [
        False,
        True,
        True,
    ]


async def test_a_new_region_that_needs_a_value_of_the_caller_gets_it_or_refuses():
    needs = Region("brief", kind="pinned", max_tokens=200, seed=CallerSeed("brief"), required=True)
    again = Region("again", kind="pinned", max_tokens=200, seed=CallerSeed("task"), required=True)
    async with swarm_of(first("one", "two")) as swarm:
        run = await paused(swarm)
        with pytest.raises(SpawnRefused, match="brief"):
            await swarm.resume_tree(run.run_id, blueprint=replace(BEFORE, regions=(TASK, NOTES, needs, TALK)))
        await swarm.resume_tree(run.run_id, blueprint=replace(BEFORE, regions=(TASK, NOTES, again, TALK)))
        assert run.region("again") == "x"


async def test_a_region_that_is_gone_is_hidden_and_kept_for_when_it_comes_back():
    provider = scripted(LOOK, Say("one", delay_s=20), "two", "three")
    made = blueprint(stage("a", nudge=QUIET), regions=(TASK, NOTES, TALK))
    async with swarm_of(provider) as swarm:
        run = await paused(swarm, made)
        await swarm.resume_tree(run.run_id, blueprint=replace(made, regions=(TASK, TALK)))
        await run.pause()
        await swarm.resume_tree(run.run_id, blueprint=made)
        await run.pause()
        assert run.region("notes") == "noted"
        assert [payload.changed for payload in payloads(events_of(swarm, run), "BlueprintChanged")] == [
            ("regions.notes",),
            ("regions.notes",),
        ]


async def test_a_region_whose_budget_shrank_sheds_by_its_own_rule_and_says_so():
    wide = Region("notes", kind="temporary", max_tokens=400)
    made = blueprint(stage("a", nudge=QUIET), regions=(TASK, wide, TALK))
    long = call("context_append", region="notes", content="many words " * 60)
    async with swarm_of(scripted(long, Say("one", delay_s=20))) as swarm:
        run = await paused(swarm, made)
        narrow = replace(made, regions=(TASK, replace(wide, max_tokens=20), TALK))
        await swarm.resume_tree(run.run_id, blueprint=narrow)
        events = events_of(swarm, run)
        assert kinds(events, "EntriesEvicted", "LayoutChanged", "BlueprintChanged") == [
            "EntriesEvicted",
            "LayoutChanged",
            "BlueprintChanged",
        ]
        assert folded(swarm, run).dump() == swarm.state(run.run_id).dump()


async def test_a_gate_that_is_new_counts_what_is_done_from_then_on():
    made = blueprint(stage("a", nudge=QUIET, transitions=(edge("b"),)), stage("b", nudge=QUIET))
    gate = Gate(require_region_updated="notes", message="Note it.", max_attempts=1)
    gated = replace(made, stages=(replace(made.stages[0], transitions=(edge("b", gate=gate),)), made.stages[1]))
    provider = scripted(LOOK, Say("one", delay_s=20), LOOK, "two", "three")
    async with swarm_of(provider) as swarm:
        run = await paused(swarm, made)
        await swarm.resume_tree(run.run_id, blueprint=gated)
        await run.result()
        assert kinds(events_of(swarm, run), "GateBlocked", "GateForced") == ["GateBlocked"]


# --- who serves


async def test_a_stage_whose_model_was_changed_is_served_by_the_new_one():
    provider = first("one", "two")
    other = ModelSettings((ModelChoice("scripted", "other"),))
    async with swarm_of(provider) as swarm:
        run = await paused(swarm)
        changed = replace(BEFORE, stages=(replace(BEFORE.stages[0], model=other), BEFORE.stages[1]))
        await swarm.resume_tree(run.run_id, blueprint=changed)
        await run.result()
        assert [payload.model for payload in payloads(events_of(swarm, run), "ModelChanged")] == ["other"]
    assert provider.requests[-2].model == "other"


async def test_a_budget_that_is_new_holds_from_then_on():
    async with swarm_of(first("one", "two")) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=replace(BEFORE, budget=Budget(max_tokens=10)))
        with pytest.raises(RunIsPaused, match="max_tokens"):
            await run.result()


# --- tools and scripts


async def test_functions_are_given_again_and_a_missing_one_refuses():
    async def count() -> int:
        """Count."""
        return 7

    made = blueprint(stage("a", available_tools=("count",), nudge=QUIET))
    async with swarm_of(scripted(Say(calls=(call("count"),), delay_s=20), "one")) as swarm:
        run = await paused(swarm, made, tools=[tool(count)])
        louder = replace(made, stages=(replace(made.stages[0], system_prompt="Be loud."),))
        with pytest.raises(SpawnRefused, match="`count`, which nobody has"):
            await swarm.resume_tree(run.run_id, blueprint=louder)
        await swarm.resume_tree(run.run_id, blueprint=louder, tools=[tool(count)])
        await run.result()
        assert str(payloads(events_of(swarm, run), "ToolCallCompleted")[0].text) == "7"


async def test_a_call_of_a_tool_that_is_gone_is_answered_as_one_of_an_unknown_tool():
    async def count() -> int:
        """Count."""
        return 7

    made = blueprint(stage("a", available_tools=("count",), nudge=QUIET))
    async with swarm_of(scripted(Say(calls=(call("count"),), delay_s=20), "one")) as swarm:
        run = await paused(swarm, made, tools=[tool(count)])
        await swarm.resume_tree(run.run_id, blueprint=blueprint(stage("a", nudge=QUIET)))
        await run.result()
        assert payloads(events_of(swarm, run), "ToolCallCompleted")[0].gate == "visibility"


CUSTOM = Region("brain", kind="custom", max_tokens=200, script="brain.py")


async def test_a_script_that_was_edited_counts_where_the_blueprint_is_named_again(tmp_path: Path):
    folder = write_files(tmp_path, {"brain.py": "def render(ctx):\n    return 'old thought'\n"})
    made = replace(blueprint(stage("a", nudge=QUIET), regions=(TASK, NOTES, CUSTOM, TALK)), folder=folder)
    provider = first("one")
    async with swarm_of(provider) as swarm:
        run = await paused(swarm, made)
        write_files(folder, {"brain.py": "def render(ctx):\n    return 'new thought'\n"})
        await swarm.resume_tree(run.run_id, blueprint=made)
        await run.result()
        [changed] = payloads(events_of(swarm, run), "BlueprintChanged")
    assert "old thought" in sent(
        provider.requests[0] if provider.requests[0].purpose == "stage" else provider.requests[1]
    )
    assert "new thought" in sent(provider.requests[-1])
    assert changed.changed == ("scripts.blueprint:brain.py",)


# --- what is refused


REFUSED = [
    (replace(BEFORE, name="other"), "spawn that one instead"),
    (blueprint(stage("b")), "it has been in `a`"),
    (replace(BEFORE, components=("nobodys",)), "wants the component"),
    (replace(BEFORE, regions=(TASK, NOTES, TALK), stages=(stage("a", available_tools=("nobodys",)),)), "nobody has"),
]


@pytest.mark.parametrize(("changed", "why"), REFUSED, ids=[why for _, why in REFUSED])
async def test_what_would_have_no_meaning_is_refused_and_the_run_is_as_it_was(changed: Blueprint, why: str):
    async with swarm_of(first("one", "two")) as swarm:
        run = await paused(swarm)
        before = events_of(swarm, run)
        with pytest.raises(SpawnRefused, match=why):
            await swarm.resume_tree(run.run_id, blueprint=changed)
        assert events_of(swarm, run) == before
        await run.resume()
        assert (await run.result()).output == "two"


async def test_a_checklist_with_items_becomes_nothing_else():
    items = Region("todo", kind="checklist", max_tokens=200)
    made = blueprint(stage("a", available_tools=("todo_add",), nudge=QUIET), regions=(TASK, items, TALK))
    async with swarm_of(scripted(call("todo_add", region="todo", item="mend"), Say("one", delay_s=20))) as swarm:
        run = await paused(swarm, made)
        other = blueprint(stage("a", nudge=QUIET), regions=(TASK, replace(NOTES, name="todo"), TALK))
        with pytest.raises(SpawnRefused, match="items are no entries"):
            await swarm.resume_tree(run.run_id, blueprint=other)


async def test_a_question_at_an_interaction_point_that_is_gone_is_to_be_answered_first():
    point = InteractionPoint("ask", "Good?", style="confirm")
    made = blueprint(stage("a", interaction_points=(point,), nudge=QUIET))
    async with swarm_of(scripted("one")) as swarm:
        run = await paused(swarm, made, unattended=False)
        with pytest.raises(SpawnRefused, match="'ask', which is gone: answer it first"):
            await swarm.resume_tree(run.run_id, blueprint=blueprint(stage("a", nudge=QUIET)))


async def test_a_run_at_work_has_to_be_paused_first():
    async with swarm_of(first("one", "two")) as swarm:
        run = await swarm.spawn(BEFORE, task="x")
        await anyio.sleep(5)
        with pytest.raises(SpawnRefused, match="is at work here; pause it"):
            await swarm.resume_tree(run.run_id, blueprint=AFTER)
        assert (await run.result()).output == "two"


async def test_a_paused_run_is_changed_at_the_end_of_what_it_is_in_the_middle_of():
    provider = first("one", "two")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(BEFORE, task="x")
        await anyio.sleep(5)
        await run.pause()
        await swarm.resume_tree(run.run_id, blueprint=AFTER)
        await run.result()
        events = events_of(swarm, run)
        changed = next(event.seq for event in events if event.kind == "BlueprintChanged")
        [reply] = [e.seq for e in events[:changed] if e.kind == "InferenceCompleted" and e.payload.purpose == "stage"]
        assert kinds(events[:reply], "RunPaused") == ["RunPaused"]
    assert len(bodies(provider)) == 3


async def test_a_run_that_sleeps_is_changed_in_its_sleep():
    async with swarm_of(first("one", "two"), limits=Limits(idle_s=10.0)) as swarm:
        run = await paused(swarm)
        assert not swarm.hall.home.live
        await swarm.resume_tree(run.run_id, blueprint=AFTER)
        assert (await run.result()).output == "two"
        assert swarm.state(run.run_id).program.blueprint == AFTER


async def test_a_child_of_a_users_tree_keeps_its_blueprint_while_its_supervisor_counts_on_it():
    async with swarm_of(first("one", "two")) as swarm:
        await swarm.start(Supervisor("tree", children=[agent("a", blueprint=BEFORE, task="x")]))
        await anyio.sleep(5)
        [run] = swarm.runs()
        await run.pause()
        await anyio.sleep(60)
        with pytest.raises(SpawnRefused, match="is a child of a supervisor here"):
            await swarm.resume_tree(run.run_id, blueprint=AFTER)


async def test_a_run_that_is_over_takes_no_blueprint():
    async with swarm_of(scripted("one", "two")) as swarm:
        run = await swarm.spawn(BEFORE, task="x")
        await run.result()
        with pytest.raises(RunEnded):
            await swarm.resume_tree(run.run_id, blueprint=AFTER)


async def test_a_refused_change_leaves_a_run_without_a_host_to_whoever_wants_it(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(scripted(Say("late", delay_s=500)), journal=journal) as swarm:
            run = await swarm.spawn(BEFORE, task="x")
            await anyio.sleep(5)
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(scripted(), journal=journal, seed=1) as swarm:
            with pytest.raises(SpawnRefused):
                await swarm.resume_tree(run.run_id, blueprint=replace(BEFORE, name="other"))
            assert journal.find(run.run_id).host is None


# --- looking back


async def changed_once(journal: SqliteJournal | MemoryJournal) -> tuple[str, list[Event]]:
    async with swarm_of(first("one", "two", "three", "four"), journal=journal) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=AFTER)
        await run.result()
        return run.run_id, events_of(swarm, run)


async def test_a_fork_is_made_of_what_the_run_was_made_of_at_that_moment():
    provider = first("one", "two", "three", "four", "five")
    async with swarm_of(provider) as swarm:
        run = await paused(swarm)
        await swarm.resume_tree(run.run_id, blueprint=AFTER)
        await run.result()
        seq = next(event.seq for event in events_of(swarm, run) if event.kind == "BlueprintChanged")
        early, late = await run.fork(at=seq - 1), await run.fork()
        await early.result()
        await late.result()
        assert swarm.state(early.run_id).program.blueprint == BEFORE
        assert swarm.state(late.run_id).program.blueprint == AFTER


async def test_its_events_are_read_with_each_definition_in_its_time(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path)) as journal:
        run_id, events = await changed_once(journal)
    program = recorded(SqliteReader(path).definition(events[0].payload.definition))  # type: ignore[union-attr]
    with closing(SqliteReader(path)) as reader:
        state = fold(run_id, program, events, definition=reader.definition)
    assert state.program.blueprint == AFTER
    with pytest.raises(DefinitionMissing, match="not at hand"):
        fold(run_id, program, events)


async def test_pruning_and_exports_keep_both_definitions(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path)) as journal:
        run_id, events = await changed_once(journal)
    assert prune(path, before=0.0).definitions == 0
    with closing(SqliteReader(path)) as reader:
        lines = list(export_tree(reader, run_id))
    import_tree(tmp_path / "other.db", lines)
    [changed] = payloads(events, "BlueprintChanged")
    with closing(SqliteReader(tmp_path / "other.db")) as reader:
        assert reader.definition(changed.definition) != reader.definition(changed.before)


async def test_a_part_that_a_new_region_begins_with_is_kept(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "words"})
    (tmp_path / "a.png").write_bytes(PNG)
    shown = Region("shown", kind="pinned", max_tokens=2000, seed=FilesSeed(("a.png",)))
    async with swarm_of(first("one", "two")) as swarm:
        run = await paused(swarm, workdir=tmp_path)
        await swarm.resume_tree(run.run_id, blueprint=replace(BEFORE, regions=(TASK, NOTES, shown, TALK)))
        assert await swarm.part(run.run_id, "a.png") == PNG


async def test_a_seed_that_was_filled_again_is_left_where_its_region_is_gone(tmp_path: Path):
    path, filled = tmp_path / "runs.db", [0.0, 500.0]

    @tool
    async def slow() -> str:
        """Take a while."""
        await anyio.sleep(filled.pop(0))
        return "filled"

    fresh = Region(
        "fresh", kind="pinned", max_tokens=200, seed=ToolsSeed((ToolSeedCall("slow"),), refresh="each_stage")
    )
    made = replace(BEFORE, regions=(TASK, NOTES, fresh, TALK))
    with closing(SqliteJournal(path, host="first")) as journal:
        async with swarm_of(scripted("one"), journal=journal) as swarm:
            run = await swarm.spawn(made, task="x", tools=[slow])
            await anyio.sleep(10)
    with closing(SqliteJournal(path, host="second")) as journal:
        async with swarm_of(scripted("two"), journal=journal, seed=1) as swarm:
            again = await swarm.resume_tree(run.run_id, blueprint=BEFORE, tools=[slow])
            assert (await again.result()).output == "two"
            dropped = payloads(events_of(swarm, again), "LaneDegraded")[0]
            assert (dropped.lane, dropped.region, dropped.reason) == ("refresh", "fresh", "dropped")


@pytest.mark.parametrize(("edit", "said"), [(True, "workers../worker"), (False, "description")], ids=["edited", "same"])
async def test_a_worker_is_named_where_it_was_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: bool, said: str
):
    def write(*stages: Stage) -> None:
        text = dumps(Blueprint("worker", stages, regions=(TASK, TALK)))
        write_files(tmp_path, {"worker/blueprint.toml": text})

    monkeypatch.chdir(tmp_path)
    write(stage("a"))
    lead = stage("a", mode="fan_out", fan_out=FanOut(worker_agent="./worker"), nudge=QUIET)
    made = blueprint(lead, stage("b", nudge=QUIET))
    async with swarm_of(scripted(Say("one", delay_s=20), "two")) as swarm:
        run = await paused(swarm, made)
        write(stage("a", max_iterations=7 if edit else None))
        changed = replace(made, description=made.description if edit else "louder")
        await swarm.resume_tree(run.run_id, blueprint=changed)
        assert [each.changed for each in payloads(events_of(swarm, run), "BlueprintChanged")] == [(said,)]


async def test_a_question_of_a_call_stays_open():
    made = blueprint(stage("a", available_tools=("ask_user_text",), nudge=QUIET))
    asks = call("ask_user_text", prompt="Which?")
    async with swarm_of(scripted(asks, "one")) as swarm:
        run = await paused(swarm, made, unattended=False)
        await swarm.resume_tree(run.run_id, blueprint=replace(made, description="louder"))
        await run.answer("this one")
        assert (await run.result()).output == "one"
