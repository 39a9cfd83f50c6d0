"""Hooks of stages: what each is shown, what it may change, and that one that fails stops its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from runkit import (
    NOTES,
    TALK,
    TASK,
    blueprint,
    bodies,
    edge,
    kinds,
    messages,
    payloads,
    run_once,
    stage,
    stages_of,
    swarm_of,
    system_text,
    write_files,
)

from shoal.blueprints import Blueprint, Gate, LiteralSeed, Nudge, Region, Stage
from shoal.errors import SpawnRefused
from shoal.providers import Text, ToolCall
from shoal.runtime import Limits, Outcome, tool
from shoal.runtime.scripts import ScriptLimits
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

AMPLE = Limits(scripts=ScriptLimits(seconds=10))
QUIET = Nudge(enabled=False)
SHOW = 'return {"action": "modify", "value": {"notes": str(ctx)}}'
PLAN = Region("plan", kind="pinned", max_tokens=500, seed=LiteralSeed("the plan"))


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


def hooked(folder: Path, *more: Stage, first: dict[str, Any] | None = None, **bodies_of: str) -> Blueprint:
    """Return a blueprint whose first stage has a hook for each of *bodies_of*, the body of its function."""
    scripts = {f"{hook}.py": f"def {hook}(ctx):\n    {body}\n" for hook, body in bodies_of.items()}
    write_files(folder, scripts)
    hooks = {hook: f"{hook}.py" for hook in bodies_of}
    made = stage(hooks=hooks, **{"nudge": QUIET, **(first or {})})
    return blueprint(made, *more, regions=(TASK, NOTES, PLAN, TALK), folder=folder)


async def once(made: Blueprint, provider: ScriptedProvider, **more: Any) -> tuple[Outcome, list[Any]]:
    return await run_once(made, provider, limits=AMPLE, **more)


def shown_notes(provider: ScriptedProvider) -> dict[str, Any]:
    """Return what a hook was given that wrote it into `notes`."""
    text = system_text(bodies(provider)[0]).partition("## notes\n")[2].partition("\n\n## ")[0]
    return json.loads(text.replace("'", '"').replace("None", "null"))


@tool(reads=True)
async def look(at: str) -> str:
    """Look at something."""
    return f"saw {at}"


LOOKING = {"available_tools": ("look",)}

# --- regions: on_stage_enter, before_inference, on_stage_exit


@pytest.mark.parametrize("hook", ["on_stage_enter", "before_inference"])
async def test_a_hook_is_shown_its_stage_and_the_text_of_each_region(tmp_path: Path, hook: str):
    provider = says("done")
    await once(hooked(tmp_path, **{hook: SHOW}), provider)
    assert shown_notes(provider) == {
        "stage": "work",
        "stage_index": 0,
        "regions": {
            "task": "the task",
            "notes": "",
            "plan": "the plan",
            "conversation": "",
            "tool_results": "",
            "final_output": "",
            "stage_instructions": "",
        },
    }


async def test_a_hook_at_the_entry_runs_once_a_visit(tmp_path: Path):
    body = 'return {"action": "modify", "value": {"notes": ctx["regions"]["notes"] + "x"}}'
    again = stage("again", nudge=QUIET, transitions=(edge("work"),))
    made = hooked(tmp_path, again, first={"max_revisits": 1, "transitions": (edge("again"),)}, on_stage_enter=body)
    provider = says("1", "2", "3", "4")
    _, events = await once(made, provider)
    assert stages_of(events)[:3] == ["work", "again", "work"]
    assert "## notes\nxx" in system_text(bodies(provider)[2])
    assert [ran.action for ran in payloads(events, "HookRan")] == ["modify", "modify"]


async def test_a_hook_before_each_request_may_change_what_it_shows(tmp_path: Path):
    body = 'return {"action": "modify", "value": {"notes": ctx["regions"]["notes"] + "."}}'
    provider = says(call("look", at="a"), "done")
    await once(hooked(tmp_path, first=LOOKING, before_inference=body), provider, tools=(look,))
    assert ["## notes\n.\n" in f"{system_text(body)}\n" for body in bodies(provider)] == [True, False]
    assert "## notes\n.." in system_text(bodies(provider)[1])


async def test_a_hook_at_the_exit_runs_when_the_stage_is_left(tmp_path: Path):
    body = 'return {"action": "modify", "value": {"notes": "left " + ctx["stage"]}}'
    provider = says("done", "done")
    await once(hooked(tmp_path, stage("next", nudge=QUIET), on_stage_exit=body), provider)
    assert ["left work" in system_text(body) for body in bodies(provider)] == [False, True]


async def test_a_hook_at_the_exit_runs_again_when_a_gate_kept_the_stage(tmp_path: Path):
    gated = edge("next", gate=Gate(require_regions=("plan",)))
    first = {"transitions": (gated,), "available_tools": ("context_write",)}
    body = 'return {"action": "modify", "value": {"plan": ""}} if "t" in ctx["regions"]["plan"] else None'
    provider = says("done", call("context_write", region="plan", content="more"), "done", "done")
    _, events = await once(hooked(tmp_path, stage("next", nudge=QUIET), first=first, on_stage_exit=body), provider)
    assert [(ran.hook, ran.action) for ran in payloads(events, "HookRan")] == [
        ("on_stage_exit", "modify"),
        ("on_stage_exit", "allow"),
    ]
    assert len(payloads(events, "GateBlocked")) == 1


async def test_an_empty_text_empties_a_region(tmp_path: Path):
    provider = says("done")
    await once(
        hooked(tmp_path, on_stage_enter='return {"action": "modify", "value": {"plan": "", "notes": ""}}'), provider
    )
    assert "## plan" not in system_text(bodies(provider)[0])


async def test_a_text_that_does_not_fit_is_cut(tmp_path: Path):
    provider = says("done")
    body = 'return {"action": "modify", "value": {"plan": "x" * 4000}}'
    await once(hooked(tmp_path, on_stage_enter=body), provider)
    assert "[cut: about 500 of 1000 tokens]" in system_text(bodies(provider)[0])


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("7", "gives no texts by region as `value`"),
        ('{"else": "x"}', "names the region 'else', and the stage sees task, notes, plan"),
        ('{"notes": 7}', "gives 'int' to the region `notes`; give a text"),
        ('{"conversation": "x"}', "gives a text to `conversation`, which holds more than one can say"),
    ],
)
async def test_a_region_that_cannot_be_set_ends_the_run(tmp_path: Path, value: str, why: str):
    body = f'return {{"action": "modify", "value": {value}}}'
    for hook in ("on_stage_enter", "before_inference"):
        provider = says("done")
        outcome, _ = await once(hooked(tmp_path, **{hook: body}), provider)
        assert (outcome.status, bodies(provider)) == ("error", [])
        assert why in outcome.reason


# --- replies


async def test_a_new_text_of_a_reply_stands_in_its_place(tmp_path: Path):
    body = 'return {"action": "modify", "value": ctx["response"].upper()}'
    provider = says(Say("looking", calls=(call("look", at="a"),)), "done")
    made = hooked(tmp_path, first=LOOKING, after_inference=body)
    outcome, events = await once(made, provider, tools=(look,))
    assert outcome.output == "DONE"
    assert messages(bodies(provider)[1])[1:] == [("assistant", "LOOKING"), ("tool", "saw a")]
    assert [str(p.text) for p in payloads(events, "InferenceCompleted") if p.purpose == "stage"] == ["looking", "done"]


async def test_the_answer_of_a_run_is_found_where_a_hook_gave_it(tmp_path: Path):
    body = 'return {"action": "modify", "value": "another"}'
    outcome, events = await once(hooked(tmp_path, after_inference=body), says("done"))
    answer = next(event for event in events if event.seq == payloads(events, "RunEnded")[0].output_seq)
    assert (outcome.output, str(answer.payload.text)) == ("another", "another")


async def test_a_hook_of_replies_is_shown_text_tokens_and_tools(tmp_path: Path):
    body = 'return {"action": "modify", "value": f"{sorted(ctx)} {ctx[\'tool_calls\']} {ctx[\'tokens_used\'] > 0}"}'
    provider = says(Say("looking", calls=(call("look", at="a"),)), "done")
    await once(hooked(tmp_path, first=LOOKING, after_inference=body), provider, tools=(look,))
    assert messages(bodies(provider)[1])[1][1] == (
        "['response', 'stage', 'stage_index', 'tokens_used', 'tool_calls'] ['look'] True"
    )


async def test_calls_may_be_changed_before_they_pass_the_gates(tmp_path: Path):
    body = """calls = [{"name": c["name"], "arguments": {"at": c["arguments"]["at"] + "!"}} for c in ctx["tool_calls"]]
    return {"action": "modify", "value": calls + [{"name": "nothing", "arguments": {}}]}"""
    provider = says(call("look", at="a"), "done")
    await once(hooked(tmp_path, first=LOOKING, on_tool_call=body), provider, tools=(look,))
    said = messages(bodies(provider)[1])
    assert [text for role, text in said if role == "tool"] == [
        "saw a!",
        "[unavailable] this stage has no tool 'nothing'; it has `look`",
    ]


async def test_a_turn_whose_calls_are_all_taken_away_is_one_without_calls(tmp_path: Path):
    body = 'return {"action": "modify", "value": []}'
    provider = says(call("look", at="a"))
    outcome, events = await once(hooked(tmp_path, first=LOOKING, on_tool_call=body), provider, tools=(look,))
    assert (outcome.status, payloads(events, "ToolCallStarted")) == ("complete", [])


async def test_calls_that_are_stopped_have_no_effect_and_say_so(tmp_path: Path):
    body = 'return {"action": "cancel", "reason": "not on Fridays"}'
    provider = says(Say(calls=(call("look", at="a"), call("look", at="b"))), "done")
    outcome, events = await once(hooked(tmp_path, first=LOOKING, on_tool_call=body), provider, tools=(look,))
    denied = "[denied] a hook of this stage stopped the calls of this turn: not on Fridays"
    assert [text for role, text in messages(bodies(provider)[1]) if role == "tool"] == [denied, denied]
    assert (outcome.status, kinds(events, "ToolCallStarted")) == ("complete", [])
    assert {p.gate for p in payloads(events, "ToolCallCompleted")} == {"hook"}


@pytest.mark.parametrize(
    ("hook", "value"),
    [
        ("after_inference", "7"),
        ("on_tool_call", "7"),
        ("on_tool_call", "[7]"),
        ("on_tool_call", '[{"name": ""}]'),
        ("on_tool_call", '[{"name": "look", "arguments": "x"}]'),
    ],
)
async def test_a_reply_cannot_be_changed_into_what_it_cannot_be(tmp_path: Path, hook: str, value: str):
    body = f'return {{"action": "modify", "value": {value}}}'
    provider = says(call("look", at="a"), "done")
    outcome, events = await once(hooked(tmp_path, first=LOOKING, **{hook: body}), provider, tools=(look,))
    assert (outcome.status, kinds(events, "ToolCallStarted")) == ("error", [])
    assert f"the hook `{hook}` of stage 'work' failed" in outcome.reason


async def test_what_is_said_and_what_is_called_may_both_be_changed(tmp_path: Path):
    made = hooked(
        tmp_path,
        first=LOOKING,
        after_inference='return {"action": "modify", "value": "I look elsewhere."}',
        on_tool_call='return {"action": "modify", "value": [{"name": "look", "arguments": {"at": "b"}}]}',
    )
    provider = says(Say("I look.", calls=(call("look", at="a"),)), "done")
    await once(made, provider, tools=(look,))
    assert messages(bodies(provider)[1])[1:] == [("assistant", "I look elsewhere."), ("tool", "saw b")]


async def test_arguments_that_are_no_json_are_shown_as_they_are(tmp_path: Path):
    body = 'return {"action": "cancel", "reason": ctx["tool_calls"][0]["arguments"]}'
    provider = says(Say(calls=(ToolCall("", "look", Text.of("{torn")),)), "done")
    await once(hooked(tmp_path, first=LOOKING, on_tool_call=body), provider, tools=(look,))
    assert messages(bodies(provider)[1])[-1][1].endswith(": {torn")


# --- the end


async def test_the_answer_may_be_replaced_at_the_end(tmp_path: Path):
    body = 'return {"action": "modify", "value": f"{ctx[\'status\']}: {ctx[\'output\']}"}'
    outcome, _ = await once(hooked(tmp_path, on_completion=body), says("done"))
    assert (outcome.status, outcome.output) == ("complete", "complete: done")


async def test_a_submitted_answer_may_be_replaced_at_the_end(tmp_path: Path):
    body = 'return {"action": "modify", "value": ctx["output"] + "!"}'
    made = hooked(tmp_path, first={"available_tools": ("submit_output",)}, on_completion=body)
    outcome, _ = await once(made, says(call("submit_output", content="the answer"), "done"))
    assert outcome.output == "the answer!"


async def test_there_has_to_be_an_answer_to_replace_one(tmp_path: Path):
    made = hooked(tmp_path, first=LOOKING, on_completion='return {"action": "modify", "value": "x"}')
    made = Blueprint(**{name: getattr(made, name) for name in made.__slots__})
    outcome, _ = await once(made, says(Say("")), tools=(look,))
    assert (outcome.status, "there is none that it could replace" in outcome.reason) == ("error", True)


async def test_the_message_of_an_error_may_be_replaced(tmp_path: Path):
    made = hooked(
        tmp_path,
        before_inference='return {"action": "cancel", "reason": "no"}',
        on_error='return {"action": "modify", "value": "said better: " + ctx["error"]}',
    )
    outcome, _ = await once(made, says("done"))
    assert outcome.reason == ("said better: the hook `before_inference` of stage 'work' stopped the run: no")


async def test_a_hook_of_errors_that_fails_does_not_loop(tmp_path: Path):
    made = hooked(tmp_path, before_inference="return False", on_error="return 1 / 0")
    outcome, events = await once(made, says("done"))
    assert outcome.status == "error"
    assert [ran.hook for ran in payloads(events, "HookRan")] == ["before_inference", "on_error"]


async def test_stopping_the_completion_makes_an_error_of_it(tmp_path: Path):
    made = hooked(tmp_path, on_completion="return False", on_error="return None")
    outcome, events = await once(made, says("done"))
    assert (outcome.status, outcome.reason) == ("error", "the hook `on_completion` of stage 'work' stopped the run")
    assert [ran.hook for ran in payloads(events, "HookRan")] == ["on_completion", "on_error"]


async def test_a_run_that_is_cancelled_asks_no_hook(tmp_path: Path):
    made = hooked(tmp_path, on_completion="return False", on_error="return False")
    async with swarm_of(says("done"), limits=AMPLE) as swarm:
        run = await swarm.spawn(made, task="t")
        await run.cancel()
        outcome = await run.result()
        assert kinds(list(swarm.journal.read(run.run_id)), "HookRan") == []
    assert outcome.status == "cancelled"


# --- stopping and failing

BODIES = {
    "return False": "stopped the run",
    'return {"action": "cancel"}': "stopped the run",
    'return {"action": "cancel", "reason": "it is late"}': "stopped the run: it is late",
    'return {"action": "retry"}': "failed: `HOOK` asks for `retry`, which no hook can have",
    'return {"action": "accept"}': "failed: `HOOK` returned {'action': 'accept'}",
    'return {"action": "modify"}': "failed: `HOOK` returned {'action': 'modify'}",
    "return 7": "failed: `HOOK` returned 7",
    "raise ValueError('no')": "failed: `blueprint:HOOK.py`, line 2: ValueError: no",
    "return HOOK(ctx)": "failed: `blueprint:HOOK.py`, line 2: RecursionError",
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("hook", ["on_stage_enter", "before_inference", "after_inference", "on_stage_exit"])
async def test_a_hook_that_stops_or_fails_ends_its_run_and_says_why(tmp_path: Path, hook: str, body: str):
    outcome, _ = await once(hooked(tmp_path, **{hook: body.replace("HOOK", hook)}), says("done"))
    why = BODIES[body].replace("HOOK", hook)
    assert outcome.status == "error"
    assert outcome.reason.startswith(f"the hook `{hook}` of stage 'work' {why}")


@pytest.mark.parametrize("body", ["return None", "return True", "pass"])
async def test_a_hook_that_lets_everything_be_changes_nothing(tmp_path: Path, body: str):
    names = ["on_stage_enter", "before_inference", "after_inference", "on_tool_call", "on_stage_exit", "on_completion"]
    provider, plain = says(call("look", at="a"), "done"), says(call("look", at="a"), "done")
    made = hooked(tmp_path, first=LOOKING, **dict.fromkeys(names, body))
    outcome, events = await once(made, provider, tools=(look,))
    await once(hooked(tmp_path, first=LOOKING), plain, tools=(look,))
    assert outcome.status == "complete"
    assert [messages(body) for body in bodies(provider)] == [messages(body) for body in bodies(plain)]
    assert [ran.hook for ran in payloads(events, "HookRan")] == ["on_stage_enter", "on_stage_exit", "on_completion"]


async def test_a_hook_that_is_not_defined_refuses_the_spawn(tmp_path: Path):
    made = hooked(tmp_path, on_stage_enter="pass")
    write_files(tmp_path, {"on_stage_enter.py": "def other(ctx): pass"})
    async with swarm_of(says("done"), limits=AMPLE) as swarm:
        with pytest.raises(SpawnRefused, match=r"`stages.work.hooks.on_stage_enter`.* no function `on_stage_enter`"):
            await swarm.spawn(made, task="t")
