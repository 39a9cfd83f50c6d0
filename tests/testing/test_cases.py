"""The tests that a blueprint ships: how they are read, run and judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.blueprints import Blueprint, Nudge, Stage
from shoal.errors import ConfigInvalid, ProviderSetup
from shoal.testing import Case, CaseResult, Say, ScriptedProvider, call, cases_of, run_case

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
WRITES = Blueprint(
    "writes",
    (
        Stage("write", available_tools=("write_file",), max_iterations=5, nudge=QUIET),
        Stage("say", mode="output", require_output=True, allow_complete=True, nudge=QUIET),
    ),
)


def provider(*more: Any) -> ScriptedProvider:
    replies = more or (
        call("write_file", path="out/a.txt", content="It is DONE."),
        "written",
        call("submit_output", content="The answer is Here."),
        "submitted",
    )
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


async def tried(*more: Any, **fields: Any) -> CaseResult:
    fields = {"name": "a test", "task": "Write.", "allow": ("write_file",), **fields}
    return await run_case(WRITES, Case(**fields), [provider(*more)])


async def test_a_run_that_is_as_expected_passes():
    result = await tried(
        expect_contains=("answer", "HERE"),
        expect_tool_call=("write_file", "submit_output"),
        expect_stages=("write", "say"),
        expect_files={"out/a.txt": "DONE"},
    )
    assert result.failures == ()
    assert result.passed
    assert result.tokens > 0
    assert result.outcome is not None
    assert result.outcome.output == "The answer is Here."


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"expect_status": "error"}, "it ended as 'complete' and not as 'error': "),
        ({"expect_contains": "nowhere"}, "its output does not hold 'nowhere'"),
        ({"expect_tool_call": "bash"}, "nobody called `bash`"),
        ({"expect_stages": ("say",)}, "it went through write, say and not through say"),
        ({"expect_files": {"b.txt": ""}}, "there is no file 'b.txt'"),
        ({"expect_files": {"out/a.txt": "undone"}}, "the file 'out/a.txt' does not hold 'undone'"),
        ({"allow": (), "expect_files": {"out/a.txt": ""}}, "there is no file 'out/a.txt'"),
    ],
)
async def test_what_is_otherwise_is_said(fields: dict[str, Any], why: str):
    result = await tried(**fields)
    assert not result.passed
    assert [failure[: len(why)] for failure in result.failures] == [why]


async def test_a_run_that_is_not_over_in_time_fails():
    result = await tried(Say("x", delay_s=100), timeout_s=50.0)
    assert result.failures == ("it was not over within 50 s",)
    assert result.outcome is None


async def test_a_run_that_is_paused_or_refused_fails_with_the_reason():
    paused = await tried(ProviderSetup("no credits", remedy="Pay.", provider="scripted", model="m"))
    refused = await run_case(WRITES, Case(name="x", seeds={"nobody": "x"}), [provider()])
    assert "no credits" in paused.failures[0]
    assert "'nobody'" in refused.failures[0]


async def test_files_and_a_folder_are_what_it_begins_with(tmp_path: Path):
    (tmp_path / "tests" / "small" / "sub").mkdir(parents=True)
    (tmp_path / "tests" / "small" / "sub" / "b.md").write_text("from the folder")
    case = Case(
        name="x",
        task="t",
        folder="small",
        files={"a.md": "from the test", "sub/c.md": "too"},
        place=str(tmp_path / "tests" / "x.toml"),
        expect_files={"sub/b.md": "from the folder", "a.md": "from the test", "sub/c.md": "too"},
    )
    assert (await run_case(WRITES, case, [provider()])).failures == ()


@pytest.mark.parametrize("field", ["files", "expect_files"])
async def test_a_file_outside_is_refused(field: str):
    with pytest.raises(ConfigInvalid, match="leads out of its working directory"):
        await tried(**{field: {"../x": "y"}})


async def test_a_folder_that_is_none_beside_the_test_is_refused(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    for folder in ("nothing", "..", "/etc"):
        case = Case(name="x", folder=folder, place=str(tmp_path / "tests" / "x.toml"))
        with pytest.raises(ConfigInvalid, match="which is none beside it"):
            await run_case(WRITES, case, [provider()])


async def test_a_folder_with_a_link_is_refused(tmp_path: Path):
    (tmp_path / "tests" / "small").mkdir(parents=True)
    (tmp_path / "tests" / "small" / "link").symlink_to("/etc")
    case = Case(name="x", folder="small", place=str(tmp_path / "tests" / "x.toml"))
    with pytest.raises(ConfigInvalid, match="holds the link"):
        await run_case(WRITES, case, [provider()])


# --- reading


def written(tmp_path: Path, text: str, name: str = "a.toml") -> Path:
    (tmp_path / "tests").mkdir(exist_ok=True)
    (tmp_path / "tests" / name).write_text(text)
    return tmp_path


def test_tests_are_read_file_by_file(tmp_path: Path):
    written(tmp_path, '[[test]]\nname = "two"\ninput = "Go."\n', "b.toml")
    written(tmp_path, '[[test]]\nname = "one"\nexpect_contains = ["a", "b"]\n')
    one, two = cases_of(tmp_path)
    assert (one.name, one.expect_contains, one.place) == ("one", ("a", "b"), str(tmp_path / "tests" / "a.toml"))
    assert (two.name, two.task, two.input) == ("two", "Go.", None)


def test_a_blueprint_without_tests_has_none(tmp_path: Path):
    assert cases_of(tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[test]]\n", "missing required field `name`"),
        ('[[test]]\nname = "x"\nexpect = "y"\n', "unknown field `expect`"),
        ('[[tests]]\nname = "x"\n', "unknown table 'tests'"),
        ("[[test", "cannot be read"),
        ('[[test]]\nname = "x"\ntask = "a"\ninput = "b"\n', "keep one of them"),
        ('[[test]]\nname = "x"\nexpect_status = "fine"\n', "Invalid enum value"),
    ],
)
def test_a_test_that_is_none_is_refused_with_its_file(tmp_path: Path, text: str, why: str):
    with pytest.raises(ConfigInvalid, match=why) as caught:
        cases_of(written(tmp_path, text))
    assert "a.toml" in str(caught.value)
