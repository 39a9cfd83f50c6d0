"""Functions of the program in the place of a blueprint's scripts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runkit import NOTES, TALK, TASK, blueprint, bodies, messages, payloads, run_once, stage, swarm_of, system_text

from shoal.blueprints import Nudge, OutputSpec, Region, ScriptSeed
from shoal.errors import DefinitionMissing
from shoal.runtime import Limits, SqliteJournal
from shoal.runtime.scripts import Sandbox, Script, ScriptError, ScriptLimits
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

BRAIN = Region("brain", kind="custom", script="scripts/brain.py", max_tokens=500)
QUIET = Nudge(enabled=False)
MADE = blueprint(stage(nudge=QUIET), regions=(TASK, NOTES, TALK, BRAIN))


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


def render(ctx: Any) -> str:
    ctx["entries"].append("only a copy")
    return f"{ctx['region']['entry_count']} entries"


def render_otherwise(ctx: Any) -> str:
    return "otherwise"


def refuse(ctx: Any) -> Any:
    return {"action": "reject", "reason": "not now"}


FUNCTIONS = {"scripts/brain.py": {"render": render, "on_write": refuse}}


async def test_functions_stand_in_the_place_of_a_script_and_need_no_folder_and_no_sandbox():
    provider = says(call("context_append", region="brain", content="x"), "done")
    async with swarm_of(provider, scripts=FUNCTIONS) as swarm:
        await (await swarm.spawn(MADE, task="t")).result()
        assert repr(swarm.hall.sandbox) == "<Sandbox idle>"
    assert system_text(bodies(provider)[1]).endswith("0 entries")
    assert messages(bodies(provider)[1])[-1][1] == "[error] `brain` does not take it: not now."


async def test_a_function_that_raises_is_a_script_that_fails():
    async with swarm_of(says("done"), scripts={"scripts/brain.py": {"render": lambda ctx: 1 / 0}}) as swarm:
        run = await swarm.spawn(MADE, task="t")
        await run.result()
        [failed] = payloads(list(swarm.journal.read(run.run_id)), "ScriptFailed")
    assert (failed.reason, failed.message) == (
        "raised",
        "`scripts/brain.py`: ZeroDivisionError: division by zero",
    )


async def test_hooks_and_validators_may_be_functions_too():
    stage_s = stage(
        available_tools=("submit_output",),
        hooks={"on_completion": "end.py"},
        output=OutputSpec(validator="check.py"),
        nudge=QUIET,
    )
    scripts = {
        "check.py": {"validate": lambda content: "shorter" if len(content) > 3 else None},
        "end.py": {"on_completion": lambda ctx: {"action": "modify", "value": ctx["output"] + "!"}},
    }
    provider = says(call("submit_output", content="long"), call("submit_output", content="ok"), "done")
    async with swarm_of(provider, scripts=scripts) as swarm:
        outcome = await (await swarm.spawn(blueprint(stage_s), task="t")).result()
    assert outcome.output == "ok!"


@pytest.mark.parametrize("path", ["first.py", "blueprint:first.py"])
async def test_a_seed_may_be_a_function(path: str):
    seeded = Region("plan", kind="pinned", max_tokens=100, seed=ScriptSeed(path))
    provider = says("done")
    scripts = {"first.py": {"seed": lambda ctx: f"for {ctx['region']}"}}
    async with swarm_of(provider, scripts=scripts) as swarm:
        await (await swarm.spawn(blueprint(stage(nudge=QUIET), regions=(TASK, TALK, seeded)), task="t")).result()
    assert system_text(bodies(provider)[0]).endswith("## plan\nfor plan")


async def interrupted(path: Path) -> str:
    """Return the id of a run that a process left behind, made of functions."""
    journal = SqliteJournal(path, host="first")
    async with swarm_of(says(Say("never", delay_s=3600)), journal=journal, scripts=FUNCTIONS) as swarm:
        run = await swarm.spawn(MADE, task="t")
    journal.close()
    return run.run_id


async def resumed(path: Path, run_id: str, **more: Any) -> list[dict[str, Any]]:
    journal = SqliteJournal(path, host="second")
    provider = says("done")
    try:
        async with swarm_of(provider, journal=journal, **more) as swarm:
            await (await swarm.resume_tree(run_id)).result()
    finally:
        journal.close()
    return bodies(provider)


async def test_a_resumed_run_is_given_its_functions_again(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    [body] = await resumed(tmp_path / "runs.db", run_id, scripts=FUNCTIONS)
    assert system_text(body).endswith("0 entries")


async def test_functions_that_are_missing_are_named_and_nothing_moves(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    with pytest.raises(DefinitionMissing, match=r"'scripts/brain.py'; give them again with `scripts=\{…\}`"):
        await resumed(tmp_path / "runs.db", run_id)


async def test_functions_that_changed_are_named_before_the_run_goes_on(tmp_path: Path):
    run_id = await interrupted(tmp_path / "runs.db")
    other = {"scripts/brain.py": {"render": render_otherwise}}
    with pytest.warns(RuntimeWarning, match=r"'scripts/brain.py' are not what they were"):
        [body] = await resumed(tmp_path / "runs.db", run_id, scripts=other)
    assert system_text(body).endswith("otherwise")


async def test_functions_that_are_not_at_hand_are_a_failed_call():
    kept = Sandbox(trusted=FUNCTIONS).trusted("scripts/brain.py")
    assert kept is not None
    with pytest.raises(ScriptError) as failed:
        await Sandbox().call(Script("x.py", kept.source), "render", {}, at=0.0, seed=0)
    assert failed.value.reason == "missing"


def test_what_is_kept_of_functions_says_where_they_are_and_tells_a_change():
    one, other = (
        Sandbox(trusted={"x.py": {"render": function}}).trusted("x.py") for function in (render, render_otherwise)
    )
    assert one is not None
    assert other is not None
    assert f"render {__name__}:render " in one.source
    assert one.digest != other.digest


def test_functions_without_a_source_are_kept_too():
    made = Sandbox(trusted={"x.py": {"len": len, "made": eval("lambda ctx: 1")}}).trusted("x.py")
    assert made is not None
    assert "len builtins:len " in made.source


async def test_a_script_of_the_blueprint_is_still_a_script(tmp_path: Path):
    (tmp_path / "other.py").write_text("def render(ctx): return 'a script'")
    other = Region("other", kind="custom", script="other.py", max_tokens=500)
    made = blueprint(stage(nudge=QUIET), regions=(TASK, TALK, BRAIN, other), folder=tmp_path)
    provider = says("done")
    async with swarm_of(provider, scripts=FUNCTIONS, limits=Limits(scripts=ScriptLimits(seconds=10))) as swarm:
        await (await swarm.spawn(made, task="t")).result()
    assert system_text(bodies(provider)[0]).endswith("0 entries\n\na script")


async def test_without_functions_such_a_blueprint_needs_its_script():
    with pytest.raises(Exception, match="has no folder to look in"):
        await run_once(MADE, says("done"))
