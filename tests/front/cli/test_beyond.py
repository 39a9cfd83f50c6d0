"""What the settings name beyond the process: a command line's MCP servers, and its memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from front_shell import Shell

SERVER = Path(__file__).parents[2] / "runtime" / "data" / "mcp_server.py"
ADDS = """
[agent]
name = "adds"

[stages.add]
mode = "output"
available_tools = ["submit_output"]
available_connectors = ["local"]

[[stages.add.offline.policy]]
call = "local__add"
args = { a = 2, b = 40 }

[[stages.add.offline.policy]]
call = "submit_output"
args = { content = "{result(1)}" }

[[stages.add.offline.policy]]
say = "done"
"""
KEEPS = """
[agent]
name = "keeps"

[components]
use = ["memory"]

[stages.keep]
mode = "output"
available_tools = ["submit_output", "memory_write"]

[[stages.keep.offline.policy]]
call = "load_tools"
args = { names = ["memory_write"] }

[[stages.keep.offline.policy]]
call = "memory_write"
args = { name = "pier", content = "The pier is closed." }

[[stages.keep.offline.policy]]
call = "submit_output"
args = { content = "kept" }

[[stages.keep.offline.policy]]
say = "done"
"""


def settle(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config" / "shoal" / "shoal.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def blueprint(text: str) -> Path:
    Path("made").mkdir()
    Path("made/blueprint.toml").write_text(text)
    return Path("made")


@pytest.mark.sockets
@pytest.mark.wall_limit(60)
def test_a_server_of_the_settings_serves_its_tools_to_a_run(shell: Shell, tmp_path: Path):
    settle(tmp_path, f"[mcp.local]\ncommand = {sys.executable!r}\nargs = [{str(SERVER)!r}]\n")
    said = shell("run", blueprint(ADDS), "--task", "x", "--json", "--unattended", "--allow", "local__add")
    assert said.status == 0, said.err
    assert said.json["output"] == "42"


def test_a_tool_of_a_server_that_the_blueprint_does_not_name_cannot_be_allowed(shell: Shell):
    said = shell("run", blueprint(ADDS), "--task", "x", "--allow", "other__add")
    assert said.status == 2
    assert "`--allow other__add` names no tool of 'adds'" in said.err


def test_a_server_that_nobody_named_refuses_the_run(shell: Shell):
    said = shell("run", blueprint(ADDS), "--task", "x")
    assert said.status == 2
    assert "needs the MCP server 'local', and this swarm has none; name it in `[mcp.local]` of the settings" in said.err


@pytest.mark.parametrize("by", ["option", "settings"])
def test_agents_remember_where_the_user_says(shell: Shell, tmp_path: Path, by: str):
    notes = tmp_path / "notes"
    settle(tmp_path, f"[memory]\nfolder = {str(notes)!r}\n" if by == "settings" else "")
    option = ("--memory", notes) if by == "option" else ()
    assert shell("run", blueprint(KEEPS), "--task", "x", *option).status == 0
    assert (notes / "pier.md").read_text() == "The pier is closed."
