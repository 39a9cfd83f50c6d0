"""Every example of the README and of the pages runs, as somebody would run it who reads on and copies it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

import shoal
from shoal.blueprints import loads

HOUSE = Path(__file__).parents[2]
PAGES = [HOUSE / "README.md", *sorted((HOUSE / "docs").glob("*.md"))]
# The blocks of a page run in their order, in one process and in a folder of their own.
RUNNER = """
import pathlib, sys
given = pathlib.Path(".text")
names = {"__name__": "example", "text": given.read_text() if given.exists() else ""}
for path in sys.argv[1:]:
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


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A journal of one digest, for pages that read one."""
    folder = tmp_path_factory.mktemp("journal")
    (folder / "notes.md").write_text("The harbour has two piers.\n")
    anyio.run(lambda: shoal.run("digest", task="What is in here?", workdir=folder, journal=folder / "runs.db"))
    return (folder / "runs.db").read_bytes()


@pytest.mark.wall_limit(120)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run_in_their_order(page: Path, journal: bytes, tmp_path: Path):
    (tmp_path / "notes.md").write_text("The harbour has two piers. Boats wait outside when both are taken.\n")
    (tmp_path / "runs.db").write_bytes(journal)
    whole = [example.source for example in examples("toml", [page]) if is_whole(example)]
    for source in whole:
        folder = tmp_path / tomllib.loads(source)["agent"]["name"]
        if not folder.exists():  # later ones of a name are variants of the first
            folder.mkdir()
            (folder / "blueprint.toml").write_text(source)
    if whole:
        (tmp_path / ".text").write_text(whole[0])
    scripts = []
    for example in examples("python", [page]):
        if example.info == "python":
            scripts.append(tmp_path / f".{example.page.stem}-{example.line}.py")
            scripts[-1].write_text(example.source, "utf-8")
    kept = {"HOME", "PATH", "LANG"} | {name for name in os.environ if name.startswith("COVERAGE_")}
    environ = {name: value for name, value in os.environ.items() if name in kept}
    said = subprocess.run(
        [sys.executable, "-c", RUNNER, *scripts],
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


def test_the_pages_have_examples():
    assert len([example for example in examples("python") if example.info == "python"]) >= 10
    assert any(is_whole(example) for example in examples("toml"))
