"""`shoal test`: the tests that a blueprint ships."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_shell import BLUEPRINT, Shell

PASSES = """
[[test]]
name = "the brief is in the answer"
task = "x"
seeds = { brief = "be brief", house_rules = "none" }
expect_contains = "be brief"
"""
FAILS = """
[[test]]
name = "the rules are in the answer"
task = "x"
seeds = { brief = "b", house_rules = "none" }
expect_contains = "all of them"
"""


def made(tests: str = "") -> Path:
    folder = Path("made")
    (folder / "tests").mkdir(parents=True)
    (folder / "blueprint.toml").write_text(BLUEPRINT)
    (folder / "tests" / "a.toml").write_text(tests)
    return folder


def test_each_test_is_run_and_what_failed_is_said(shell: Shell):
    said = shell("test", made(PASSES + FAILS))
    assert said.status == 1
    assert said.out.splitlines() == [
        "ok  the brief is in the answer",
        "FAILED  the rules are in the answer",
        "  its output does not hold 'all of them'",
        "1 passed, 1 failed",
    ]


def test_where_all_pass_the_status_is_nought(shell: Shell):
    said = shell("test", made(PASSES))
    assert (said.status, said.out.splitlines()[-1]) == (0, "1 passed")


def test_other_programs_get_one_object(shell: Shell):
    said = shell("test", made(PASSES + FAILS) / "blueprint.toml", "--json")
    assert said.status == 1
    tests = said.json.pop("tests")
    assert said.json == {"passed": 1, "failed": 1, "tests": tests}
    assert [(each["name"], each["passed"], each["status"]) for each in tests] == [
        ("the brief is in the answer", True, "complete"),
        ("the rules are in the answer", False, "complete"),
    ]
    assert tests[0]["tokens"] > 0


def test_a_filter_chooses_by_name(shell: Shell):
    assert shell("test", made(PASSES + FAILS), "--filter", "BRIEF").out.splitlines()[-1] == "1 passed"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "'answers' ships no tests; write `[[test]]` into"),
        (("--filter", "x"), "no test of 'answers' has 'x' in its name"),
        (("--task", "x"), "say themselves what their runs are given; add `--dry-run`"),
        (("--model", "nobody:x"), "ships no tests"),
    ],
)
def test_what_cannot_be_run_is_refused(shell: Shell, options: tuple[str, ...], why: str):
    said = shell("test", made(), *options)
    assert said.status == 2
    assert why in said.err


def test_a_provider_that_is_not_here_is_refused(shell: Shell):
    said = shell("test", made(PASSES), "--model", "nobody:x")
    assert (said.status, "names no provider" in said.err) == (2, True)


def test_nothing_is_left_behind(shell: Shell):
    shell("test", made(PASSES))
    assert shell("ps", "--json").json == []
