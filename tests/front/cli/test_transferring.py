"""A tree of runs is carried from one journal to another at the command line."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from front_shell import Serve, Shell, newest

from shoal.testing import ScriptedProvider, call


@pytest.fixture
def answered(shell: Shell, serve: Serve, answers: Path) -> str:
    """The id of a run that has submitted its answer."""
    serve(ScriptedProvider(call("submit_output", content="an answer"), "done", purposes={"titling": "A title"}))
    shell("run", answers, "--workdir", answers, "--task", "Answer")
    return str(newest(shell)["run_id"])


def test_a_run_that_was_exported_can_be_read_where_it_was_imported(shell: Shell, answered: str, tmp_path: Path):
    file, there = tmp_path / "run.jsonl", tmp_path / "there.db"
    assert shell("export", answered, "--output", file).status == 0
    said = shell("import", file, "--journal", there)
    assert said.out == f"Imported the tree of run {answered}; `shoal tree {answered}` shows it.\n"
    assert shell("result", answered, "--journal", there).out == "an answer\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_an_export_goes_to_standard_output_unless_a_file_is_named(shell: Shell, answered: str, tmp_path: Path):
    file = tmp_path / "run.jsonl"
    file.write_text(shell("export", answered).out)
    assert shell("import", file, "--journal", tmp_path / "there.db", "--json").json == {"run_id": answered}


def test_a_run_is_not_imported_twice(shell: Shell, answered: str, tmp_path: Path):
    shell("export", answered, "--output", tmp_path / "run.jsonl")
    said = shell("import", tmp_path / "run.jsonl")
    assert (said.status, f"has run {answered} already" in said.err) == (1, True)


def test_a_file_that_is_not_there_cannot_be_imported(shell: Shell, tmp_path: Path):
    said = shell("import", tmp_path / "none.jsonl")
    assert (said.status, "cannot be read: No such file" in said.err) == (2, True)


def test_an_export_that_cannot_be_written_says_so(shell: Shell, answered: str, tmp_path: Path):
    said = shell("export", answered, "--output", tmp_path / "none" / "run.jsonl")
    assert (said.status, "cannot be written: No such file" in said.err) == (2, True)
