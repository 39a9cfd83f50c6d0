"""`shoal new`: a blueprint to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest
from front_shell import Serve, Shell

from shoal.testing import ScriptedProvider


def test_a_new_blueprint_has_nothing_to_complain_about(shell: Shell):
    assert shell("new", "scout").status == 0
    said = shell("validate", "./scout", "--deny-warnings", "--json")
    assert (said.status, said.json["findings"]) == (0, [])


def test_a_new_blueprint_runs_on_the_offline_provider(shell: Shell, pages: Path):
    shell("new", "scout")
    said = shell("run", "./scout", "--task", "What is in here?", "--workdir", pages, "--json")
    assert (said.status, said.json["status"], said.json["flags"]) == (0, "complete", {})
    assert "harbour.md" in said.json["output"]


def test_a_new_blueprint_runs_on_whichever_provider_is_there(shell: Shell, serve: Serve):
    shell("new", "scout")
    serve(ScriptedProvider(script=lambda _request: "42", name="google"))
    assert shell("run", "./scout", "--task", "Q", "--json").json["output"] == "42"


def test_a_new_blueprint_passes_the_test_that_it_ships(shell: Shell):
    shell("new", "scout")
    said = shell("test", "./scout")
    assert (said.status, said.out.splitlines()[-1]) == (0, "1 passed")


def test_what_to_do_next_is_said(shell: Shell):
    said = shell("new", "a/scout").out
    assert "wrote a/scout/blueprint.toml" in said
    assert "shoal validate ./a/scout" in said
    assert "shoal run ./a/scout --task" in said
    assert 'name = "scout"' in Path("a", "scout", "blueprint.toml").read_text()


def test_json_names_what_was_written(shell: Shell):
    path = Path.cwd() / "scout"
    assert shell("new", path, "--json").json == {
        "name": "scout",
        "path": str(path),
        "files": ["blueprint.toml", "tests/scout.toml"],
    }


def test_an_absolute_path_is_shown_as_it_is(shell: Shell, tmp_path: Path):
    assert f"shoal validate {tmp_path}/scout\n" in shell("new", tmp_path / "scout").out


def test_nothing_that_is_there_is_overwritten(shell: Shell):
    Path("scout").mkdir()
    said = shell("new", "scout")
    assert (said.status, list(Path("scout").iterdir())) == (2, [])
    assert "'scout' is there already; name a folder that is not" in said.err


@pytest.mark.parametrize("name", ["", "..", "a b", 'x"y', "-x/.."])
def test_a_name_that_is_none_for_a_blueprint_is_refused(shell: Shell, name: str):
    said = shell("new", "--", name)
    assert said.status == 2
    assert "is no name for a blueprint" in said.err


def test_a_folder_that_cannot_be_made_is_said(shell: Shell):
    Path("file").write_text("x")
    said = shell("new", "file/scout")
    assert (said.status, "'file/scout' cannot be written: " in said.err) == (2, True)
