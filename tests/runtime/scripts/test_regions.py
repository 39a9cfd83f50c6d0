"""Custom regions in runs: what a blueprint ships, what its scripts do, and that none of them can hurt its run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from runkit import (
    NOTES,
    TALK,
    TASK,
    blueprint,
    bodies,
    events_of,
    folded,
    kinds,
    messages,
    payloads,
    run_once,
    stage,
    swarm_of,
    system_text,
    write_files,
)

from shoal.blueprints import Blueprint, LiteralSeed, Nudge, Region, Route, StageContext, ToolRouting
from shoal.errors import SpawnRefused
from shoal.providers import Text, ToolCall
from shoal.runtime import Limits, tool
from shoal.runtime.context import load_rendering
from shoal.runtime.scripts import ScriptLimits
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

# What a test does not try to exhaust is not to be exhausted by a busy machine.
AMPLE = Limits(scripts=ScriptLimits(seconds=10))

KEEP_ERRORS = """
def render(ctx):
    said = "<context>"
    for entry in ctx["entries"]:
        said += f'<event kind="{entry["kind"]}">{entry["content"]}</event>'
    return {"messages": [{"role": "user", "content": said + "</context>"}]}


def on_write(ctx):
    entry = ctx["entry"]
    if "ERROR" not in entry["content"]:
        return entry["content"].split("\\n")[0]


def on_overflow(ctx):
    return [i for i, entry in enumerate(ctx["entries"]) if "ERROR" not in entry["content"]]
"""


def brain(**more: Any) -> Region:
    more.setdefault("max_tokens", 500)
    return Region("brain", kind="custom", script="scripts/brain.py", **more)


def shipped(folder: Path, script: str, *stages: Any, region: Region | None = None, **more: Any) -> Blueprint:
    """Return a blueprint in *folder* whose region `brain` is what *script* makes of it."""
    write_files(folder, {"scripts/brain.py": script})
    regions = (TASK, NOTES, TALK, region or brain())
    made = stages or (stage(nudge=Nudge(enabled=False)),)
    return blueprint(*made, regions=regions, folder=folder, **more)


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


async def once(made: Blueprint, provider: ScriptedProvider, **more: Any) -> Any:
    more.setdefault("limits", AMPLE)
    return await run_once(made, provider, **more)


@tool(reads=True)
async def look(at: str) -> str:
    """Look at something."""
    return at


LOOKING = stage(
    available_tools=("look", "context_append"),
    nudge=Nudge(enabled=False),
    tool_routing=ToolRouting(overrides={"look": Route("brain")}),
)


# --- the whole of it


async def test_errors_stay_whole_successes_are_trimmed_to_a_line_and_all_is_one_message(tmp_path: Path):
    seen = [call("look", at="ok one\nand much more"), call("look", at="ERROR here\nwith its trace"), "done"]
    provider = says(*seen)
    await once(shipped(tmp_path, KEEP_ERRORS, LOOKING), provider, tools=(look,))
    shown = messages(bodies(provider)[-1])[0]
    assert shown == (
        "user",
        '<context><event kind="text">ok one</event><event kind="text">ERROR here\nwith its trace</event></context>',
    )


async def test_successes_go_first_when_room_is_needed(tmp_path: Path):
    long = "x" * 380
    results = [f"ok {long}", f"ERROR 1 {long}", f"ok {long}", f"ERROR 2 {long}"]
    provider = says(*(call("look", at=text) for text in results), "done")
    made = shipped(tmp_path, KEEP_ERRORS, LOOKING, region=brain(max_tokens=300))
    _, events = await once(made, provider, tools=(look,))
    shown = messages(bodies(provider)[-1])[0][1]
    assert ("ok" in shown, shown.count("ERROR")) == (False, 2)
    assert [i for p in payloads(events, "EntriesEvicted") for i in p.entry_ids] == [1, 3]


async def test_the_pointer_says_how_much_of_a_routed_result_the_script_kept(tmp_path: Path):
    provider = says(call("look", at="first line\n" + "x" * 400), "done")
    await once(shipped(tmp_path, KEEP_ERRORS, LOOKING), provider, tools=(look,))
    said = messages(bodies(provider)[-1])[-1][1]
    assert said.startswith("[The result was cut: 3 of 103 tokens are kept. It is in the region `brain`")


async def test_a_routed_result_that_the_script_refuses_is_not_kept_and_the_model_is_told_why(tmp_path: Path):
    refusing = 'def render(ctx): return ""\ndef on_write(ctx): return {"action": "reject", "reason": "seen before"}'
    provider = says(call("look", at="again"), "done")
    _, events = await once(shipped(tmp_path, refusing, LOOKING), provider, tools=(look,))
    assert messages(bodies(provider)[-1])[-1][1] == (
        "[The result of 2 tokens was not kept: `brain` does not take it: seen before]"
    )
    assert [p for p in payloads(events, "EntryWritten") if p.region == "brain"] == []


async def test_a_render_knows_stage_iteration_model_and_window(tmp_path: Path):
    script = """
def render(ctx):
    window = ctx["window"]
    return f"{ctx['stage_name']} {ctx['stage_iterations']} {ctx['model']} {window['max_tokens']}"
"""
    provider = says(call("context_append", region="notes", content="n"), "done")
    await once(shipped(tmp_path, script), provider)
    assert [system_text(body).splitlines()[-1] for body in bodies(provider)] == [
        "work 0 scripted-model 200000",
        "work 1 scripted-model 200000",
    ]


async def test_what_was_rendered_is_kept_with_its_request_and_once(tmp_path: Path):
    provider = says(call("context_append", region="notes", content="n"), "done")
    async with swarm_of(provider, limits=AMPLE) as swarm:
        run = await swarm.spawn(shipped(tmp_path, 'def render(ctx): return "shown"'), task="t")
        await run.result()
        started = [p for p in payloads(events_of(swarm, run), "InferenceStarted") if p.purpose == "stage"]
        [(region, digest)] = started[0].renders
        assert started[1].renders == started[0].renders
        assert str(load_rendering(swarm.journal.definition(digest)).system[0]) == "shown"
        assert (region, folded(swarm, run).renders) == ("brain", {"brain": digest})


async def test_each_request_has_the_digest_of_what_it_showed(tmp_path: Path):
    script = "def render(ctx): return f\"iteration {ctx['stage_iterations']}\""
    provider = says(call("context_append", region="notes", content="n"), "done")
    _, events = await once(shipped(tmp_path, script), provider)
    started = [p for p in payloads(events, "InferenceStarted") if p.purpose == "stage"]
    assert len({p.renders for p in started}) == 2
    assert [p.prompt_digest for p in started] == [
        request.digest.hex() for request in provider.requests if request.purpose == "stage"
    ]


async def test_a_replay_runs_no_script(tmp_path: Path):
    provider = says(call("context_append", region="brain", content="a"), "done")
    async with swarm_of(provider, limits=AMPLE) as swarm:
        made = shipped(tmp_path, KEEP_ERRORS)
        run = await swarm.spawn(made, task="t")
        await run.result()
        swarm.hall.sandbox.close()
        swarm.hall.sandbox = None  # type: ignore[assignment]
        assert folded(swarm, run).dump() == swarm.state(run.run_id).dump()


async def test_a_seed_is_shown_to_the_script_that_keeps_it(tmp_path: Path):
    script = """
def render(ctx):
    return "".join([f"{entry['key']}={entry['content']}" for entry in ctx["entries"]])
def on_write(ctx):
    return {"action": "accept", "content": ctx["entry"]["content"].upper(), "key": "k"}
"""
    provider = says("done")
    await once(shipped(tmp_path, script, region=brain(seed=LiteralSeed("seeded"))), provider)
    assert system_text(bodies(provider)[0]).endswith("k=SEEDED")


async def test_a_script_cannot_refuse_what_its_blueprint_seeds(tmp_path: Path):
    script = """
def render(ctx):
    return ctx["entries"][0]["content"]
def on_write(ctx):
    return False
"""
    provider = says("done")
    _, events = await once(shipped(tmp_path, script, region=brain(seed=LiteralSeed("seeded"))), provider)
    assert system_text(bodies(provider)[0]).endswith("seeded")
    assert [p.reason for p in payloads(events, "ScriptFailed")] == ["overruled"]


async def test_an_edit_of_a_script_counts_from_the_next_run_on(tmp_path: Path):
    made = shipped(tmp_path, 'def render(ctx): return "before"')
    talk = call("context_append", region="notes", content="n")
    provider = says(talk, "done", "done")
    async with swarm_of(provider, limits=AMPLE) as swarm:
        run = await swarm.spawn(made, task="t")
        write_files(tmp_path, {"scripts/brain.py": 'def render(ctx): return "after"'})
        await run.result()
        await (await swarm.spawn(made, task="t")).result()
    assert [system_text(body).splitlines()[-1] for body in bodies(provider)] == ["before", "before", "after"]


async def test_a_stage_s_own_layout_may_name_another_script(tmp_path: Path):
    write_files(tmp_path, {"scripts/other.py": 'def render(ctx): return "other " + ctx["entries"][0]["content"]'})
    other = Region("brain", kind="custom", script="scripts/other.py", max_tokens=500)
    made = shipped(
        tmp_path,
        'def render(ctx): return "one"',
        stage("one", nudge=Nudge(enabled=False)),
        stage("two", context=StageContext(regions=(TASK, TALK, other)), nudge=Nudge(enabled=False)),
        region=brain(seed=LiteralSeed("kept")),
    )
    provider = says("done", "done")
    await once(made, provider)
    assert [system_text(body).splitlines()[-1] for body in bodies(provider)] == ["one", "other kept"]


# --- a custom conversation

TALKING = """
def render(ctx):
    said = []
    for entry in ctx["entries"]:
        if entry["kind"] == "assistant_turn":
            said.append({"role": "assistant", "content": entry["content"], "tool_calls": entry["tool_calls"]})
        elif entry["kind"] == "tool_result":
            result = {"tool_call_id": entry["tool_call_id"], "content": entry["content"]}
            said.append({"role": "user", "tool_results": [result]})
        else:
            said.append({"role": "user", "content": entry["content"]})
    return {"messages": said}
"""


def talking(folder: Path, script: str = TALKING, *stages: Any) -> Blueprint:
    write_files(folder, {"talk.py": script})
    talk = Region("conversation", kind="custom", script="talk.py", max_tokens=4000)
    return blueprint(*(stages or (stage(),)), regions=(TASK, NOTES, talk), folder=folder)


def without_seqs(sent: list[dict[str, Any]]) -> str:
    """Return what was *sent* without the numbers of events in the ids of calls: a lane may have come in between."""
    return re.sub(r"call_[0-9]+_", "call_", str(sent))


async def test_a_custom_conversation_says_what_a_built_in_one_says(tmp_path: Path):
    # A script is given arguments as values: it cannot say how a model had spaced them.
    compact = ToolCall("", "context_append", Text.of('{"content":"n","region":"notes"}'))
    replies = [Say("I note.", calls=(compact,)), "done", "done", "done"]
    one, other = says(*replies), says(*replies)
    await once(blueprint(stage()), one)
    await once(talking(tmp_path), other)
    assert without_seqs(bodies(other)) == without_seqs(bodies(one))


async def test_a_script_that_refuses_everything_cannot_delete_the_record(tmp_path: Path):
    provider = says(call("context_append", region="notes", content="n"), "done", "more", "and more")
    script = TALKING + "def on_write(ctx):\n    return False\n"
    outcome, events = await once(talking(tmp_path, script), provider)
    assert outcome.status == "complete"
    assert len(messages(bodies(provider)[-1])) == len(
        [p for p in payloads(events, "EntryWritten") if p.region == "conversation"]
    )
    assert {p.reason for p in payloads(events, "ScriptFailed")} == {"overruled"}


async def test_mail_notes_and_stage_prompts_pass_the_script_too(tmp_path: Path):
    script = TALKING + 'def on_write(ctx):\n    return "seen: " + ctx["entry"]["kind"]\n'
    quiet = Nudge(enabled=False)
    stages = (
        stage("one", prompt_as="nudge", system_prompt="Begin.", nudge=quiet),
        stage("two", prompt_as="nudge", system_prompt="Go on.", nudge=quiet),
    )
    provider = says("first", "second")
    await once(talking(tmp_path, script, *stages), provider)
    assert messages(bodies(provider)[-1]) == [
        ("user", "seen: user_message"),
        ("assistant", "seen: assistant_turn"),
        ("user", "seen: user_message"),
    ]


# --- refused at the spawn


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("def rendr(ctx): return ''", r"'scripts/brain.py', defines no function `render`; write `def render\(ctx\):`"),
        ("render = 3", "defines no function `render`"),
        ("def render(ctx:", "cannot be used: `blueprint:scripts/brain.py`, line 1 cannot be read"),
        ("1 / 0\ndef render(ctx): return ''", "cannot be used: .*ZeroDivisionError"),
        ("while True: pass\ndef render(ctx): return ''", "cannot be used: .*TimeoutError"),
    ],
)
async def test_a_script_that_cannot_be_used_refuses_the_spawn(tmp_path: Path, script: str, why: str):
    limits = Limits(scripts=ScriptLimits(seconds=0.5))
    async with swarm_of(says("done"), limits=limits) as swarm:
        with pytest.raises(SpawnRefused, match=rf"`context.regions.brain.script`.*{why}"):
            await swarm.spawn(shipped(tmp_path, script), task="t")
        assert swarm.runs() == []


async def refusal(made: Blueprint) -> str:
    async with swarm_of(says("done"), limits=AMPLE) as swarm:
        with pytest.raises(SpawnRefused) as refused:
            await swarm.spawn(made, task="t")
        return str(refused.value)


async def test_a_missing_script_refuses_the_spawn(tmp_path: Path):
    made = shipped(tmp_path, "")
    (tmp_path / "scripts/brain.py").unlink()
    assert "the script of `context.regions.brain.script` cannot be read: 'scripts/brain.py'" in await refusal(made)


@pytest.mark.parametrize("path", ["../outside.py", "link.py"])
async def test_a_script_outside_the_folder_refuses_the_spawn(tmp_path: Path, path: str):
    write_files(tmp_path, {"outside.py": "def render(ctx): return ''", "inside/x.py": ""})
    (tmp_path / "inside/link.py").symlink_to(tmp_path / "outside.py")
    region = Region("brain", kind="custom", script=path)
    made = blueprint(stage(), regions=(TASK, NOTES, TALK, region), folder=tmp_path / "inside")
    assert "leads outside the folder 'inside'" in await refusal(made)


async def test_a_script_needs_a_folder_to_lie_in():
    made = blueprint(stage(), regions=(TASK, NOTES, TALK, brain()))
    assert "names the script 'scripts/brain.py' and the blueprint has no folder" in await refusal(made)


async def test_a_script_in_another_language_is_refused(tmp_path: Path):
    region = Region("brain", kind="custom", script="brain.rhai")
    made = blueprint(stage(), regions=(TASK, NOTES, TALK, region), folder=tmp_path)
    assert "names 'brain.rhai', which is no Python; port the script" in await refusal(made)


@pytest.mark.parametrize(("data", "why"), [(b"x" * 1_048_577, "larger than 1,048,576 bytes"), (b"\xff", "not UTF-8")])
async def test_a_script_that_is_no_text_or_too_long_is_refused(tmp_path: Path, data: bytes, why: str):
    made = shipped(tmp_path, "")
    (tmp_path / "scripts/brain.py").write_bytes(data)
    assert why in await refusal(made)


# --- failing while the run lives

WILD = {
    "loops": "while True:\n        pass",
    "allocates": "x = 'a'\n    while True:\n        x += x",
    "recurses": "return HOOK(ctx)",
    "raises": "raise ValueError('no')",
    "prints and raises": "print('x' * 1000)\n    return 1 / 0",
    "returns nonsense": "return {'what': 7}",
    "returns a set": "return {1, 2}",
    "prints without end": "while True:\n        print('x' * 1000)",
}
REASONS = {
    "loops": "time",
    "allocates": "memory",
    "recurses": "depth",
    "raises": "raised",
    "prints and raises": "raised",
    "returns nonsense": "misread",
    "returns a set": "result",
    "prints without end": "time",
}
TIGHT = Limits(scripts=ScriptLimits(seconds=1.0))


def wild(hook: str, what: str) -> str:
    body = WILD[what].replace("HOOK", hook)
    calm = "" if hook == "render" else 'def render(ctx):\n    return "shown"\n'
    return f"{calm}def {hook}(ctx):\n    {body}\n"


@pytest.mark.parametrize("what", WILD)
async def test_a_render_that_fails_shows_the_entries_as_plain_text(tmp_path: Path, what: str):
    made = shipped(tmp_path, wild("render", what), region=brain(seed=LiteralSeed("the entry")))
    provider = says("done")
    outcome, events = await once(made, provider, limits=TIGHT)
    assert outcome.status == "complete"
    assert system_text(bodies(provider)[0]).endswith("## brain\nthe entry")
    [failed] = payloads(events, "ScriptFailed")
    assert (failed.script, failed.function, failed.region) == ("blueprint:scripts/brain.py", "render", "brain")
    assert failed.reason == REASONS[what]
    assert payloads(events, "InferenceStarted")[-1].renders == ()


@pytest.mark.parametrize("what", WILD)
async def test_an_on_write_that_fails_accepts_the_entry_unchanged(tmp_path: Path, what: str):
    provider = says(call("context_append", region="brain", content="the entry"), "done")
    outcome, events = await once(shipped(tmp_path, wild("on_write", what)), provider, limits=TIGHT)
    assert outcome.status == "complete"
    assert [p.region for p in payloads(events, "EntryWritten") if p.region == "brain"] == ["brain"]
    assert [p.reason for p in payloads(events, "ScriptFailed")] == [REASONS[what]]


@pytest.mark.parametrize("what", WILD)
async def test_an_on_overflow_that_fails_leaves_oldest_first(tmp_path: Path, what: str):
    entries = [call("context_append", region="brain", content=letter * 160) for letter in "abc"]
    made = shipped(tmp_path, wild("on_overflow", what), region=brain(max_tokens=100))
    outcome, events = await once(made, says(*entries, "done"), limits=TIGHT)
    assert outcome.status == "complete"
    assert [p.entry_ids for p in payloads(events, "EntriesEvicted")] == [(1, 2)]
    assert [p.reason for p in payloads(events, "ScriptFailed")] == [REASONS[what]]


async def test_no_global_outlives_a_call(tmp_path: Path):
    script = "seen = []\ndef render(ctx):\n    seen.append(1)\n    return str(len(seen))"
    provider = says(call("context_append", region="notes", content="n"), "done")
    await once(shipped(tmp_path, script), provider)
    assert [system_text(body).splitlines()[-1] for body in bodies(provider)] == ["1", "1"]


async def test_a_region_too_big_to_be_handed_over_counts_as_a_failed_call(tmp_path: Path):
    big = brain(max_tokens=3_000_000, seed=LiteralSeed("x" * 4_300_000))
    provider = ScriptedProvider("done", purposes={"titling": "t"}, window_tokens=4_000_000)
    _, events = await once(shipped(tmp_path, 'def render(ctx): return ""', region=big), provider)
    assert [p.reason for p in payloads(events, "ScriptFailed")] == ["argument"]


async def test_a_script_is_not_called_for_what_it_does_not_define(tmp_path: Path):
    provider = says(call("context_append", region="brain", content="x"), "done")
    _, events = await once(shipped(tmp_path, 'def render(ctx): return ""'), provider)
    assert kinds(events, "ScriptFailed") == []
