"""Budgets at the command line: given at the start, reached, raised."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_shell import Shell


def test_a_run_that_reaches_its_budget_pauses_and_says_how_to_raise_it(shell: Shell, pages: Path):
    said = shell("run", "digest", "--task", "What?", "--workdir", pages, "--max-tokens", "6000")
    assert said.status == 3
    assert "its budget is reached" in said.out + said.err
    assert "--max-tokens N" in said.out + said.err


def test_a_raised_budget_lets_it_go_on_to_its_end(shell: Shell, pages: Path):
    shell("run", "digest", "--task", "What?", "--workdir", pages, "--max-tokens", "6000")
    (paused,) = [row for row in shell("ps", "--json").json if row["status"] == "paused"]
    done = shell("resume", paused["run_id"], "--max-tokens", "10000000", "--json").json
    assert done["status"] == "complete"


@pytest.mark.parametrize("option", ["--max-tokens", "--max-cost-usd", "--max-wall-s"])
def test_a_limit_that_lets_nothing_through_is_wrong_usage(shell: Shell, pages: Path, option: str):
    said = shell("run", "digest", "--task", "What?", "--workdir", pages, option, "0")
    assert said.status == 2
    assert f"`{option} 0" in said.err


def test_a_limit_in_usd_and_one_in_seconds_are_taken(shell: Shell, pages: Path):
    given = ("--max-cost-usd", "5", "--max-wall-s", "600")
    assert shell("run", "digest", "--task", "What?", "--workdir", pages, *given, "--json").json["status"] == "complete"
