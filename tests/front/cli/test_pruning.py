"""Old runs are deleted at the command line, and never by themselves."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from front_shell import Serve, Shell, newest

from shoal.cli._prune import span_s
from shoal.errors import ConfigInvalid
from shoal.testing import ScriptedProvider, call


@pytest.fixture
def old(shell: Shell, serve: Serve, answers: Path, tmp_path: Path) -> str:
    """The id of a run that has been over for a year."""
    serve(ScriptedProvider(call("submit_output", content="an answer"), "done", purposes={"titling": "A title"}))
    shell("run", answers, "--workdir", answers, "--task", "Answer")
    [journal] = (tmp_path / "state").rglob("*.db")
    with closing(sqlite3.connect(journal)) as db, db:
        db.execute("UPDATE runs SET ended_at = ended_at - 365 * 86400")
    return str(newest(shell)["run_id"])


def test_a_run_that_is_old_enough_is_deleted(shell: Shell, old: str):
    said = shell("prune", "--older-than", "30d")
    assert (said.status, said.out.startswith("Deleted 1 run. The journal went from ")) == (0, True)
    assert shell("result", old).status == 2


def test_a_run_that_is_not_old_enough_stays(shell: Shell, old: str):
    assert shell("prune", "--older-than", "60w").out.startswith("Nothing is that old. The journal has 0.")
    assert shell("result", old).out.strip() == "an answer"


def test_what_was_pruned_is_told_to_other_programs(shell: Shell, old: str):
    told = shell("prune", "--older-than", "30d", "--keep-failed", "--json").json
    assert (told["trees"], told["runs"], told["definitions"], told["shrunk"]) == (1, 1, 1, True)
    assert 0 < told["bytes_after"] <= told["bytes_before"]


def test_a_file_that_cannot_shrink_now_is_told_of(
    shell: Shell, old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("shoal.runtime.journal._file.BUSY_MS", 10)
    [journal] = (tmp_path / "state").rglob("*.db")
    with closing(sqlite3.connect(journal, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        said = shell("prune", "--older-than", "30d")
    assert (said.status, "its file may shrink the next time only" in said.out) == (0, True)


def test_nothing_is_pruned_where_nothing_has_run(shell: Shell):
    assert shell("prune", "--older-than", "1d").out == "Nothing has run yet, so there is nothing to prune.\n"


def test_how_old_has_to_be_said(shell: Shell, old: str):
    assert shell("prune").status == 2
    assert shell("result", old).status == 0


@pytest.mark.parametrize(("text", "seconds"), [("90m", 5400.0), ("1.5h", 5400.0), ("2d", 172_800.0), ("1w", 604_800.0)])
def test_a_span_is_a_number_and_a_unit(text: str, seconds: float):
    assert span_s(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1 day"])
def test_what_is_no_span_is_refused(text: str):
    with pytest.raises(ConfigInvalid, match="is no span of time"):
        span_s(text)
