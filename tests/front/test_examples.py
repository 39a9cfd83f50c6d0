"""The examples run as they are, on a folder of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path) -> str:
    said = subprocess.run(
        [sys.executable, EXAMPLES / name, folder], capture_output=True, text=True, check=False, cwd=folder
    )
    assert said.stderr == ""
    return said.stdout


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    long = "The crane on the north pier lifts forty tons and is painted red. " * 400
    for name, text in {"crane.md": long, "harbour.md": "Two piers.", "tide.md": "The tide turns twice a day."}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.wall_limit(60)
def test_the_swarm_spawns_readers_and_shows_its_ledger(pages: Path):
    said = run("swarm.py", pages)
    assert said.count("ended complete") == 3
    assert "# What is in this folder?" in said
    assert "stage / region" in said
    assert "crane.md: The crane on the north pier" in said


@pytest.mark.wall_limit(60)
def test_the_agent_that_crashed_goes_on_from_its_journal_and_its_siblings_go_on(pages: Path):
    said = run("tree.py", pages)
    assert said.splitlines()[:3] == ["crane.md: complete", "harbour.md: complete", "tide.md: complete"]
    assert "reads harbour.md" in said
    # Whether its second life has ended yet where the tree is drawn is a matter of luck; that it had a second is not.
    (crashed,) = (line for line in said.splitlines() if "reads crane.md" in line)
    assert "  1 restart  " in crashed
    kinds = [line.rpartition(" ")[2] for line in said.splitlines() if line.startswith("event ")]
    assert kinds[:3] == ["ToolCallCompleted", "RunRestarted", "ToolCallCompleted"]
    assert kinds.count("RunRestarted") == 1


@pytest.mark.wall_limit(60)
def test_a_function_hands_out_tickets_and_gets_typed_answers(tmp_path: Path):
    first, second = run("fan_out.py", tmp_path).splitlines()
    assert first == "severe: [0, 10, 20, 30, 40]"
    assert second.startswith("50 children for 0.0")


@pytest.mark.wall_limit(60)
def test_a_swarm_runs_on_trio(pages: Path):
    assert run("on_trio.py", pages).count("complete") == 2


@pytest.mark.parametrize("name", ["swarm.py", "tree.py"])
def test_an_example_says_that_its_folder_has_no_file(name: str, tmp_path: Path):
    said = subprocess.run([sys.executable, EXAMPLES / name, tmp_path], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr == f"there is no file in {str(tmp_path)!r}; name a folder that has some\n"


def test_the_swarm_takes_about_forty_lines():
    assert len((EXAMPLES / "swarm.py").read_text().splitlines()) <= 45


def test_every_example_is_tested():
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == ["fan_out.py", "on_trio.py", "swarm.py", "tree.py"]
