"""`shoal report`: one file, one JSON, or standard output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from front_shell import Shell


@pytest.fixture
def digested(shell: Shell, pages: Path) -> str:
    """The id of a digest that is over."""
    return shell("run", "digest", "--task", "What is in here?", "--workdir", pages, "--json").json["run_id"]


def test_a_report_is_one_file_named_after_its_run(shell: Shell, digested: str):
    said = shell("report", digested)
    assert said.out.startswith(f"Wrote {digested}.html.")
    page = Path(f"{digested}.html").read_text()
    assert page.startswith("<!doctype html>")
    assert '<script type="application/json" id="figures">' in page


def test_a_report_goes_where_it_is_told(shell: Shell, digested: str):
    shell("report", digested, "--output", "page.html")
    assert Path("page.html").exists()


def test_the_figures_of_a_report_as_json(shell: Shell, digested: str):
    figures = shell("report", digested, "--json").json
    assert figures["run"]["run_id"] == digested
    assert len(figures["tree"]) == 4
    assert json.dumps(figures["ledger"]["stages"]) == json.dumps(shell("stages", digested, "--json").json)


def test_a_place_where_nothing_can_be_written_is_named(shell: Shell, digested: str):
    said = shell("report", digested, "--output", "no/such/place.html")
    assert said.status == 2
    assert "'no/such/place.html' cannot be written: No such file or directory" in said.err
