"""Old runs are deleted at the command line, and never by themselves."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from front_shell import Serve, Shell, newest

from shoal._keeping import Keeping, keeping_from
from shoal.cli._prune import span_s
from shoal.errors import ConfigInvalid, JournalFailed
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


# --- by the settings


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """The user's settings, in a folder that is there."""
    path = tmp_path / "config" / "shoal" / "shoal.toml"
    path.parent.mkdir(parents=True)
    return path


def run_another(shell: Shell, serve: Serve, answers: Path) -> int:
    serve(ScriptedProvider(call("submit_output", content="another"), "done", purposes={"titling": "A title"}))
    return shell("run", answers, "--workdir", answers, "--task", "Again").status


def test_runs_that_are_older_than_the_settings_say_go_with_the_next_run(
    shell: Shell, serve: Serve, answers: Path, old: str, settings: Path
):
    settings.write_text("[journal]\nkeep_days = 30\n")
    assert run_another(shell, serve, answers) == 0
    assert shell("result", old).status == 2
    assert shell("result", newest(shell)["run_id"]).out.strip() == "another"


@pytest.mark.parametrize("text", ["", "[journal]\n", "[journal]\nkeep_days = 3650\n"])
def test_nothing_goes_by_itself_that_the_settings_do_not_name(
    shell: Shell, serve: Serve, answers: Path, old: str, settings: Path, text: str
):
    settings.write_text(text)
    assert run_another(shell, serve, answers) == 0
    assert shell("result", old).status == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[journal]\nkeep_days = 0\n", "`keep_days` in .* is 0.0; give days, more than 0"),
        ("[journal]\nkeep_days = 'all'\n", "is of no use"),
        ("[journal]\nkeep_weeks = 1\n", "is of no use: .*keep_weeks"),
    ],
)
def test_settings_of_no_use_are_refused_before_anything_runs(
    shell: Shell, serve: Serve, answers: Path, settings: Path, text: str, said: str
):
    settings.write_text(text)
    serve(ScriptedProvider())
    refused = shell("run", answers, "--workdir", answers, "--task", "x")
    assert refused.status != 0
    assert re.search(said, refused.err)
    assert shell("ps", "--json").json == []


def test_a_working_directory_has_no_say_in_what_is_deleted(tmp_path: Path):
    (tmp_path / "shoal.toml").write_text("[journal]\nkeep_days = 1\n")
    with pytest.raises(ConfigInvalid, match="lies in the working directory and has `\\[journal\\]`; move it to"):
        keeping_from({"XDG_CONFIG_HOME": str(tmp_path / "config")}, tmp_path)


def test_without_a_home_nothing_is_deleted(tmp_path: Path):
    assert keeping_from({"XDG_CONFIG_HOME": str(tmp_path / "none")}, tmp_path) == Keeping()


def test_a_journal_that_cannot_be_pruned_now_hurts_no_run(
    shell: Shell, serve: Serve, answers: Path, old: str, settings: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_args: object, **_more: object) -> None:
        raise JournalFailed("'runs.db' cannot be pruned: it is locked")

    monkeypatch.setattr("shoal.cli._hosted.prune", fail)
    settings.write_text("[journal]\nkeep_days = 30\n")
    assert run_another(shell, serve, answers) == 0
    assert shell("result", old).status == 0
