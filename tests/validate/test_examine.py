"""Checks that need to know models, tools or scripts: each says what is wrong, where, and what to write instead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.blueprints import (
    Blueprint,
    Edge,
    Finding,
    InteractionPoint,
    ModelChoice,
    ModelSettings,
    Observations,
    OutputSpec,
    Region,
    Stage,
    StageContext,
)
from shoal.errors import ConfigInvalid
from shoal.providers import compatible, offline
from shoal.runtime.scripts import Sandbox
from shoal.runtime.tools import Grants, Permissions
from shoal.validate import Named, examine, largest, named_models, resolved_budgets

pytestmark = pytest.mark.anyio

WORK = Stage("work", max_iterations=3)
PLAIN = Blueprint("made", (WORK,))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def with_regions(*regions: Region, **more: Any) -> Blueprint:
    return replace(PLAIN, regions=regions, **more)


async def found(blueprint: Blueprint, id_: str, **more: Any) -> list[Finding]:
    return [finding for finding in await examine(blueprint, **more) if finding.id == id_]


async def one(blueprint: Blueprint, id_: str, **more: Any) -> Finding:
    [finding] = await found(blueprint, id_, **more)
    return finding


async def test_a_blueprint_without_anything_special_has_no_findings():
    assert await examine(PLAIN) == ()


# --- scripts


def scripted(folder: Path, source: str) -> Blueprint:
    write(folder, {"brain.py": source})
    return with_regions(Region("brain", kind="custom", script="brain.py"), folder=folder)


@pytest.mark.parametrize(
    ("source", "line", "column", "why"),
    [
        ("x = 1\ndef render(ctx:\n  pass", 3, 3, "cannot be read"),
        ("x = 1\ny = x / 0\ndef render(ctx): return ''", 2, 5, "ZeroDivisionError"),
        ("def render(ctx):\n    yield 1", 2, 5, "NotImplementedError"),
    ],
)
async def test_a_script_that_cannot_be_used_is_found_with_its_place(
    tmp_path: Path, source: str, line: int, column: int, why: str
):
    finding = await one(scripted(tmp_path, source), "script-invalid")
    assert (finding.severity, finding.file, finding.line, finding.column) == (
        "error",
        str(tmp_path / "brain.py"),
        line,
        column,
    )
    assert why in finding.message


async def test_a_script_without_its_function_is_found_at_the_key_that_names_it(tmp_path: Path):
    finding = await one(scripted(tmp_path, "x = 1"), "script-invalid")
    assert (finding.key, finding.line) == ("context.regions.brain.script", None)
    assert finding.message == "'brain.py' defines no function `render`; write it"


async def test_a_script_that_is_missing_is_left_to_the_loader(tmp_path: Path):
    made = scripted(tmp_path, "")
    (tmp_path / "brain.py").unlink()
    assert await found(made, "script-invalid") == []


async def test_a_script_of_a_blueprint_without_a_folder_is_found():
    made = with_regions(Region("brain", kind="custom", script="brain.py"))
    assert "no folder to look in" in (await one(made, "script-invalid")).message


async def test_a_script_that_cannot_be_looked_at_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def nothing(*_: object) -> frozenset[str]:
        raise ConfigInvalid("no sandbox here")

    monkeypatch.setattr(Sandbox, "defines", nothing)
    finding = await one(scripted(tmp_path, "x = 1"), "script-unchecked")
    assert (finding.severity, finding.message) == ("warning", "no sandbox here")


async def test_hooks_and_validators_are_looked_at_too(tmp_path: Path):
    write(tmp_path, {"a.py": "x = 1", "b.py": "x = 1"})
    stage = replace(WORK, hooks={"on_stage_enter": "a.py"}, output=OutputSpec(validator="b.py"))
    made = replace(PLAIN, stages=(stage,), folder=tmp_path)
    assert [finding.key for finding in await found(made, "script-invalid")] == [
        "stages.work.output.validator",
        "stages.work.hooks.on_stage_enter",
    ]


# --- schemas and tools

BAD_SCHEMA = {"type": "nothing"}


async def test_the_schema_of_an_answer_has_to_compile():
    made = replace(
        PLAIN, output=OutputSpec(schema=BAD_SCHEMA), stages=(replace(WORK, output=OutputSpec(schema=BAD_SCHEMA)),)
    )
    findings = await found(made, "schema-invalid")
    assert [(finding.severity, finding.key) for finding in findings] == [
        ("error", "agent.output.schema"),
        ("error", "stages.work.output.schema"),
    ]


def shipping(folder: Path, files: dict[str, str], *tools: str) -> Blueprint:
    write(folder, {f"tools/{name}": text for name, text in files.items()})
    return replace(PLAIN, stages=(replace(WORK, available_tools=tools),), folder=folder)


RUNS = "def run(args): return 1"


async def test_a_tool_that_is_shipped_is_known_by_its_own_name(tmp_path: Path):
    made = shipping(tmp_path, {"a.py": f"# @tool count\n{RUNS}"}, "count")
    assert await examine(made) == ()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"count.py": "# @requires network"}, "tools/count.py:1: a script has no network"),
        ({"count.py": f"# @tool shell\n{RUNS}"}, "calls its tool `shell`, as a built-in one is called"),
        ({"a.py": f"# @tool x\n{RUNS}", "count.py": f"# @tool x\n{RUNS}"}, "as 'tools/a.py' is called; rename it"),
    ],
)
@pytest.mark.parametrize("listed", [True, False])
async def test_a_tool_that_is_none_is_an_error_where_a_stage_lists_it(
    tmp_path: Path, files: dict[str, str], why: str, listed: bool
):
    finding = await one(shipping(tmp_path, files, *(["count"] if listed else [])), "tool-invalid")
    assert why in finding.message
    assert (finding.severity, finding.file) == ("error" if listed else "warning", str(tmp_path / "tools/count.py"))


async def test_a_tool_whose_script_is_broken_is_found_with_its_place(tmp_path: Path):
    finding = await one(shipping(tmp_path, {"count.py": "\ndef run(:"}, "count"), "script-invalid")
    assert (finding.severity, finding.line) == ("error", 2)


async def test_a_tool_without_its_function_is_found(tmp_path: Path):
    finding = await one(shipping(tmp_path, {"count.py": "x = 1"}, "count"), "script-invalid")
    assert finding.message == "'tools/count.py' defines no function `run`; write it"


async def test_a_tool_whose_schema_cannot_be_compiled_is_not_checked(tmp_path: Path):
    files = {"count.py": RUNS, "count.toml": 'parameters = { properties = { x = { type = "nothing" } } }'}
    finding = await one(shipping(tmp_path, files, "count"), "schema-invalid")
    assert finding.severity == "warning"


async def test_a_tool_that_nobody_has_is_an_error_with_the_nearest_name():
    made = replace(PLAIN, stages=(replace(WORK, available_tools=("read_file", "read_fil", "bash", "srv__x")),))
    finding = await one(made, "unknown-tool")
    assert (finding.severity, finding.key) == ("error", "stages.work.available_tools[1]")
    assert "nobody has a tool `read_fil` (did you mean `read_file`?); ship it as `tools/read_fil.py`" in finding.message


async def test_a_tool_that_is_given_in_code_is_known():
    made = replace(PLAIN, stages=(replace(WORK, available_tools=("mine",)),))
    assert await found(made, "unknown-tool", tools=("mine",)) == []


async def test_tools_of_servers_are_known_when_the_run_begins():
    made = replace(PLAIN, stages=(replace(WORK, available_tools=("mine",), available_connectors=("server",)),))
    assert await found(made, "unknown-tool") == []


async def test_a_safe_command_that_no_line_can_match_is_an_error():
    made = replace(PLAIN, safe_shell=("make", "ls; rm x"))
    finding = await one(made, "unparseable-safe-command")
    assert (finding.severity, finding.key) == ("error", "safe_commands.shell[1]")


async def test_a_path_that_its_user_did_not_grant_is_a_warning():
    made = replace(PLAIN, read_paths=("/data", "/other"))
    granted = Permissions(grants=Grants(read_paths=("/data",)))
    finding = await one(made, "read-paths-not-granted", permissions=granted)
    assert (finding.severity, finding.key) == ("warning", "read_paths.allow[1]")


async def test_what_holds_however_a_run_is_launched_is_noted():
    point = InteractionPoint("ok", "Good?", unattended="ask")
    stage = replace(
        WORK, required_tools=("ask_user_text",), interaction_points=(point, replace(point, unattended="auto_approve"))
    )
    made = replace(PLAIN, stages=(stage,), tool_permissions={"shell": "deny", "write_file": "ask"})
    assert [(f.severity, f.key) for f in await found(made, "holds-under-yolo")] == [
        ("note", "stages.work.required_tools"),
        ("note", "stages.work.interaction_points[0]"),
        ("note", "tool_permissions.shell"),
    ]


# --- models


def served(*choices: str) -> Blueprint:
    made = tuple(ModelChoice(*choice.split(":")) for choice in choices)
    return replace(PLAIN, model=ModelSettings(made))


async def test_a_model_in_no_list_of_a_closed_catalogue_is_a_warning():
    known = named_models(served("anthropic:x"))[0]
    assert known.profile is None
    model = largest().model
    finding = await one(served("openai:gpt-none", f"openai:{model}", "compatible:anything"), "unknown-model")
    assert (finding.severity, finding.key) == ("warning", "defaults.model")
    assert finding.message.startswith("'openai:gpt-none' is in no list of models that is known here")


async def test_models_of_which_no_provider_is_here_are_a_warning():
    here = (compatible("http://127.0.0.1:1/v1", model="m", name="local"),)
    made = replace(
        served("anthropic:x", "openai:y"), stages=(replace(WORK, model=ModelSettings((ModelChoice("local"),))),)
    )
    finding = await one(made, "no-reachable-provider", providers=here)
    assert finding.message == "none of `anthropic`, `openai` is configured here; there is `local`"


@pytest.mark.parametrize(
    ("prefers", "said"),
    [
        ("b:y", "`b:y`, `b:its default`, `a:x`"),
        ("b", "`b:its default`, `b:y`, `a:x`"),
        ("b:m", "`b:its default`, `b:y`"),
    ],
)
async def test_a_list_that_ones_default_leads_is_noted_with_its_order(prefers: str, said: str):
    here = (compatible("http://127.0.0.1:1/v1", model="m", name="b"),)
    made = replace(PLAIN, model=ModelSettings((ModelChoice("a", "x"), ModelChoice("b"), ModelChoice("b", "y"))))
    finding = await one(made, "user-default-leads", providers=here, default_model=prefers)
    assert (finding.severity, finding.key) == ("note", "defaults.model")
    assert f"your `default_model` leads: {said}" in finding.message


@pytest.mark.parametrize("prefers", [None, "a", "offline"])
async def test_a_default_that_moves_nothing_is_not_noted(prefers: str | None):
    here = (compatible("http://127.0.0.1:1/v1", model="m", name="a"),)
    assert await found(served("a:x", "offline:y"), "user-default-leads", providers=here, default_model=prefers) == []


async def test_the_offline_provider_stands_in_for_everybody():
    assert await found(served("anthropic:x"), "no-reachable-provider", providers=(offline(),)) == []


async def test_nobody_is_unreachable_where_nobody_knows_who_is_here():
    assert await found(served("anthropic:x"), "no-reachable-provider") == []


def test_a_provider_says_what_its_default_model_is():
    [named] = named_models(served("local"), (compatible("http://127.0.0.1:1/v1", model="m", name="local"),))
    assert isinstance(named, Named)
    assert (named.label, named.profile is None) == ("local:m", False)
    assert named_models(served("nobody"))[0].label == "nobody:its default"


# --- budgets


async def test_a_region_that_evicts_and_has_only_a_share_is_unbounded():
    made = with_regions(Region("notes", budget=0.2), Region("rules", kind="pinned", budget=0.1))
    finding = await one(made, "unbounded-percentage-budget")
    tokens = largest().window_tokens // 5
    assert (finding.severity, finding.key) == ("warning", "context.regions.notes.budget")
    assert f"may hold {tokens:,} tokens on {largest().model!r}" in finding.message


async def test_a_cap_that_cancels_the_share_is_noted():
    made = with_regions(Region("notes", budget=0.2, max_tokens=1_000), Region("few", budget=0.0001, max_tokens=10**6))
    finding = await one(made, "cap-cancels-percentage")
    assert (finding.severity, finding.key) == ("note", "context.regions.notes.max_tokens")
    assert finding.message.endswith("`max_tokens` makes it 1,000")


@pytest.mark.parametrize(("left", "errors"), [(8_000, 0), (7_999, 1)])
async def test_fixed_regions_have_to_leave_room_to_work_in(left: int, errors: int):
    model = largest()
    regions = (Region("rules", kind="pinned", max_tokens=model.window_tokens - left),)
    made = replace(served(f"openai:{model.model}"), regions=regions)
    assert len(await found(made, "too-little-room")) == errors


async def test_a_stage_s_own_layout_has_to_leave_room_too():
    model = largest()
    full = Region("brain", kind="custom", script="x.py", pinned=True, max_tokens=model.window_tokens)
    stage = replace(WORK, context=StageContext(regions=(full,)))
    made = replace(served(f"openai:{model.model}"), stages=(stage,))
    assert (await one(made, "too-little-room")).key == "stages.work.context.regions"


def test_budgets_are_resolved_on_every_model_and_on_the_largest():
    stage = replace(WORK, context=StageContext(regions=(Region("own", max_tokens=5),)))
    made = replace(served("local:m"), regions=(Region("notes", budget=0.5),), stages=(stage,))
    rows = resolved_budgets(made, named_models(made, (compatible("http://127.0.0.1:1/v1", name="local"),)))
    top = largest()
    assert list(rows) == ["notes", "work.own"]
    assert rows["notes"][f"largest known ({top.model})"] == top.window_tokens // 2
    assert rows["work.own"]["local:m"] == 5


# --- caching


async def test_a_region_that_is_written_in_front_of_the_conversation_is_noted():
    talk = Region("conversation", kind="sliding_window", max_tokens=4_000, max_items=None)
    regions = (Region("notes"), Region("end", placement="tail"), Region("log", volatility="grows"), talk)
    made = with_regions(*regions, stages=(replace(WORK, available_tools=("context_write",)),))
    finding = await one(made, "rewritten-before-conversation")
    assert (finding.severity, finding.key) == ("note", "context.regions.notes")
    assert "up to 4,000 tokens" in finding.message


async def test_a_region_that_nobody_writes_costs_nothing():
    assert await found(with_regions(Region("notes")), "rewritten-before-conversation") == []


@pytest.mark.parametrize(("more", "count"), [({}, 1), ({"strategy": "bulk"}, 0), ({"max_items": None}, 0)])
async def test_a_window_that_drops_one_entry_for_each_is_a_warning(more: dict[str, Any], count: int):
    made = with_regions(Region("mail", kind="sliding_window", max_tokens=500, **more))
    findings = await found(made, "per-item-rewrites-prefix")
    assert [(f.severity, "up to 500 tokens" in f.message) for f in findings] == [("warning", True)] * count


@pytest.mark.parametrize(("step", "count"), [(1, 2), (2, 0), (None, 0)])
async def test_a_mask_whose_edge_moves_in_every_turn_is_a_warning(step: int | None, count: int):
    knobs = Observations(mask_step=step)
    stage = replace(WORK, context=StageContext(observations=knobs))
    made = replace(PLAIN, observations=knobs, stages=(stage,))
    keys = ["context.observations.mask_step", "stages.work.context.observations.mask_step"]
    assert [finding.key for finding in await found(made, "mask-edge-every-turn")] == keys[:count]


TALK = Region("conversation", kind="sliding_window", max_tokens=4_000, max_items=None)


def staged(**second: Any) -> Blueprint:
    second.setdefault("system_prompt", "Go on.")
    return with_regions(TALK, stages=(WORK, Stage("next", **second)))


async def test_new_instructions_in_front_of_the_conversation_are_noted_with_their_price():
    finding = await one(staged(), "stage-change-recosts-conversation")
    assert (finding.severity, finding.key) == ("note", "stages.work")
    assert "up to 4,000 tokens of it are read anew" in finding.message


@pytest.mark.parametrize(
    "second",
    [{"prompt_as": "nudge"}, {"system_prompt": None}, {"context": StageContext(reset=("conversation",))}],
)
async def test_a_stage_that_leaves_the_conversation_alone_costs_nothing(second: dict[str, Any]):
    assert await found(staged(**second), "stage-change-recosts-conversation") == []


async def test_other_tools_cost_everything_behind_them():
    finding = await one(staged(available_tools=("read_file",)), "stage-changes-tools")
    assert (finding.severity, finding.key) == ("note", "stages.work")


async def test_an_edge_is_named_where_it_is_declared_and_a_way_back_is_none():
    one_stage = replace(WORK, transitions=(Edge("next"), Edge("work"), Edge("nowhere")))
    made = with_regions(TALK, stages=(one_stage, Stage("next", available_tools=("read_file",), transitions=())))
    assert (await one(made, "stage-changes-tools")).key == "stages.work.transitions.next"
