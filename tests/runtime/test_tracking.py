"""Tracked files: their newest text stands under their path, and the conversation only points to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runkit import TALK, TASK, blueprint, bodies, messages, payloads, run_once, stage, system_text, write_files

from shoal.blueprints import Blueprint, FileTracking, Nudge, Region, Route, StageContext, ToolRouting
from shoal.runtime import Permissions
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

FILES = Region("files", kind="hashmap", max_tokens=500)
NOTES = Region("notes", max_tokens=500)
ALLOWED = Permissions(launch={"write_file": "allow", "edit_file": "allow"})


def made(*, region: Region = FILES, stage_s: dict[str, Any] | None = None, **settings: Any) -> Blueprint:
    tools = ("read_file", "write_file", "edit_file")
    return blueprint(
        stage(available_tools=tools, nudge=Nudge(enabled=False), **(stage_s or {})),
        regions=(TASK, region, NOTES, TALK),
        file_tracking=FileTracking(**settings),
    )


async def asked(folder: Path, blueprint: Blueprint, *calls: Any) -> list[dict[str, Any]]:
    """Return the requests of a run in *folder* that makes *calls*, one a turn."""
    provider = ScriptedProvider(*calls, "done", purposes={"titling": "A title"})
    await run_once(blueprint, provider, workdir=folder, permissions=ALLOWED)
    return bodies(provider)


READ = call("read_file", path="a.txt")


async def test_a_file_that_is_read_stands_under_its_path_and_the_conversation_points_to_it(tmp_path: Path):
    last = (await asked(write_files(tmp_path, {"a.txt": "alpha"}), made(), READ))[-1]
    assert "## files\n### a.txt\nalpha" in system_text(last)
    assert messages(last)[-1] == (
        "tool",
        '[The whole result, 2 tokens, is kept. It is already in this prompt, under "## files".]',
    )


async def test_a_file_that_is_written_takes_the_place_of_what_was_read(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha"})
    last = (await asked(tmp_path, made(), READ, call("write_file", path="a.txt", content="beta")))[-1]
    assert "### a.txt\nbeta" in system_text(last)
    assert "alpha" not in system_text(last)


async def test_a_file_has_one_key_however_its_path_is_written(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha"})
    paths = ["a.txt", "./a.txt", "x/../a.txt", str(tmp_path / "a.txt")]
    (tmp_path / "x").mkdir()
    last = (await asked(tmp_path, made(), *(call("read_file", path=path) for path in paths)))[-1]
    assert system_text(last).count("### ") == 1


async def test_two_files_read_in_one_turn_are_both_kept(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha", "b.txt": "beta"})
    last = (await asked(tmp_path, made(), Say(calls=(READ, call("read_file", path="b.txt")))))[-1]
    assert "### a.txt\nalpha\n\n### b.txt\nbeta" in system_text(last)


async def test_a_part_of_a_file_does_not_take_the_place_of_the_whole(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha\nbeta\n"})
    last = (await asked(tmp_path, made(), READ, call("read_file", path="a.txt", offset=6)))[-1]
    assert "### a.txt\nalpha\nbeta" in system_text(last)
    assert messages(last)[-1][1].startswith("beta")


async def test_a_read_that_fails_stays_where_it_was_called(tmp_path: Path):
    last = (await asked(tmp_path, made(), READ))[-1]
    assert messages(last)[-1][1].startswith("[error] ")
    assert "## files" not in system_text(last)


async def test_a_call_whose_arguments_are_no_json_is_left_alone(tmp_path: Path):
    from shoal.providers import Text, ToolCall

    last = (await asked(tmp_path, made(), Say(calls=(ToolCall("", "read_file", Text.of("{torn")),))))[-1]
    assert "## files" not in system_text(last)


@pytest.mark.parametrize(("settings", "kept"), [({"track_reads": False}, "beta"), ({"track_writes": False}, "alpha")])
async def test_either_may_be_left_out(tmp_path: Path, settings: dict[str, bool], kept: str):
    write_files(tmp_path, {"a.txt": "alpha"})
    write = call("write_file", path="b.txt", content="beta")
    last = (await asked(tmp_path, made(**settings), READ, write))[-1]
    assert system_text(last).count("### ") == 1
    assert kept in system_text(last)


@pytest.mark.parametrize(("tokens", "keys"), [(20, 1), (21, 0)])
async def test_a_file_that_is_too_long_is_read_into_the_conversation(tmp_path: Path, tokens: int, keys: int):
    write_files(tmp_path, {"a.txt": "x" * tokens * 4})
    last = (await asked(tmp_path, made(max_file_tokens=20), READ))[-1]
    assert system_text(last).count("### ") == keys
    assert (messages(last)[-1][1] == "x" * tokens * 4) is not bool(keys)


async def test_a_file_that_grew_too_long_leaves_nothing_old_behind(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha"})
    write = call("write_file", path="a.txt", content="x" * 100)
    last = (await asked(tmp_path, made(max_file_tokens=20), READ, write))[-1]
    assert "## files" not in system_text(last)


async def test_a_file_that_does_not_fit_its_region_is_cut_and_the_model_is_told(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "x" * 4_000})
    last = (await asked(tmp_path, made(), READ))[-1]
    assert "[cut: about 500 of 1000 tokens]" in system_text(last)
    assert messages(last)[-1][1].startswith("[The result was cut: 500 of 1000 tokens are kept.")


async def test_a_picture_is_no_text_to_keep(tmp_path: Path):
    (tmp_path / "a.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    last = (await asked(tmp_path, made(), READ))[-1]
    assert "## files" not in system_text(last)


async def test_a_rule_that_sends_reads_elsewhere_wins(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha"})
    routed = {"tool_routing": ToolRouting(overrides={"read_file": Route("notes")})}
    last = (await asked(tmp_path, made(stage_s=routed), READ))[-1]
    assert "## notes\nalpha" in system_text(last)
    assert "## files" not in system_text(last)


async def test_a_stage_that_does_not_see_the_region_reads_into_its_conversation(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha"})
    hidden = {"context": StageContext(hide=("files",))}
    last = (await asked(tmp_path, made(stage_s=hidden), READ))[-1]
    assert messages(last)[-1] == ("tool", "alpha")


async def test_what_the_region_refuses_stays_in_the_conversation(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "a" * 300, "b.txt": "b" * 300})
    region = Region("files", kind="hashmap", max_tokens=100, admission="reject")
    last = (await asked(tmp_path, made(region=region), READ, call("read_file", path="b.txt")))[-1]
    assert messages(last)[-1] == ("tool", "b" * 300)


async def test_what_is_edited_is_not_read_again_by_itself(tmp_path: Path):
    write_files(tmp_path, {"a.txt": "alpha"})
    edit = call("edit_file", path="a.txt", old_str="alpha", new_str="beta")
    provider = ScriptedProvider(READ, edit, "done", purposes={"titling": "A title"})
    _, events = await run_once(made(), provider, workdir=tmp_path, permissions=ALLOWED)
    assert [p.key for p in payloads(events, "EntryWritten") if p.region == "files"] == ["a.txt"]
