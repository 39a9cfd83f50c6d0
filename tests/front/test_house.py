"""The house: what nobody would notice until it is too late."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import grimp
import pytest

HOUSE = Path(__file__).parents[2]
SOURCE = HOUSE / "src" / "shoal"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((HOUSE / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("shoal", exclude_type_checking_imports=True, cache_dir=None)


def rooms() -> list[str]:
    return sorted(path.name for path in SOURCE.iterdir() if path.is_symlink())


def test_every_room_is_a_link_to_a_folder_of_its_name():
    assert len(rooms()) >= 5
    for room in rooms():
        assert (SOURCE / room).readlink() == Path("..", "..", room)
        assert (HOUSE / room / "__init__.py").is_file()


def test_every_folder_of_the_package_is_type_checked(project: dict[str, Any]):
    # `include = ["src"]` would pass linked folders by in silence.
    included = set(project["tool"]["pyright"]["include"])
    packages = {f"src/shoal/{path.parent.name}" for path in SOURCE.glob("*/__init__.py")}
    assert packages <= included
    assert "src/shoal/*.py" in included
    assert all(list(HOUSE.glob(place)) for place in included)


def test_every_room_has_a_rule_of_whom_it_may_import(project: dict[str, Any]):
    contracts = project["tool"]["importlinter"]["contracts"]
    ruled = {module.partition(".")[2].partition(".")[0] for each in contracts for module in each["source_modules"]}
    assert set(rooms()) <= ruled


def test_no_module_imports_itself_by_way_of_others(graph: grimp.ImportGraph):
    cycles = []
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            chain = graph.find_shortest_chain(importer=imported, imported=module)
            if chain is not None:
                cycles.append((module, *chain))
    assert cycles == []


def test_nothing_inside_imports_the_front_door(graph: grimp.ImportGraph):
    front = {"shoal", "shoal._environment", "shoal._held", "shoal._once", "shoal._swarm"}
    inside = {module for module in graph.modules if module.split(".")[1:2] and module.split(".")[1] in rooms()}
    assert not [
        (module, imported)
        for module in inside
        for imported in graph.find_modules_directly_imported_by(module)
        if imported in front or imported.startswith("shoal.cli")
    ]


def test_helpers_of_tests_have_names_of_their_own():
    # They are imported by name alone, from whichever folder comes first.
    helpers = [path.name for path in (HOUSE / "tests").rglob("*.py") if not path.name.startswith(("test_", "conftest"))]
    assert sorted(set(helpers)) == sorted(helpers)


def test_no_top_level_folder_shadows_the_package():
    assert not (HOUSE / "shoal").exists()


def test_the_readme_has_two_commands_and_no_more():
    readme = (HOUSE / "README.md").read_text("utf-8")
    shell = re.findall(r"```(?:sh|shell|bash|console)\n(.*?)```", readme, re.DOTALL)
    assert [line for block in shell for line in block.splitlines()] == ["make demo", "make test"]


def test_the_readmes_example_is_about_twenty_lines():
    [example] = re.findall(r"```python\n(.*?)```", (HOUSE / "README.md").read_text("utf-8"), re.DOTALL)
    assert len(example.splitlines()) <= 24


def test_the_licence_is_whole():
    text = (HOUSE / "LICENSE").read_text("utf-8")
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_every_note_of_a_change_has_a_kind(project: dict[str, Any]):
    kinds = {kind["directory"] for kind in project["tool"]["towncrier"]["type"]}
    for note in (HOUSE / "changes").glob("[!.]*"):
        _, kind, *number, suffix = note.name.split(".")
        assert (kind in kinds, suffix, [part for part in number if not part.isdigit()]) == (True, "md", [])
        assert note.read_text("utf-8").strip()


@pytest.mark.parametrize("page", sorted(path.name for path in (HOUSE / "docs").glob("*.md")))
def test_every_page_is_in_the_navigation(page: str):
    assert re.search(rf"\b{re.escape(page)}\b", (HOUSE / "mkdocs.yml").read_text("utf-8"))


def test_every_target_that_the_contributing_guide_names_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (HOUSE / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", (HOUSE / "CONTRIBUTING.md").read_text("utf-8")))
    assert {"demo", "test", "lint", "types", "docs"} <= targets
    assert named <= targets
