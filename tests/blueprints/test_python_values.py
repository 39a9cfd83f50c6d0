"""A blueprint that is built in Python is held to the same rules as a file, and to what a file can hold."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.blueprints import (
    OBSERVATION_PROFILES,
    Blueprint,
    BlueprintTransform,
    Budget,
    CallerSeed,
    Edge,
    FanOut,
    FilesSeed,
    Finding,
    Gate,
    GlobSeed,
    InteractionPoint,
    Lanes,
    LaneSettings,
    LiteralSeed,
    ModelChoice,
    ModelSettings,
    Observations,
    Region,
    Route,
    ScriptSeed,
    Stage,
    StageContext,
    ToolRouting,
    TransformMapping,
    can_write,
    refuse_unusable,
    resolve_observations,
    stage_tools,
    tool_name,
    validate,
)
from shoal.blueprints._report import key_path, path_of
from shoal.errors import BlueprintInvalid

STAGE = Stage("s", model=ModelSettings((ModelChoice("p", "m"),)), max_iterations=3)


def blueprint(*stages: Stage, **fields: Any) -> Blueprint:
    return Blueprint("trial", stages or (STAGE,), **fields)


def errors(made: Blueprint) -> list[tuple[str, str | None]]:
    return [(one.id, one.key) for one in validate(made) if one.severity == "error"]


def test_a_good_blueprint_has_no_finding() -> None:
    assert validate(blueprint()) == ()


def test_warnings_and_notes_are_given_too() -> None:
    found = validate(blueprint(dataclasses.replace(STAGE, max_iterations=None)))
    assert [(one.id, one.severity, one.file, one.line) for one in found] == [
        ("stage-missing-max-iterations", "warning", None, None)
    ]


@pytest.mark.parametrize(
    ("made", "id_", "key"),
    [
        (blueprint(regions=(Region("r", budget=35),)), "bad-value", "context.regions.r.budget"),
        (blueprint(regions=(Region("r", budget=0.0),)), "bad-value", "context.regions.r.budget"),
        (blueprint(regions=(Region("r", budget=float("nan")),)), "wrong-type", "context.regions.r.budget"),
        (blueprint(regions=(Region("r", budget="35%"),)), "not-in-a-file", "regions.r.budget"),
        (blueprint(regions=(Region("r", max_tokens=-1),)), "bad-value", "context.regions.r.max_tokens"),
        (blueprint(regions=(Region("r", max_tokens=5.0),)), "wrong-type", "context.regions.r.max_tokens"),
        (blueprint(regions=(Region("r", "pined"),)), "bad-value", "context.regions.r.kind"),
        (blueprint(regions=(Region("r", seed="task"),)), "not-in-a-file", "regions.r.seed"),
        (blueprint(regions=(Region("r", seed=5),)), "region-seed-not-understood", "context.regions.r.seed"),
        (blueprint(regions=(Region("r", accepts=["text/plain"]),)), "not-in-a-file", "regions.r.accepts"),
        (blueprint(regions=("r",)), "wrong-type", "context.regions.0"),
        (blueprint(regions="r"), "wrong-type", "context.regions"),
        (blueprint(Stage(5)), "wrong-type", "stages"),
        (
            blueprint(dataclasses.replace(STAGE, tool_routing=ToolRouting(overrides={"grep": "task"}))),
            "not-in-a-file",
            "stages.s.tool_routing.overrides.grep",
        ),
        (blueprint(dataclasses.replace(STAGE, model="p:m")), "not-in-a-file", "stages.s.model"),
        (blueprint(dataclasses.replace(STAGE, hooks={1: "x.py"})), "wrong-type", "stages.s.hooks"),
        (blueprint(dataclasses.replace(STAGE, fan_out=FanOut())), "fan-out-worker", "stages.s.mode"),
        (blueprint(dataclasses.replace(STAGE, mode="fan_out")), "fan-out-worker", "stages.s.mode"),
        (blueprint(STAGE, STAGE), "duplicate-stage", "stages.s"),
        (blueprint(regions=(Region("r"), Region("r"))), "duplicate-region", "context.regions.r"),
        (blueprint(dataclasses.replace(STAGE, name=" s")), "bad-value", 'stages." s"'),
        (blueprint(budget=Budget(max_cost_usd=0.1)), "not-in-a-file", "budget.max_cost_usd"),
        (blueprint(budget=Budget(max_cost_usd=Decimal("NaN"))), "bad-value", "budget.max_cost_usd"),
        (blueprint(budget=Budget(max_cost_usd=Decimal("1e99"))), "bad-value", "budget.max_cost_usd"),
        (blueprint(lanes=Lanes(refresh=LaneSettings(max_tokens=5))), "not-in-a-file", "lanes.refresh.max_tokens"),
        (
            blueprint(model=ModelSettings(parameters={"temperature": 1.0})),
            "not-in-a-file",
            "model.temperature",
        ),
        (blueprint(model=ModelSettings(parameters={"x": None})), "wrong-type", "defaults.model.parameters.x"),
        (blueprint(model=ModelSettings(parameters={"x": {1: 2}})), "wrong-type", "defaults.model.parameters.x"),
        (blueprint(model=ModelSettings(parameters={"x": ("a",)})), "wrong-type", "defaults.model.parameters.x"),
        (blueprint(model=ModelSettings(parameters={"x": "\ud800"})), "bad-value", "defaults.model.parameters.x"),
        (blueprint(model=ModelSettings(parameters={"\ud800": 1})), "bad-value", "defaults.model.parameters"),
        (blueprint(description="\ud800"), "bad-value", "agent.description"),
        (blueprint(tool_permissions={"\ud800": "ask"}), "bad-value", "tool_permissions"),
    ],
)
def test_a_value_that_no_file_could_hold_is_an_error(made: Blueprint, id_: str, key: str) -> None:
    assert errors(made) == [(id_, key)]


def test_two_edges_to_one_target_are_an_error() -> None:
    edges = (Edge("t"), Edge("t", "error"))
    made = blueprint(dataclasses.replace(STAGE, transitions=edges), dataclasses.replace(STAGE, name="t"))
    assert errors(made) == [("duplicate-edge", "stages.s.transitions.t")]


@pytest.mark.parametrize("seed", [FilesSeed(("blueprint:a",)), GlobSeed("blueprint:*"), ScriptSeed("blueprint:a.py")])
def test_an_own_file_needs_a_folder(seed: FilesSeed | GlobSeed | ScriptSeed, tmp_path: Path) -> None:
    regions = (Region("r", seed=seed),)
    assert [id_ for id_, _ in errors(blueprint(regions=regions))] == ["path-without-folder"]
    assert errors(blueprint(regions=regions, folder=tmp_path)) == []


def test_an_own_file_stays_in_its_folder(tmp_path: Path) -> None:
    regions = (Region("r", seed=FilesSeed(("blueprint:a/../b", "blueprint:a/../../b", "blueprint:/etc/x"))),)
    assert errors(blueprint(regions=regions, folder=tmp_path)) == [
        ("path-outside-folder", "context.regions.r.seed.files[1]"),
        ("path-outside-folder", "context.regions.r.seed.files[2]"),
    ]


def test_a_region_named_task_takes_the_task_in_python_too() -> None:
    assert Region("task").seed == CallerSeed("task")
    assert Region("task", seed=LiteralSeed("x")).seed == LiteralSeed("x")
    assert Region("tasks").seed is None


def test_what_a_required_region_needs_is_seen_through_every_layout() -> None:
    own = dataclasses.replace(STAGE.context, regions=(Region("r", "checklist"),))
    writer = dataclasses.replace(STAGE, name="w", context=own, available_tools=("todo_add",))
    reader = dataclasses.replace(
        STAGE, transitions=(Edge("w"),), context=dataclasses.replace(own, regions=(Region("q"),))
    )
    made = blueprint(reader, writer, regions=(Region("r", "checklist", required=True),))
    assert [one.id for one in validate(made)] == []


# --- what is shared with the runtime


def test_an_alias_stands_for_its_tool() -> None:
    assert (tool_name("bash"), tool_name("shell"), tool_name("grep")) == ("shell", "shell", "grep")


def test_the_tools_of_a_stage_have_their_own_names_and_what_its_mode_implies() -> None:
    assert stage_tools(Stage("s", available_tools=("bash", "read_file", "shell"))) == ("shell", "read_file")
    assert stage_tools(Stage("s", mode="output", available_tools=("read_file",))) == ("read_file", "submit_output")
    assert stage_tools(Stage("s", mode="fan_out")) == ("fan_out",)


@pytest.mark.parametrize(
    ("stage", "kind", "can"),
    [
        (Stage("s", available_tools=("context_append",)), "pinned", True),
        (Stage("s", available_tools=("context_append",)), "checklist", False),
        (Stage("s", available_tools=("todo_add",)), "checklist", True),
        (Stage("s", available_tools=("todo_add",)), "pinned", False),
        (Stage("s", available_tools=("todo_done", "context_read", "context_delete")), "pinned", False),
        (Stage("s", tool_routing=ToolRouting("r")), "checklist", True),
        (Stage("s", tool_routing=ToolRouting(overrides={"grep": Route("r")})), "pinned", True),
        (Stage("s", tool_routing=ToolRouting(overrides={"grep": Route(None, 5)})), "pinned", False),
        (Stage("s", output_routing={"image/*": "r"}), "pinned", True),
        (Stage("s", mode="fan_out", fan_out=FanOut(results_region="r")), "pinned", True),
    ],
)
def test_a_stage_can_write_what_a_tool_of_its_takes_or_what_it_routes_into(stage: Stage, kind: Any, can: bool) -> None:
    assert can_write(stage, Region("r", kind)) is can


def test_knobs_come_from_the_narrowest_layer_that_writes_them_and_then_from_the_profile() -> None:
    wide = Observations("chat", observation_window=5, mask_step=7)
    narrow = Observations(mask_step=1, forget_after_turns=0)
    assert resolve_observations(wide, None, narrow) == Observations("chat", 5, 40_000, 80_000, 2, 0, 1)


def test_without_layers_the_knobs_are_those_of_coding() -> None:
    assert resolve_observations() == resolve_observations(None) == OBSERVATION_PROFILES["coding"]


def test_every_profile_sets_every_knob_in_an_order_that_holds() -> None:
    for name, profile in OBSERVATION_PROFILES.items():
        assert resolve_observations(Observations(name)) == profile  # type: ignore[arg-type]
        assert None not in dataclasses.astuple(profile)
        assert errors(blueprint(observations=profile)) == []


# --- findings


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",))) | st.integers(0, 99), max_size=5))
def test_the_key_of_a_finding_leads_back_to_its_path(path: list[str | int]) -> None:
    assert path_of(key_path(tuple(path))) == tuple(path)


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        (Finding("x", "error", "It broke"), "error: It broke [x]"),
        (Finding("x", "note", "It is", key="a.b"), "note: It is (a.b) [x]"),
        (Finding("x", "warning", "It may", "f.toml", 3, 7, "a"), "f.toml:3:7: warning: It may (a) [x]"),
    ],
)
def test_a_finding_reads_as_one_line(finding: Finding, text: str) -> None:
    assert str(finding) == text


NOTES = Region("notes", kind="pinned", max_tokens=100)
UNRESOLVED = [
    (Blueprint("b", (Stage("a", transitions=(Edge("nowhere"),)),)), "unknown-stage"),
    (Blueprint("b", (Stage("a"),), entry_stage="nowhere"), "unknown-stage"),
    (
        Blueprint("b", (Stage("a", transitions=(Edge("b", gate=Gate(require_region_updated="nowhere")),)), Stage("b"))),
        "unknown-region",
    ),
    (Blueprint("b", (Stage("a"),), regions=(NOTES, NOTES)), "duplicate-region"),
    (Blueprint("b", (Stage("a"), Stage("a"))), "duplicate-stage"),
    (Blueprint("b", (Stage("a"),), regions=(Region("own", kind="custom", max_tokens=9),)), "custom-without-script"),
    (Blueprint("b", (Stage("a", mode="fan_out"),)), "fan-out-worker"),
]


@pytest.mark.parametrize(("made", "id_"), UNRESOLVED, ids=[f"{n}-{id_}" for n, (_, id_) in enumerate(UNRESOLVED)])
def test_a_blueprint_with_a_name_that_stands_for_nothing_is_refused(made: Blueprint, id_: str) -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        refuse_unusable(made)
    assert id_ in [finding.id for finding in refused.value.findings]


def passes(made: Blueprint) -> bool:
    try:
        refuse_unusable(made)
    except BlueprintInvalid:
        return False
    return True


def test_what_is_only_of_no_effect_or_for_children_is_not_refused_where_a_run_begins() -> None:
    mapping = BlueprintTransform("b", "c", (TransformMapping("nowhere", "elsewhere"),))
    stage = Stage("a", system_prompt="Do it.", required_tools=("none",), max_revisits=3)
    made = Blueprint("b", (stage,), regions=(NOTES,), transforms=(mapping,))
    assert [found.id for found in validate(made)] == ["unknown-region", "required-tool-missing"]
    assert passes(made)


MISFITS: list[tuple[Any, str]] = [
    (
        {"stages": (Stage("a", interaction_points=(InteractionPoint("go", "confirm", "Go?"),)),)},  # type: ignore[arg-type]
        "`stages.a.interaction_points.go.required` is 'Go?'; give `True` or `False`",
    ),
    ({"stages": (Stage("a", max_iterations="7"),)}, "`stages.a.max_iterations` is '7'; give a whole number"),  # type: ignore[arg-type]
    ({"stages": (Stage("a", seeds={"x": 3}),)}, "`stages.a.seeds.x` is 3; give text"),  # type: ignore[dict-item]
    ({"stages": (Stage("a", available_tools="shell"),)}, "`stages.a.available_tools` is 'shell'; give a tuple"),  # type: ignore[arg-type]
    ({"stages": (Stage("a", available_tools=({"shell"},)),)}, "`stages.a.available_tools[0]` is {'shell'}, which no"),  # type: ignore[arg-type]
    ({"stages": (Stage("a", transitions=("b",)),)}, "`stages.a.transitions[0]` is 'b'; give `Edge(…)`"),  # type: ignore[arg-type]
    ({"stages": (Stage("a", mode="fanout"),)}, "`stages.a.mode` is 'fanout' (did you mean `fan_out`?); write one of"),  # type: ignore[arg-type]
    ({"stages": (Stage("a", mode="x"),)}, "`stages.a.mode` is 'x'; write one of `autonomous`, `interactive`"),  # type: ignore[arg-type]
    ({"stages": ("a",)}, "`stages[0]` is 'a'; give `Stage(…)`"),
    ({"stages": Stage("a")}, "`stages` is {'name': 'a'"),
    ({"stages": (Stage("a"),), "regions": (Region("r", seed="x"),)}, "`regions.r.seed` is 'x'; give a seed, such as"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("fields", "said"), MISFITS)
def test_a_value_of_another_type_is_refused_with_its_place(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        refuse_unusable(Blueprint("b", **fields))
    assert str(refused.value).startswith(f"the blueprint 'b' cannot be used: {said}")


@pytest.mark.parametrize("budget", [20, 0, -0.5])
def test_a_share_that_is_none_is_refused(budget: float) -> None:
    region = Region("r", budget=budget)
    with pytest.raises(
        BlueprintInvalid, match=r"`regions\.r\.budget` is .*; give a share above 0 and at most 1, such as 0.2"
    ):
        refuse_unusable(Blueprint("b", (Stage("s"),), regions=(region,)))
    inside = Stage("s", context=StageContext(regions=(region,)))
    with pytest.raises(BlueprintInvalid, match=r"`stages\.s\.context\.regions\.r\.budget` is"):
        refuse_unusable(Blueprint("b", (inside,)))


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(BlueprintInvalid) as refused:
        refuse_unusable(Blueprint("b", ("x" * 5_000,)))  # type: ignore[arg-type]
    assert len(str(refused.value)) < 200


def test_a_blueprint_without_a_stage_is_refused() -> None:
    with pytest.raises(BlueprintInvalid, match=r"'b' has no stage; give it one, such as `Stage\('main'\)`"):
        refuse_unusable(Blueprint("b", ()))


def test_no_limit_may_be_written_as_0_as_in_a_file() -> None:
    stage = Stage("s", max_iterations=0, fan_out=FanOut(worker_stage="s", max_items=0))
    assert stage == Stage("s", fan_out=FanOut(worker_stage="s"))
    assert Region("c", kind="sliding_window", max_items=0).max_items is None
