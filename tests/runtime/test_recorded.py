"""A definition read back for those who only look at a run."""

from __future__ import annotations

import pytest
from runkit import blueprint, events_of, stage, swarm_of

from shoal.blueprints import Blueprint, Nudge, Stage
from shoal.runtime import Program, Tool, fold, recorded, tool
from shoal.runtime._bundle import Bundle
from shoal.testing import ScriptedProvider, call


@tool(reads=True)
async def word_count(path: str) -> int:
    """Count the words of a file."""
    return len(path.split())


def program() -> Program:
    unsourced = Tool("plain", "Does nothing.", {"type": "object", "properties": {}}, None)
    blueprint = Blueprint("counts", (Stage("count", available_tools=("word_count", "list_dir")),))
    return Program(Bundle(blueprint), [word_count.tool, unsourced])


def test_a_recorded_program_is_the_one_that_was_recorded():
    made = program()
    assert recorded(made.definition).digest == made.digest


def test_a_recorded_program_offers_the_functions_of_its_run():
    made = program()
    read = recorded(made.definition)
    assert read.stages["count"].offered.digest == made.stages["count"].offered.digest


def test_nothing_can_call_the_functions_of_a_recorded_program():
    assert all(each.call is None for each in recorded(program().definition).given)


@pytest.mark.anyio
async def test_a_run_adds_up_to_the_same_without_its_functions():
    @tool(reads=True)
    async def look() -> str:
        """Look around."""
        return "seen"

    provider = ScriptedProvider(*[call("look") for _ in range(2)], "done", purposes={"titling": "T"})
    async with swarm_of(provider) as swarm:
        made = blueprint(stage(available_tools=("look",), nudge=Nudge(enabled=False)))
        run = await swarm.spawn(made, task="x", tools=(look,))
        program = swarm.hall.home.live[run.run_id].state.program
        await run.result()
        events = events_of(swarm, run)
        whole, shown = fold(run.run_id, program, events), fold(run.run_id, recorded(program.definition), events)
        assert whole.dump() == shown.dump()
