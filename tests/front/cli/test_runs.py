"""`shoal runs`: questions about what runs used."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from front_shell import Shell

from shoal.cli._where import TABLES, question_of
from shoal.errors import ConfigInvalid

FIGURES = {
    "name": "digest",
    "status": "complete",
    "calls": 7,
    "cost_usd": Decimal("0.75"),
    "cache_hit_ratio": None,
    "region": {"codebase": {"cost_usd": Decimal("0.5"), "output": 3}, "my notes": {"cost_usd": None}},
    "stage": {"a.b": {"calls": 2}},
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("calls = 7", True),
        ("calls == 7.0", True),
        ("calls != 7", False),
        ("calls > 6", True),
        ("calls >= 7", True),
        ("calls < 7", False),
        ("calls<=7", True),
        ("status = COMPLETE", True),
        ("name = 'digest'", True),
        ("region.codebase.cost_usd > 0.4", True),
        ("region.codebase.cost_usd > 0.5", False),
        ("region.other.cost_usd < 1", False),
        ("not region.other.cost_usd < 1", True),
        ('region."my notes".cost_usd < 1', False),
        ("stage.'a.b'.calls = 2", True),
        ("cache_hit_ratio >= 0", False),
        ("calls = 1 or calls = 7", True),
        ("calls = 7 and status = error", False),
        ("calls = 1 and calls = 2 or calls = 7", True),
        ("calls = 7 and (calls = 1 or calls = 7)", True),
        ("NOT (calls = 7 OR calls = 8)", False),
    ],
)
def test_a_question_holds_or_not(text: str, holds: bool):
    assert question_of(text)(FIGURES) is holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the question is empty"),
        ("calls", "one of = != < <= > >= is missing"),
        ("calls =", "a value is missing"),
        ("= 7", "'7' stands where"),
        ("calls ~ 7", "'~' stands where one of = != < <= > >= was expected"),
        ("calls = 7 calls = 8", "'calls' stands where `and`, `or` or the end was expected"),
        ("(calls = 7", "a `(` is not closed"),
        ("name = 'x", "a quote is not closed"),
    ],
)
def test_what_is_no_question_is_refused_with_the_place(text: str, said: str):
    with pytest.raises(ConfigInvalid) as caught:
        question_of(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cots = 1", "there is no 'cots'; there are `name`, `status`, `calls`"),
        ("region.codebase.cots = 1", "there is no 'cots'; there are `calls`, `uncached`"),
        ("region.nowhere.cots = 1", "there is no 'cots'; there are `calls`, `uncached`"),
        ("region.codebase.calls.more = 1", "there is no 'calls.more'"),
        ("region.codebase = 1", "holds several figures; name one: `calls`, `uncached`"),
        ("stage = 1", "holds several figures; name one: `calls`, `uncached`"),
        ("calls.more = 1", "`calls` holds nothing further"),
        ("calls = many", "`calls` is a number, and 'many' is none"),
    ],
)
def test_a_figure_that_is_not_there_is_named_with_those_that_are(text: str, said: str):
    with pytest.raises(ConfigInvalid) as caught:
        question_of(text)(FIGURES)
    assert said in str(caught.value)


# --- the command


@pytest.fixture
def digested(shell: Shell, pages: Path) -> str:
    """The id of a digest that is over."""
    return shell("run", "digest", "--task", "What is in here?", "--workdir", pages, "--json").json["run_id"]


def test_the_figures_that_may_be_asked_for_are_those_that_there_are(shell: Shell, digested: str):
    [first, *_] = shell("runs", "--json").json
    for table, known in TABLES.items():
        assert {tuple(figures) for figures in first[table].values()} == {tuple(known)}


def test_nothing_has_run_yet(shell: Shell):
    assert shell("runs").out.startswith("Nothing has run yet")
    assert shell("runs", "--json").json == []


def test_runs_are_found_by_what_a_region_used(shell: Shell, digested: str):
    found = shell("runs", "--where", "region.findings.high_water_tokens > 0", "--json").json
    assert [each["run_id"] for each in found] == [digested]
    assert found[0]["region"]["findings"]["cost_usd"] == "0"


def test_runs_are_listed_with_what_they_used(shell: Shell, digested: str):
    assert len(shell("runs", "--json").json) == 4
    assert [each["run_id"] for each in shell("runs", "--roots", "--json").json] == [digested]
    shown = shell("runs", "--roots").out
    assert digested in shown
    assert "What is in here" in shown


def test_a_question_that_holds_for_none_says_so(shell: Shell, digested: str):
    assert shell("runs", "--where", "calls > 1000000").out == "No run is like that.\n"


def test_a_question_that_is_none_is_wrong_usage(shell: Shell):
    assert shell("runs", "--where", "calls >").status == 2
