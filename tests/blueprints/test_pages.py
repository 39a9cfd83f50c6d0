"""The examples of the pages that the format comes from load, under either name of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from bits import DATA, HEAD, found_in

from shoal.blueprints import (
    Blueprint,
    CallerSeed,
    CommandSeed,
    FilesSeed,
    GlobSeed,
    LiteralSeed,
    Region,
    Route,
    ScriptSeed,
    ToolSeedCall,
    ToolsSeed,
    check,
    loads,
)

PAGES = sorted((DATA / "pages").glob("*.toml"))
NAMES = ("blueprint.toml", "agent.leviath")


def page(name: str, tmp_path: Path, *, file: str = "blueprint.toml") -> dict[str, Region]:
    return {region.name: region for region in whole(name, tmp_path, file=file).regions}


def whole(name: str, tmp_path: Path, *, file: str = "blueprint.toml") -> Blueprint:
    (tmp_path / "context_hooks").mkdir(exist_ok=True)
    (tmp_path / "context_hooks" / "brain.py").touch()
    return loads(HEAD + (DATA / "pages" / f"{name}.toml").read_text(), file=file, folder=tmp_path)


@pytest.mark.parametrize("file", NAMES)
@pytest.mark.parametrize("path", [page for page in PAGES if page.stem != "custom"], ids=lambda path: path.stem)
def test_each_example_loads(path: Path, file: str, tmp_path: Path) -> None:
    assert isinstance(whole(path.stem, tmp_path, file=file), Blueprint)


@pytest.mark.parametrize("file", NAMES)
def test_the_example_of_a_region_in_a_script_of_another_language_fails_for_that_alone(file: str) -> None:
    found = found_in((DATA / "pages" / "custom.toml").read_text(), file=file)
    assert [(one.id, one.severity, one.key) for one in found] == [
        ("script-language", "error", "context.regions.brain.script")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_the_complete_example_loads_from_a_folder(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text((DATA / "changelog_writer.toml").read_text())
    blueprint, found = check(tmp_path)
    assert blueprint is not None
    assert {one.severity for one in found} == {"warning"}
    assert [stage.name for stage in blueprint.stages] == ["collect", "recover", "write"]


def test_shares_become_numbers_up_to_one(tmp_path: Path) -> None:
    regions = page("shares", tmp_path)
    assert [region.budget for region in regions.values()] == [0.12, 0.2, 0.33, 0.15]


def test_every_form_of_a_seed_is_read(tmp_path: Path) -> None:
    seeds = {name: region.seed for name, region in page("seeds", tmp_path).items()}
    assert seeds == {
        "task": CallerSeed("task"),
        "standards": CallerSeed("standards"),
        "readme": FilesSeed(("README.md",)),
        "layout": GlobSeed("src/**/*.rs"),
        "rules": LiteralSeed("Generated files stay as they are."),
        "env": CommandSeed("git log --oneline -20"),
        "clock": ToolsSeed((ToolSeedCall("current_time"),)),
        "machine": ToolsSeed((ToolSeedCall("current_time"), ToolSeedCall("system_info"))),
        "computed": ScriptSeed("blueprint:seeds/plan.rhai"),
        "inherited": CallerSeed("brief"),
        "named": CallerSeed("outline"),
    }


def test_tool_calls_of_a_seed_may_have_arguments(tmp_path: Path) -> None:
    seed = page("tool_seeds", tmp_path)["toolchain"].seed
    assert seed == ToolsSeed((ToolSeedCall("which_command", {"command": "git"}), ToolSeedCall("locale_info")))


def test_a_seed_may_be_refreshed_on_each_stage(tmp_path: Path) -> None:
    seed = page("refresh", tmp_path)["environment"].seed
    assert seed == ToolsSeed((ToolSeedCall("current_time"),), "each_stage")


def test_a_rule_of_routing_is_a_name_or_a_table(tmp_path: Path) -> None:
    routing = whole("routing", tmp_path).stage("explore").tool_routing
    assert routing is not None
    assert dict(routing.overrides) == {
        "read_file": Route("codebase", 20_000),
        "grep": Route("scratch"),
        "list_dir": Route(None, 500),
    }


def test_parts_of_replies_are_routed_by_mime_pattern(tmp_path: Path) -> None:
    blueprint = whole("produced_parts", tmp_path)
    assert dict(blueprint.stage("draw").output_routing) == {"image/*": "artwork", "application/pdf": "handouts"}
    assert blueprint.stage("describe").context.reset == ("conversation",)


def test_a_gate_may_stand_over_two_lines_of_an_inline_table(tmp_path: Path) -> None:
    (edge,) = whole("checklist_and_gate", tmp_path).stage("implement").transitions or ()
    assert edge.gate is not None
    assert (edge.gate.require_no_open_items, edge.gate.message) == ("todos", "Close the open items, or drop them.")


def test_a_custom_region_may_say_persistent_for_pinned(tmp_path: Path) -> None:
    regions = page("custom_pinned", tmp_path)
    assert (regions["brain"].pinned, regions["brain"].script) == (False, "context_hooks/brain.py")
