"""Every example of the README and of the pages runs, as somebody would run it who reads on and copies it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from shoal.blueprints import loads

HOUSE = Path(__file__).parents[2]
PAGES = [HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md"))]
GO_ON = "The Python blocks of this page go on from one another"
"""What a page says whose later blocks use names of earlier ones; on all others each block is a script of its own."""
# The blocks of a page run in their order, in one process, and in one folder with nothing but what it tells to save.
RUNNER = """
import pathlib, sys
go_on, *paths = sys.argv[1:]
names = {}
for path in paths:
    names = {**(names if go_on else {}), "__name__": "__main__"}
    exec(compile(pathlib.Path(path).read_text(), path, "exec"), names)
"""


class Example(NamedTuple):
    """One fenced block of a page: the line at which it begins, what stands behind its fence, and what it says."""

    page: Path
    line: int
    info: str
    source: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def examples(language: str, pages: list[Path] = PAGES) -> list[Example]:
    """Return the blocks of *language*."""
    found: list[Example] = []
    for page in pages:
        text = page.read_text("utf-8")
        for block in re.finditer(rf"^```({language}\b[^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            line = text.count("\n", 0, block.start()) + 2
            found.append(Example(page, line, block[1].strip(), block[2]))
    return found


def is_whole(example: Example) -> bool:
    """Say whether a block of TOML is a whole blueprint, and not a part of one."""
    return "[agent]" in example.source and "[stages." in example.source


def saved(page: Path) -> dict[str, str]:
    """Return the blueprints that *page* tells to save, by path; where several have one name it is the first."""
    whole = [example.source for example in examples("toml", [page]) if is_whole(example)]
    named = {f"{tomllib.loads(source)['agent']['name']}/blueprint.toml": source for source in reversed(whole)}
    return {path: source for path, source in named.items() if f"`{path}`" in page.read_text("utf-8")}


@pytest.mark.wall_limit(120)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_a_folder_that_has_what_the_page_tells_to_save(page: Path, tmp_path: Path):
    for path, source in saved(page).items():
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_text(source, "utf-8")
    scripts = []
    for example in examples("python", [page]):
        if example.info == "python":
            scripts.append(tmp_path / f".{example.page.stem}-{example.line}.py")
            scripts[-1].write_text(example.source, "utf-8")
    kept = {"HOME", "PATH", "LANG"} | {name for name in os.environ if name.startswith("COVERAGE_")}
    environ = {name: value for name, value in os.environ.items() if name in kept}
    said = subprocess.run(
        [sys.executable, "-c", RUNNER, "yes" if GO_ON in page.read_text("utf-8") else "", *scripts],
        cwd=tmp_path,
        env={**environ, "XDG_STATE_HOME": str(tmp_path / ".state")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr


@pytest.mark.parametrize("example", [example for example in examples("toml") if is_whole(example)], ids=str)
def test_a_whole_blueprint_loads(example: Example):
    assert loads(example.source, folder=HOUSE / "docs").stages


def test_an_example_that_does_not_run_says_so_in_one_way_and_can_be_read():
    for example in examples("python"):
        assert example.info in ("python", "python no-run"), str(example)
        compile(example.source, str(example), "exec")


@pytest.mark.wall_limit(120)
def test_the_test_on_the_page_about_tests_passes(tmp_path: Path):
    page = [example.source for example in examples("python", [HOUSE / "docs" / "testing.md"])]
    [conftest] = [source for source in page if source.startswith("pytest_plugins")]
    [test] = [source for source in page if "@pytest.mark.anyio" in source]
    [above] = [source for source in page if "clerk = Blueprint" in source]
    for name, source in {
        "conftest": conftest,
        "test_clerk": test,
        "clerk": above.partition("async def main")[0],
    }.items():
        (tmp_path / f"{name}.py").write_text(source, "utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:asyncio", "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "6 passed" in said.stdout, said.stdout + said.stderr


def test_the_pages_have_examples():
    assert len([example for example in examples("python") if example.info == "python"]) >= 10
    assert any(is_whole(example) for example in examples("toml"))
