"""`shoal validate`: everything at once, with a status for scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_shell import BLUEPRINT, Shell

BAD = """
[agent]
name = "bad"
entry_stage = "nowhere"

[context.regions]
notes = { kind = "pined", max_tokens = 10 }
other = { kind = "pinned", max_tokens = -1 }

[stages.work]
mode = "autonomus"
max_iteratons = 3
"""
CLEAN = """
[agent]
name = "clean"

[defaults]
model = "offline:offline"

[context.regions]
task = { kind = "pinned", max_tokens = 500, seed = "task_input", volatility = "stable" }
stage_instructions = { kind = "pinned", budget = "3%" }

[stages.work]
mode = "autonomous"
max_iterations = 5
system_prompt = "Work."
"""


@pytest.fixture
def file(shell: Shell) -> Path:
    return Path("made.toml")


def test_a_clean_blueprint_passes_even_strictly(shell: Shell, file: Path):
    file.write_text(CLEAN)
    said = shell("validate", "./made.toml", "--deny-warnings")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "./made.toml: nothing to complain about"


def test_the_order_of_models_under_ones_own_default_is_noted(shell: Shell, file: Path):
    settings = Path("../config/shoal/shoal.toml")
    settings.parent.mkdir(parents=True)
    settings.write_text('[providers]\ndefault_model = "offline:b"\n')
    file.write_text(CLEAN.replace('"offline:offline"', '["anthropic:a", "offline:b"]'))
    assert "your `default_model` leads: `offline:b`, `anthropic:a`" in shell("validate", "./made.toml").out


def test_functions_that_code_gives_are_named(shell: Shell, file: Path):
    file.write_text(f'{CLEAN}available_tools = ["lookup"]\n')
    said = shell("validate", "./made.toml")
    assert (said.status, "or give it in code and say so with `--tool lookup`" in said.out) == (2, True)
    assert shell("validate", "./made.toml", "--tool", "lookup", "--deny-warnings").status == 0


def test_the_budgets_of_regions_are_shown_on_every_model(shell: Shell, file: Path):
    file.write_text(CLEAN)
    head, task, *_ = shell("validate", "./made.toml").out.splitlines()
    assert head.split()[:2] == ["region", "offline:offline"]
    assert task.split()[:2] == ["task", "500"]
    assert shell("validate", "./made.toml", "--json").json["budgets"]["task"]["offline:offline"] == 500


def test_a_script_that_cannot_be_read_is_an_error_with_its_place(shell: Shell, file: Path):
    regions = 'stage_instructions = { kind = "pinned", budget = "3%" }\nbrain = { kind = "custom", script = "b.py" }'
    file.write_text(CLEAN.replace('stage_instructions = { kind = "pinned", budget = "3%" }', regions))
    Path("b.py").write_text("def render(ctx:\n    pass\n")
    said = shell("validate", "./made.toml")
    assert said.status == 2
    assert "b.py:2:5: error: `blueprint:b.py`, line 2 cannot be read" in said.out


def test_a_tool_that_nobody_has_is_an_error_at_its_place(shell: Shell, file: Path):
    file.write_text(CLEAN + 'available_tools = ["read_fil"]\n')
    said = shell("validate", "./made.toml")
    assert said.status == 2
    assert "made.toml:16:20: error: nobody has a tool `read_fil`" in said.out


def test_warnings_fail_where_they_are_denied(shell: Shell, file: Path):
    file.write_text(BLUEPRINT)
    assert shell("validate", "./made.toml").status == 0
    said = shell("validate", "./made.toml", "--deny-warnings")
    assert said.status == 1
    assert "warning: " in said.out


def test_five_mistakes_get_five_findings_with_their_places(shell: Shell, file: Path):
    file.write_text(BAD)
    said = shell("validate", "./made.toml", "--json")
    assert said.status == 2
    found = said.json["findings"]
    assert [set(finding) for finding in found] == [{"id", "severity", "message", "file", "line", "column", "key"}] * 5
    assert [finding["line"] for finding in found] == [4, 7, 8, 11, 12]


def test_errors_fail_with_a_status_of_their_own(shell: Shell, file: Path):
    file.write_text(BAD)
    said = shell("validate", "./made.toml", "--deny-warnings")
    assert said.status == 2
    assert said.out.splitlines()[-1] == "./made.toml: 5 errors"
    assert "made.toml:7:18: error: " in said.out


def test_a_blueprint_that_is_not_there_is_a_finding(shell: Shell):
    said = shell("validate", "digets", "--json")
    assert (said.status, said.json["findings"][0]["id"]) == (2, "blueprint-missing")


def test_workers_inside_the_folder_are_checked_too(shell: Shell):
    Path("lead", "reader").mkdir(parents=True)
    Path("lead", "reader", "blueprint.toml").write_text(BAD)
    Path("lead", "blueprint.toml").write_text(
        CLEAN
        + """
[stages.split]
mode = "fan_out"
worker_agent = "blueprint:reader"
merge_stage = "merge"
results_region = "conversation"
system_prompt = "Split."

[stages.merge]
system_prompt = "Merge."
"""
    )
    found = shell("validate", "./lead", "--json").json["findings"]
    assert sum(finding["severity"] == "error" for finding in found) == 5
    assert {Path(finding["file"]).parent.name for finding in found if finding["severity"] == "error"} == {"reader"}


def test_a_worker_that_is_not_there_is_a_finding(shell: Shell):
    Path("lead").mkdir()
    Path("lead", "blueprint.toml").write_text(
        CLEAN.replace('mode = "autonomous"', 'mode = "fan_out"\nworker_agent = "blueprint:nobody"')
        + 'merge_stage = "merge"\n[stages.merge]\nsystem_prompt = "Merge."\n'
    )
    said = shell("validate", "./lead", "--json")
    assert (said.status, [f["id"] for f in said.json["findings"] if f["severity"] == "error"]) == (
        2,
        ["blueprint-missing"],
    )


def test_a_name_of_the_library_is_checked(shell: Shell):
    assert shell("validate", "digest").status == 0
