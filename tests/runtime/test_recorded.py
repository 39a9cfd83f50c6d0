"""A definition read back for those who only look at a run."""

from __future__ import annotations

from shoal.blueprints import Blueprint, Stage
from shoal.runtime import Program, Tool, recorded, tool
from shoal.runtime._bundle import Bundle


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
