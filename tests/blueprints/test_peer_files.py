"""What an `agent.leviath` may hold that its own runtime lets pass, and what it may not hold either."""

from __future__ import annotations

from pathlib import Path

import pytest
from bits import HEAD, blueprint_of, found_in, region_of

from shoal.blueprints import CallerSeed, Finding, GlobSeed, LaneSettings, ModelChoice, ModelSettings, check

PEER = "agent.leviath"


def warnings_in(text: str, tmp_path: Path) -> list[tuple[str, str | None]]:
    """Return ids and keys of the warnings of a file that loads, those about silent defaults excluded."""
    (tmp_path / PEER).write_text(HEAD + text)
    blueprint, found = check(tmp_path)
    assert blueprint is not None, found
    return [(one.id, one.key) for one in found if one.severity == "warning" and not one.id.startswith("stage-missing")]


@pytest.mark.parametrize(
    ("text", "id_", "key"),
    [
        ("[made_up]", "unknown-key", "made_up"),
        ("agent.colour = 'red'", "unknown-key", "agent.colour"),
        ("[context.regions.r]\nsize = 3", "unknown-key", "context.regions.r.size"),
        ("[context.extra]", "unknown-key", "context.extra"),
        ("[safe_commands]\nextra = 1", "unknown-key", "safe_commands.extra"),
        ("[read_paths]\nextra = 1", "unknown-key", "read_paths.extra"),
        ("agent.nudge.extra = 1", "unknown-key", "agent.nudge.extra"),
        ("[stages.s.output]\nextra = 1", "unknown-key", "stages.s.output.extra"),
        ("[stages.s.model]\nmodels = ['p:m']\nextra = 1", "unknown-key", "stages.s.model.extra"),
        ("[stages.s]\nmodel = [{ provider = 'p', extra = 1 }]", "unknown-key", "stages.s.model[0].extra"),
        (
            (
                "[[transforms]]\nfrom_blueprint = 'trial'\nto_blueprint = 'b'\n"
                "mappings = [{ from_region = 'task', to_region = 'x', transform = 'odd' }]"
            ),
            "bad-value",
            "transforms[0].mappings[0].transform",
        ),
        ("[model]\nprovider = 'x'", "agent-model-block-ignored", "model"),
        ("[security]\ntaint_tracking = true", "key-not-supported", "security"),
        ("[[mcp_servers]]\nname = 'x'", "key-not-supported", "mcp_servers"),
        ("[stages.s.sandbox]\nkind = 'none'", "key-not-supported", "stages.s.sandbox"),
        ("[context.regions.r]\nseed = { caller_input = 'x' }", "region-seed-not-understood", "context.regions.r.seed"),
        ("[context.regions.r]\nseed = { files = 3 }", "wrong-type", "context.regions.r.seed.files"),
        ("[context.regions.r]\nkind = 'pinned'\nmax_items = 3", "key-without-effect", "context.regions.r.max_items"),
        ("[stages.s]\nmax_workers = 3", "key-without-effect", "stages.s.max_workers"),
        ("[context.file_tracking]", "file-tracking-region", "context.file_tracking.region"),
        (
            "[stages.s.model]\nmodels = [{ provider = 'p' }]\nrequest_timeout_secs = -1",
            "bad-value",
            "stages.s.model.request_timeout_secs",
        ),
        (
            "[stages.s.transitions.t.gate]\nrequire_regions = ['task']\nmax_attempts = -1\n[stages.t]",
            "bad-value",
            "stages.s.transitions.t.gate.max_attempts",
        ),
    ],
)
def test_it_is_a_warning_with_its_place(text: str, id_: str, key: str, tmp_path: Path) -> None:
    assert (id_, key) in warnings_in(text, tmp_path)


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("[stages.s]\nmax_iteration = 3", "unknown-key"),
        ("[stages.s.context]\nrest = []", "unknown-key"),
        ("[stages.s.tool_routing]\nregion = 'task'", "unknown-key"),
        ("[stages.s.transitions.t]\nhints = 'x'\n[stages.t]", "unknown-key"),
        ("[stages.s.hooks]\non_enter = 'a.rhai'", "unknown-key"),
        ("[context.regions.r]\nkind = 'pined'", "bad-value"),
        ("[context.regions.r]\nkind = 'custom'\nscript = 'a.rhai'", "script-language"),
        ("[stages.s.transitions.nowhere]", "unknown-stage"),
    ],
)
def test_what_its_own_runtime_refuses_is_refused(text: str, id_: str) -> None:
    assert [one.id for one in found_in(text, file=PEER) if one.severity == "error"] == [id_]


def test_a_seed_that_is_not_understood_leaves_the_region_empty() -> None:
    assert region_of("[context.regions.r]\nseed = { caller_input = 'x' }", file=PEER).seed is None


def test_of_two_forms_of_a_seed_the_first_in_its_order_counts() -> None:
    assert region_of("[context.regions.r]\nseed = { caller = 'x', glob = '*' }", file=PEER).seed == GlobSeed("*")


def test_a_threshold_of_nothing_counts_as_not_written() -> None:
    text = (
        "[stages.s.transitions.t]\ncondition = 'stuck'\nstuck_after_iterations = 4\nstuck_after_tool_calls = 0\n"
        "[stages.t]"
    )
    (edge,) = blueprint_of(text, file=PEER).stages[0].transitions or ()
    assert (edge.stuck_after_iterations, edge.stuck_after_tool_calls) == (4, None)


def test_a_candidate_without_provider_is_its_default_one() -> None:
    blueprint = blueprint_of(
        "[compaction]\nmodel = 'n'\n[stages.s]\nmodel = { models = [{ model = 'm' }] }\n[stages.t]\n"
        "model = { model = 'm' }",
        file=PEER,
    )
    expected = ModelSettings((ModelChoice("anthropic", "m"),))
    assert [stage.model for stage in blueprint.stages] == [expected, expected]
    assert blueprint.lanes.compaction == LaneSettings(ModelChoice("anthropic", "n"))


def test_routing_without_a_default_sends_results_to_its_default_region() -> None:
    text = "[stages.s.tool_routing.overrides]\nread_file = 'task'"
    routing = [blueprint_of(text, file=file).stages[0].tool_routing for file in (PEER, "blueprint.toml")]
    assert [one and one.default_region for one in routing] == ["tool_results", None]


def test_a_script_of_another_language_is_kept_and_reported(tmp_path: Path) -> None:
    text = (
        "agent.output.validator = 'v.rhai'\n[context.regions.r]\nseed = { rhai = 'plan.rhai' }\n"
        "[context.regions.q]\nseed = { rhai = 'plan.py' }\n[stages.s]\nrequire_output = true\n"
        "available_tools = ['submit_output']\noutput.validator = 'w.rhai'\n[stages.s.hooks]\non_error = 'h.rhai'"
    )
    reported = [key for id_, key in warnings_in(text, tmp_path) if id_ == "script-language"]
    assert reported == [
        "agent.output.validator",
        "context.regions.r.seed.rhai",
        "context.regions.q.seed.rhai",
        "stages.s.output.validator",
        "stages.s.hooks.on_error",
    ]


def test_its_task_region_takes_the_task_even_where_a_seed_is_not_understood() -> None:
    assert region_of("[context.regions.task]\nseed = 5", "task", file=PEER).seed == CallerSeed("task")


def test_the_same_mistake_is_an_error_under_the_own_name() -> None:
    (finding,) = found_in("[context.regions.r]\nsize = 3")
    assert isinstance(finding, Finding)
    assert finding.severity == "error"
