"""A blueprint made ready to run: whose tools its stages have, and what is refused before a run begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runkit import blueprint, stage, swarm_of, write_files

from shoal.blueprints import (
    Blueprint,
    Edge,
    FilesSeed,
    Gate,
    LiteralSeed,
    ModelChoice,
    ModelSettings,
    OfflineStep,
    OutputSpec,
    Region,
    Stage,
)
from shoal.errors import DefinitionMissing, SpawnRefused
from shoal.providers import NO_TOOLS, PolicyStep, Text
from shoal.runtime import Program, SqliteJournal, Tool, tool
from shoal.runtime._bundle import Bundle
from shoal.runtime.program import MOST_SHARED_BYTES
from shoal.testing import Say, ScriptedProvider, call


@tool(reads=True)
async def look(word: str) -> str:
    """Look."""
    return word


@tool
async def act() -> None:
    """Act."""


def program(*stages: Stage, tools: tuple[Any, ...] = (), **more: Any) -> Program:
    given = [each.tool if hasattr(each, "tool") else each for each in tools]
    return Program(Bundle(Blueprint("made", stages, **more)), given)


def offered(program: Program) -> dict[str, list[str]]:
    """Return the names of the tools that each stage offers, in order."""
    return {name: [spec.name for spec in stage.offered.specs] for name, stage in program.stages.items()}


def test_stages_offer_their_tools_sorted_by_name():
    made = program(Stage("a", available_tools=("read_file", "list_dir")), Stage("b"))
    assert offered(made) == {"a": ["list_dir", "read_file"], "b": []}
    assert made.stages["b"].offered is NO_TOOLS


def test_what_a_request_offers_costs_what_its_tools_cost():
    stage = program(Stage("a", available_tools=("read_file", "list_dir"))).stages["a"]
    assert stage.offered.tokens == sum(each.tokens for each in stage.tools.values())


def test_a_function_that_a_stage_lists_belongs_to_the_stages_that_list_it():
    made = program(Stage("a", available_tools=("look",)), Stage("b"), tools=(look, act))
    assert offered(made) == {"a": ["act", "look"], "b": ["act"]}


def test_a_function_may_stand_in_for_a_built_in_tool():
    mine = Tool("read_file", "Mine.", {"type": "object"}, act.tool.call)
    assert program(Stage("a", available_tools=("read_file",)), tools=(mine,)).stages["a"].tools["read_file"] is mine


def test_a_mode_brings_its_tool():
    assert offered(program(Stage("a", mode="output"))) == {"a": ["submit_output"]}


def test_a_tool_that_nobody_has_is_refused_with_the_stage():
    with pytest.raises(SpawnRefused, match=r"stage 'a' of 'made' lists `nope`, `neither`, which nobody has; give it"):
        program(Stage("a", available_tools=("nope", "list_dir", "neither")))


def test_two_functions_of_one_name_are_refused():
    with pytest.raises(SpawnRefused, match="two tools are given under the name `look`"):
        program(Stage("a"), tools=(look, look))


@pytest.mark.parametrize("name", ["submit_output", "context_write", "fan_out"])
def test_a_function_cannot_take_the_place_of_what_the_run_answers_itself(name: str):
    with pytest.raises(SpawnRefused, match=f"`{name}` is a tool that the run itself answers"):
        program(Stage("a"), tools=(Tool(name, "", {"type": "object"}, act.tool.call),))


def test_a_schema_that_cannot_be_compiled_is_a_warning():
    odd = Tool("odd", "", {"$ref": "https://example.com/schema"}, act.tool.call)
    with pytest.warns(RuntimeWarning, match="`odd` cannot be compiled, so its arguments are not checked"):
        made = program(Stage("a", available_tools=("odd",)), tools=(odd,))
    assert offered(made) == {"a": ["odd"]}


@pytest.mark.parametrize("where", ["stage", "blueprint"])
def test_an_answers_schema_that_is_none_is_refused(where: str):
    output = {"output": OutputSpec(schema={"type": "no such type"})}
    made = (Stage("a", **output), {}) if where == "stage" else (Stage("a"), output)
    with pytest.raises(SpawnRefused, match="the output's schema of stage 'a' cannot be compiled: "):
        program(made[0], **made[1])


def test_an_answers_schema_that_is_one_is_taken():
    assert program(Stage("a", output=OutputSpec(schema={"type": "object"})), output=OutputSpec(format="json"))


# --- what all runs share


def test_programs_of_one_definition_have_one_digest_and_of_others_others():
    made = [program(Stage("a")), program(Stage("a")), program(Stage("b")), program(Stage("a"), tools=(look,))]
    digests = [each.digest for each in made]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    assert repr(made[0]) == f"<Program made {digests[0]}>"


def test_stages_follow_each_other_in_the_order_of_the_file():
    made = program(Stage("a"), Stage("b"), Stage("c"))
    assert [made.following(name) for name in "abc"] == ["b", "c", None]
    assert [stage.position for stage in made.stages.values()] == [0, 1, 2]
    assert [stage.name for stage in made.stages.values()] == ["a", "b", "c"]


def test_every_region_is_known_in_declared_order():
    regions = (Region("one"), Region("two"))
    names = list(program(Stage("a"), regions=regions).regions)
    assert names[:2] == ["one", "two"]
    assert set(names) >= {"conversation", "tool_results", "final_output", "stage_instructions"}


def test_a_stage_knows_which_seeds_are_resolved_again_on_entry():
    regions = (
        Region("once", seed=FilesSeed(("x",))),
        Region("again", seed=FilesSeed(("x",), refresh="each_stage")),
        Region("text", seed=LiteralSeed("x")),
    )
    assert program(Stage("a"), regions=regions).stages["a"].refreshing == ("again",)


def test_a_stage_knows_which_regions_its_gates_watch():
    edges = (
        Edge("b", gate=Gate(require_region_updated="notes")),
        Edge("c", gate=Gate(require_modifications=True)),
        Edge("d"),
    )
    stages = (Stage("a", transitions=edges), Stage("b"), Stage("c"), Stage("d"))
    made = program(*stages, regions=(Region("notes"),))
    assert [stage.watched for stage in made.stages.values()] == [("notes",), (), (), ()]


def test_a_stage_that_says_nothing_of_its_model_has_the_blueprints():
    own, common = ModelSettings((ModelChoice("x"),)), ModelSettings((ModelChoice("y"),))
    made = program(Stage("a", model=own), Stage("b"), model=common)
    assert [stage.model for stage in made.stages.values()] == [own, common]
    assert program(Stage("a")).stages["a"].model is None


def test_the_steps_of_the_embedded_provider_are_handed_on():
    steps = (OfflineStep(call="look", args={"word": "x"}, pages=3), OfflineStep(say="done"))
    made = program(Stage("a", offline=steps), Stage("b"), tools=(look,))
    assert made.stages["a"].policy == (PolicyStep(call="look", args={"word": "x"}, pages=3), PolicyStep(say="done"))
    assert made.stages["b"].policy is None


# --- what runs share


def test_equal_texts_of_two_runs_stand_once():
    made = program(Stage("work"))
    first, second = Text.of("s" * 300), Text.of("s" * 300)
    assert first is not second
    assert made.share(first) is made.share(second)


def test_a_short_text_is_not_looked_up():
    made = program(Stage("work"))
    assert made.share(Text.of("s" * 255)) is not made.share(Text.of("s" * 255))


def test_runs_with_nothing_in_common_do_not_keep_each_others_texts():
    made = program(Stage("work"))
    half = MOST_SHARED_BYTES // 2
    one, other, third = (Text.of(letter * half) for letter in "abc")
    assert (made.share(one), made.share(other)) == (one, other)
    assert made.share(third) is third
    assert made.share(Text.of("c" * half)) is not third


@pytest.mark.anyio
async def test_a_run_that_was_looked_at_still_needs_its_functions_to_go_on(tmp_path: Path):
    path = tmp_path / "runs.db"

    @tool
    async def ring() -> str:
        """Ring."""
        return "rung"

    journal = SqliteJournal(path)
    async with swarm_of(ScriptedProvider(Say("late", delay_s=500)), journal=journal) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("ring",))), task="x", tools=[ring])
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_of(ScriptedProvider(), journal=journal) as swarm:
        assert swarm.get(run.run_id).region("task") == "x"
        with pytest.raises(DefinitionMissing, match="has the functions `ring` as tools"):
            await swarm.resume_tree(run.run_id)
    journal.close()


@pytest.mark.anyio
async def test_a_schema_of_a_shipped_script_that_cannot_be_compiled_is_named_too(tmp_path: Path):
    write_files(
        tmp_path / "tools", {"odd.py": "def run(args):\n    return 1\n", "odd.toml": "parameters.properties = 3"}
    )
    made = replace(blueprint(stage("a", available_tools=("odd",))), folder=tmp_path)
    async with swarm_of(ScriptedProvider(call("odd", any="thing"), "done", purposes={"titling": "A title"})) as swarm:
        with pytest.warns(RuntimeWarning, match="`odd` cannot be compiled"):
            run = await swarm.spawn(made, task="t")
        assert (await run.result()).status == "complete"
