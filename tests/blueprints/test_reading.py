"""What the keys of a file become."""

from __future__ import annotations

from decimal import Decimal

import pytest
from bits import blueprint_of, region_of

from shoal.blueprints import (
    CallerSeed,
    Edge,
    FanOut,
    FileTracking,
    LaneSettings,
    ModelChoice,
    ModelSettings,
    Observations,
    ScriptSeed,
    Stage,
    ToolSeedCall,
    ToolsSeed,
)


def model_of(text: str) -> ModelSettings | None:
    return blueprint_of(f"[stages.s]\n{text}").stages[0].model


def stage_of(text: str) -> Stage:
    return blueprint_of(f"[stages.s]\n{text}").stages[0]


def edge_of(text: str) -> Edge:
    (edge,) = stage_of(f"[stages.s.transitions.t]\n{text}\n[stages.t]").transitions or ()
    return edge


# --- the whole


def test_without_stages_there_is_one() -> None:
    assert blueprint_of("").stages == (Stage("main"),)


def test_without_a_name_it_is_unnamed() -> None:
    assert blueprint_of("").name == "trial"
    assert blueprint_of("").version == "0.1.0"


def test_stages_regions_and_edges_keep_the_order_of_the_file() -> None:
    blueprint = blueprint_of(
        "[context.regions]\nz = {}\na = {}\nm = {}\n"
        "[stages.s.transitions]\nz = {}\ntwo = {}\na = {}\n[stages.z]\n[stages.two]\n[stages.a]\n"
    )
    assert [region.name for region in blueprint.regions] == ["z", "a", "m"]
    assert [stage.name for stage in blueprint.stages] == ["s", "z", "two", "a"]
    assert [edge.target for edge in blueprint.stages[0].transitions or ()] == ["z", "two", "a"]


def test_the_entry_is_the_first_stage_unless_it_is_written() -> None:
    assert blueprint_of("[stages.a]\n[stages.b]").entry == "a"
    assert blueprint_of("agent.entry_stage = 'b'\n[stages.a]\n[stages.b]").entry == "b"


def test_a_stage_is_found_by_its_name() -> None:
    blueprint = blueprint_of("[stages.a]\n[stages.b]")
    assert blueprint.stage("b") is blueprint.stages[1]
    with pytest.raises(KeyError):
        blueprint.stage("c")


def test_grants_and_permissions_stand_in_tables_of_their_own() -> None:
    blueprint = blueprint_of(
        "tool_permissions.bash = 'deny'\nsafe_commands = { tools = ['write_file'], shell = ['make'] }\n"
        "read_paths.allow = ['~/notes', 'glob:/usr/share/*.txt', 'regex:^/etc/[a-z]+', '../x', './y']\n"
        "components.use = ['date']"
    )
    assert dict(blueprint.tool_permissions) == {"bash": "deny"}
    assert (blueprint.safe_tools, blueprint.safe_shell) == (("write_file",), ("make",))
    assert blueprint.read_paths == ("~/notes", "glob:/usr/share/*.txt", "regex:^/etc/[a-z]+", "../x", "./y")
    assert blueprint.components == ("date",)


@pytest.mark.parametrize("text", ["0.1", '"0.1"', "1e-1"])
def test_an_amount_is_exactly_what_was_written(text: str) -> None:
    assert blueprint_of(f"budget.max_cost_usd = {text}").budget.max_cost_usd == Decimal("0.1")


def test_an_amount_may_be_whole_or_nothing() -> None:
    assert blueprint_of("budget.max_cost_usd = 0").budget.max_cost_usd == 0


def test_a_table_without_keys_turns_tracking_on() -> None:
    assert blueprint_of("context.regions.files.kind = 'hash_map'").file_tracking is None
    assert (
        blueprint_of("context.regions.files.kind = 'hash_map'\n[context.file_tracking]").file_tracking == FileTracking()
    )


# --- models


@pytest.mark.parametrize(
    "text",
    [
        'model = "p:m"',
        'model = ["p:m"]',
        'model = [{ provider = "p", model = "m" }]',
        'model = { models = ["p:m"] }',
        'model = { models = [{ provider = "p", model = "m" }] }',
        'model = { provider = "p", model = "m" }',
    ],
)
def test_a_model_in_every_form_is_the_same(text: str) -> None:
    assert model_of(text) == ModelSettings((ModelChoice("p", "m"),))


def test_the_name_of_a_model_may_have_colons() -> None:
    assert model_of('model = "ollama:llama3:8b"') == ModelSettings((ModelChoice("ollama", "llama3:8b"),))


def test_a_provider_alone_means_its_default_model() -> None:
    assert model_of('model = { provider = "p" }') == ModelSettings((ModelChoice("p"),))
    assert model_of('model = [{ provider = "p" }]') == ModelSettings((ModelChoice("p"),))


def test_fallbacks_follow_the_first_candidate_in_order() -> None:
    settings = model_of('model = { provider = "p", model = "m", fallbacks = ["q:n", { provider = "r" }] }')
    assert settings == ModelSettings((ModelChoice("p", "m"), ModelChoice("q", "n"), ModelChoice("r")))


def test_what_has_a_field_is_lifted_out_of_the_parameters() -> None:
    settings = model_of(
        'model = { models = ["p:m"], allow_user_default = false, timeout_s = 30, '
        "parameters = { top_p = 0.9, temperature = 0, max_tokens = 500, thinking = { on = true } } }"
    )
    assert settings == ModelSettings(
        (ModelChoice("p", "m"),), False, 30.0, 500, 0.0, {"top_p": 0.9, "thinking": {"on": True}}
    )


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("parameters = { max_output_tokens = 9 }", "max_tokens", 9),
        ("request_timeout_secs = 900", "timeout_s", 900.0),
        ("timeout_s = 0.5", "timeout_s", 0.5),
    ],
)
def test_other_spellings_of_settings_are_read(text: str, field: str, value: object) -> None:
    assert getattr(model_of(f"[stages.s.model]\nmodels = ['p:m']\n{text}"), field) == value


def test_the_default_model_is_the_blueprints() -> None:
    assert blueprint_of('defaults.model = "p:m"').model == ModelSettings((ModelChoice("p", "m"),))


# --- lanes


def test_lanes_are_set_each_by_its_table() -> None:
    lanes = blueprint_of(
        "[lanes.compaction]\nmodel = 'p:m'\nmax_tokens = 9\ntimeout_s = 5\nretries = 0\ntemperature = 0.2\n"
        "prompt = 'Short.'\n"
        "[lanes.refresh]\ntimeout_s = 7"
    ).lanes
    assert lanes.compaction == LaneSettings(ModelChoice("p", "m"), 9, 5.0, 0, 0.2, "Short.")
    assert lanes.titling == LaneSettings()
    assert lanes.refresh == LaneSettings(timeout_s=7.0)


def test_the_compaction_table_is_the_compaction_lane() -> None:
    lanes = blueprint_of(
        "[compaction]\nprovider = 'p'\nmodel = 'm'\nsystem_prompt = 'Short.'\nmax_summary_tokens = 9\ntemperature = 0\n"
        "[lanes.titling]\nmax_tokens = 4"
    ).lanes
    assert lanes.compaction == LaneSettings(ModelChoice("p", "m"), 9, None, None, 0.0, "Short.")
    assert lanes.titling == LaneSettings(max_tokens=4)


def test_the_compaction_table_may_leave_the_model_out() -> None:
    assert blueprint_of("[compaction]\nprovider = 'p'").lanes.compaction.model == ModelChoice("p")
    assert blueprint_of("[compaction]\ntemperature = 1").lanes.compaction.model is None


# --- regions


def test_a_region_without_keys_has_the_defaults() -> None:
    region = region_of("[context.regions.r]")
    assert (region.kind, region.budget, region.max_tokens, region.volatility) == ("temporary", None, None, "rewritten")


def test_a_region_named_task_takes_the_callers_task() -> None:
    assert region_of("[context.regions.task]", "task").seed == CallerSeed("task")
    assert region_of("[context.regions.task]\nseed = { caller = 'brief' }", "task").seed == CallerSeed("brief")


@pytest.mark.parametrize("text", ["12.5%", "12.50%", "012.5%"])
def test_shares_may_have_a_fraction(text: str) -> None:
    assert region_of(f'[context.regions.r]\nbudget = "{text}"').budget == 0.125


def test_a_share_is_the_number_that_was_written() -> None:
    shares = [region_of(f'[context.regions.r]\nbudget = "{n / 10}%"').budget for n in range(1, 1001)]
    assert shares == [float(f"{n}e-3") for n in range(1, 1001)]


def test_no_limit_of_entries_is_written_as_nothing() -> None:
    assert region_of('[context.regions.r]\nkind = "sliding_window"\nmax_items = 0').max_items is None


def test_a_script_seed_may_be_refreshed() -> None:
    region = region_of("[context.regions.r]\nseed = { script = 'a.py', refresh = 'each_stage' }")
    assert region.seed == ScriptSeed("a.py", "each_stage")


def test_a_single_tool_of_a_seed_may_have_arguments() -> None:
    region = region_of("[context.regions.r]\nseed = { tool = { name = 'grep', args = { of = 'x' } } }")
    assert region.seed == ToolsSeed((ToolSeedCall("grep", {"of": "x"}),))


def test_a_caller_named_input_is_not_the_callers_value_under_the_regions_name() -> None:
    assert region_of("[context.regions.r]\nseed = { caller = 'input' }").seed == CallerSeed("input")
    assert region_of("[context.regions.r]\nseed = 'input'").seed == CallerSeed("r")


def test_under_observation_knobs_a_conversation_has_no_limit_unless_it_is_written() -> None:
    text = "[context.observations]\n[context.regions]\nconversation = { kind = 'sliding_window' }"
    assert region_of(text, "conversation").max_items is None
    assert region_of(text.replace("' }", "', max_items = 10 }"), "conversation").max_items == 10
    assert region_of(text.replace("[context.observations]", ""), "conversation").max_items == 10


def test_the_knobs_of_one_stage_reach_its_own_layout_and_the_shared_one() -> None:
    blueprint = blueprint_of(
        "[context.regions]\nconversation = { kind = 'sliding_window' }\n"
        "[stages.a.context.regions]\nconversation = { kind = 'sliding_window' }\n"
        "[stages.b.context.regions]\nconversation = { kind = 'sliding_window' }\n"
        "[stages.b.context.observations]\nprofile = 'chat'\n[stages.c.context.observations]"
    )
    layouts = [blueprint.regions, *(stage.context.regions for stage in blueprint.stages)]
    assert [layout and layout[0].max_items for layout in layouts] == [None, 10, None, None]
    assert blueprint.stage("b").context.observations == Observations(profile="chat")


# --- stages


def test_an_absent_table_of_edges_differs_from_an_empty_one() -> None:
    assert stage_of("").transitions is None
    assert stage_of("transitions = {}").transitions == ()


def test_an_absent_policy_differs_from_an_empty_one() -> None:
    assert stage_of("").offline is None
    assert stage_of("offline.policy = []").offline == ()


def test_an_absent_layout_differs_from_an_empty_one() -> None:
    assert stage_of("").context.regions is None
    assert stage_of("context.regions = {}").context.regions == ()


def test_no_limit_of_iterations_is_written_as_nothing() -> None:
    assert stage_of("max_iterations = 0").max_iterations is None


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("", (True, True)),
        ("require_output = false\navailable_tools = []", (False, True)),
        ("allow_complete = false", (True, False)),
    ],
)
def test_an_output_stage_owes_an_output_and_may_end_the_run_unless_written(text: str, flags: tuple[bool, bool]) -> None:
    stage = stage_of(f"mode = 'output'\n{text}")
    assert (stage.require_output, stage.allow_complete) == flags


def test_other_modes_imply_no_flags() -> None:
    assert (stage_of("mode = 'interactive'").require_output, stage_of("").allow_complete) == (False, False)


def test_the_keys_of_a_fan_out_stand_among_the_stages_own() -> None:
    stage = stage_of(
        "mode = 'fan_out'\nworker_stage = 'w'\nmax_items = 0\nmax_workers = 0\n[stages.w]\nallow_as_worker = true"
    )
    assert stage.fan_out == FanOut(worker_stage="w", max_items=None, max_workers=0)
    assert stage_of("mode = 'fan_out'\nworker_query = 'x'").fan_out == FanOut(worker_query="x")


def test_a_hint_makes_the_model_choose() -> None:
    assert edge_of("hint = 'Done'").condition == "llm_choice"
    assert edge_of("hint = 'Done'\ncondition = 'always'").condition == "always"
    assert edge_of("").condition == "always"


def test_summarize_is_another_word_for_the_transform_compact() -> None:
    assert edge_of("transform = 'summarize'").transform == "compact"


def test_a_threshold_in_seconds_is_kept_in_minutes() -> None:
    assert edge_of("condition = 'stuck'\nstuck_after_s = 90").stuck_after_minutes == 1.5
    assert edge_of("condition = 'stuck'\nstuck_after_minutes = 2").stuck_after_minutes == 2.0


def test_choices_and_followups_are_options_and_directives() -> None:
    (point,) = stage_of(
        "mode = 'interactive_points'\n[[stages.s.interaction_points]]\nname = 'a'\nprompt = '?'\n"
        "style = 'multiple_choice'\nchoices = ['yes', 'no']\nfollowups = { no = 'Again.' }"
    ).interaction_points
    assert (point.options, dict(point.directives)) == (("yes", "no"), {"no": "Again."})


def test_free_tables_keep_the_order_of_the_file() -> None:
    output = stage_of("output.schema = { type = 'object', properties = { z = {}, a = {} }, required = ['z'] }").output
    assert output
    assert output.schema
    assert list(output.schema) == ["type", "properties", "required"]
    assert list(output.schema["properties"]) == ["z", "a"]


def test_a_policy_may_name_earlier_steps_regions_and_placeholders() -> None:
    policy = stage_of(
        "available_tools = ['list_dir', 'read_file', 'submit_output']\n[stages.s.offline]\npolicy = [\n"
        "{ call = 'list_dir' },\n"
        "{ call = 'read_file', for_each = 'result(1)', args = { path = '{item}', n = 1, of = ['{task}', "
        "{ x = '{{}}' }] } },\n"
        "{ call = 'read_file', for_each = 'region(task)', args = { path = '{ result(2) }' } },\n"
        "{ extract = 'task', sentences = 2, into = 'submit_output' },\n"
        "{ say = '{result(4)} {extract(conversation, 3)} {region(task)}' },\n"
        "{ route = 'overlap' },\n{ route = 't' },\n]\n[stages.t]"
    ).offline
    assert policy is not None
    assert len(policy) == 7
