"""Runs of agentic functions on the command line."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import pytest
from front_shell import Serve, Shell

import shoal
from shoal.runtime import SqliteReader
from shoal.testing import ScriptedProvider

FUNCTIONS = '''
import shoal


@shoal.agentic
async def inner(ctx: shoal.Context, word: str) -> str:
    """Say a word."""
    return await ctx.infer(f"say {word}")


@shoal.agentic
async def outer(ctx: shoal.Context) -> str:
    """Say two words."""
    return await inner(ctx, "one") + await inner(ctx, "two")
'''


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Where the command line keeps its journal."""
    (tmp_path / "state" / "shoal").mkdir(parents=True)
    return tmp_path / "state" / "shoal" / "runs.db"


@pytest.fixture
def spoken(shell: Shell, journal: Path, tmp_path: Path, monkeypatch: Any) -> str:
    """The id of a run of a function that waits for a person after its first word."""
    (tmp_path / "speaking.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    speaking: Any = import_module("speaking")
    setup = shoal.errors.ProviderSetup("no key", remedy="set one")

    async def begin() -> str:
        async with shoal.Swarm([ScriptedProvider("a", setup)], journal=journal) as swarm:
            run = await swarm.spawn(speaking.outer.bound())
            with pytest.raises(shoal.errors.RunIsPaused):
                await run.result()
            return str(run.run_id)

    return anyio.run(begin)


def test_a_function_is_taken_up_by_its_name(shell: Shell, serve: Serve, spoken: str):
    serve(ScriptedProvider("b"))
    assert shell("resume", spoken).status == 0
    assert shell("result", spoken).out.strip() == "ab"
    assert spoken in shell("tree", spoken).out
    assert "FrameEntered" in shell("events", spoken).out
    assert [stage["stage"] for stage in shell("stages", spoken, "--json").json] == ["outer"]


def test_the_context_of_a_function_is_the_request_that_was_sent(shell: Shell, spoken: str, journal: Path):
    reader = SqliteReader(journal)
    sent = [event for event in reader.read(spoken) if event.kind == "InferenceStarted"]
    reader.close()
    assert len(sent) == 2
    for event in sent:
        shown = shell("context", spoken, "--at", str(event.seq), "--json").json
        assert shown["prompt_digest"] == event.payload.prompt_digest  # type: ignore[union-attr]
        assert shown["model"] == "scripted-model"
        assert {"call_tree", "situation", "input"} <= {part["owner"] for part in shown["parts"]}
    assert "<situation>" in shell("context", spoken).out
    assert "call_tree" in shell("context", spoken, "--explain").out
