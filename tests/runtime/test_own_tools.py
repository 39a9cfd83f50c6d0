"""Tools that a run finds in its own folder, looked for between turns."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from runkit import TALK, TASK, blueprint, bodies, folded, messages, payloads, stage, swarm_of, write_files

from shoal.blueprints import Nudge
from shoal.runtime import MemoryJournal, Permissions
from shoal.testing import Say, ScriptedProvider, call

pytestmark = pytest.mark.anyio

DOUBLE = """# @description Double a number.
# @param n integer required "The number."
def run(args):
    return args["n"] * 2
"""
MADE = blueprint(
    stage(available_tools=("write_file",), nudge=Nudge(enabled=False)), regions=(TASK, TALK), dynamic_tools=True
)
ALLOWED = Permissions(launch={"write_file": "allow", "double": "allow"})


def says(*replies: Any) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})


def offered(provider: ScriptedProvider) -> list[list[str]]:
    return [[s.name for s in request.tools.specs] for request in provider.requests if request.purpose == "stage"]


async def ran(workdir: Path, *replies: Any, **more: Any) -> tuple[ScriptedProvider, list[Any]]:
    provider = says(*replies)
    async with swarm_of(provider, permissions=ALLOWED) as swarm:
        run = await swarm.spawn(more.get("made", MADE), task="t", workdir=workdir)
        await run.result()
        assert folded(swarm, run).dump() == swarm.state(run.run_id).dump()
        return provider, list(swarm.journal.read(run.run_id))


async def test_a_tool_that_the_run_wrote_is_there_from_its_next_turn_on(tmp_path: Path):
    replies = (call("write_file", path="tools/double.py", content=DOUBLE), call("double", n=21), "done")
    provider, events = await ran(tmp_path, *replies)
    assert offered(provider) == [["write_file"], ["write_file", "double"], ["write_file", "double"]]
    assert messages(bodies(provider)[2])[-1][1] == "42"
    assert [[path for path, _ in p.files] for p in payloads(events, "ToolsFound")] == [["tools/double.py"]]


async def test_it_asks_unless_somebody_allows_it(tmp_path: Path):
    write_files(tmp_path, {"tools/double.py": DOUBLE})
    provider = says(call("double", n=21), "done")
    async with swarm_of(provider) as swarm:
        await (await swarm.spawn(MADE, task="t", workdir=tmp_path)).result()
    assert messages(bodies(provider)[1])[-1][1].startswith("[denied]")


async def test_a_tool_that_is_taken_away_is_gone(tmp_path: Path):
    write_files(tmp_path, {"tools/double.py": DOUBLE})
    replies = (call("write_file", path="tools/double.py", content="def run(args):\n    return 1\n"), "done")
    provider, events = await ran(tmp_path, *replies)
    assert len(payloads(events, "ToolsFound")) == 2
    assert [s.description for s in provider.requests[-1].tools.specs if s.name == "double"] == [""]


async def test_one_that_cannot_be_used_is_named_once_and_offered_to_nobody(tmp_path: Path):
    files = {"tools/broken.py": "def run(:", "tools/none.py": "x = 1", "tools/read_file.py": DOUBLE}
    files |= {"tools/odd.py": DOUBLE, "tools/odd.toml": "parameters = { properties = 3 }"}
    write_files(tmp_path, files)
    provider, events = await ran(tmp_path, call("write_file", path="x", content="y"), "done")
    assert offered(provider) == [["write_file"]] * 2
    failed = payloads(events, "ScriptFailed")
    assert [p.script for p in failed] == ["tools/broken.py", "tools/none.py", "tools/odd.py", "tools/read_file.py"]
    assert "are no JSON schema" in failed[2].message
    assert "as another is called; rename it" in failed[-1].message


async def test_a_link_out_of_the_folder_is_no_tool(tmp_path: Path):
    write_files(tmp_path, {"out.py": DOUBLE, "work/tools/x.txt": ""})
    (tmp_path / "work/tools/double.py").symlink_to(tmp_path / "out.py")
    provider, _ = await ran(tmp_path / "work", "done")
    assert offered(provider) == [["write_file"]]


async def test_nobody_looks_where_the_blueprint_does_not_say_so(tmp_path: Path):
    write_files(tmp_path, {"tools/double.py": DOUBLE})
    provider, _ = await ran(tmp_path, "done", made=blueprint(*MADE.stages, regions=(TASK, TALK)))
    assert offered(provider) == [["write_file"]]


async def test_a_resumed_run_has_the_tool_as_it_was_found(tmp_path: Path):
    write_files(tmp_path, {"tools/double.py": DOUBLE})
    journal = MemoryJournal()
    first = says(call("double", n=1), Say("x", delay_s=1e6))
    async with swarm_of(first, journal=journal, permissions=ALLOWED) as swarm:
        run = await swarm.spawn(MADE, task="t", workdir=tmp_path)
        async with aclosing(run.events()) as events:
            async for event in events:
                if event.kind == "ToolCallCompleted":
                    break
    second = says(call("double", n=21), "done")
    async with swarm_of(second, journal=journal, seed=1, permissions=ALLOWED) as swarm:
        run = await swarm.resume_tree(run.run_id)
        await run.result()
        events_now = list(swarm.journal.read(run.run_id))
    assert messages(bodies(second)[1])[-1][1] == "42"
    assert len(payloads(events_now, "ToolsFound")) == 1
