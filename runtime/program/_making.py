"""How the stages of a blueprint are made ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from shoal.blueprints import Blueprint, ModelSettings, Stage, stage_tools, tool_name
from shoal.errors import SpawnRefused
from shoal.providers import PolicyStep
from shoal.runtime._output_spec import merged
from shoal.runtime.context import DEFERRED_TOOLS, Components, Theme, layout_of, names_of
from shoal.runtime.program._stage import StageProgram, answering, offer, restricted, tools_of
from shoal.runtime.tools import BUILT_IN, LOAD_TOOLS, Tool, compiled, schema_bytes


@final
@dataclass(frozen=True, slots=True, eq=False)
class Making:
    """What the stages of one blueprint are made of.

    Args:
        blueprint: The blueprint.
        known: The tools that its stages may list, by name.
        for_all: Names of tools that all of them have.
        broken: Why shipped scripts are no tools, by the name of their file.
    """

    blueprint: Blueprint
    known: Mapping[str, Tool]
    for_all: Sequence[str]
    broken: Mapping[str, str]

    def stages(self, components: Components) -> dict[str, StageProgram]:
        """Return the stages made ready, by name, in the order of the file.

        Args:
            components: What may stand in prompts beside regions.

        Raises:
            SpawnRefused: One lists a tool that nobody has, or an answer's schema is none.
        """
        theme = Theme(names_of(self.blueprint))
        made: dict[str, StageProgram] = {}
        for position, stage in enumerate(self.blueprint.stages):
            made[stage.name] = composed(self.blueprint, self._stage(stage, position, theme), components)
        if self.blueprint.tool_list == "run":
            whole = offer(tools_of(made.values()))
            made = {name: restricted(stage, whole) for name, stage in made.items()}
        return looking_ahead(made)

    def _stage(self, stage: Stage, position: int, theme: Theme) -> StageProgram:
        tools = self._tools(stage)
        _check_output(self.blueprint, stage)
        later = deferred_of(stage, tools.values())
        if later:
            tools = {name: tool for name, tool in tools.items() if name not in later}
            tools[LOAD_TOOLS] = BUILT_IN[LOAD_TOOLS]
        layout = layout_of(self.blueprint, stage, theme)
        regions = layout.regions.items()
        gates = [edge.gate for edge in stage.transitions or () if edge.gate is not None]
        program = StageProgram(
            stage,
            layout,
            tools,
            offer(tools),
            _policy(stage),
            position,
            tuple(name for name, region in regions if getattr(region.seed, "refresh", "once") != "once"),
            tuple(gate.require_region_updated for gate in gates if gate.require_region_updated is not None),
            stage.model or self.blueprint.model,
            deferred=later,
        )
        return answering(program, merged(self.blueprint.output, stage.output))

    def _tools(self, stage: Stage) -> dict[str, Tool]:
        """Return the tools of *stage*, by the names under which it has them."""
        known = self.known
        served = [t.name for t in known.values() if t.connector and t.connector[0] in stage.available_connectors]
        names = dict.fromkeys((*stage_tools(stage), *self.for_all, *served))
        missing = [name for name in names if name not in known]
        unusable = next((name for name in missing if name in self.broken), None)
        if unusable is not None:
            raise SpawnRefused(
                f"stage {stage.name!r} of {self.blueprint.name!r} lists `{unusable}`, whose script cannot be used: "
                f"{self.broken[unusable]}"
            )
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            raise SpawnRefused(
                f"stage {stage.name!r} of {self.blueprint.name!r} lists {listed}, which nobody has; "
                "give it with `spawn(tools=[…])`, ship it as `tools/NAME.py`, or take it out of `available_tools`"
            )
        # A tool of a server is offered under its whole name, however the stage calls it.
        return {known[name].name if known[name].connector else name: known[name] for name in names}


def _check_output(blueprint: Blueprint, stage: Stage) -> None:
    for output in (stage.output, blueprint.output):
        if output is not None and output.schema:
            _, why = compiled(schema_bytes(output.schema))
            if why:
                raise SpawnRefused(f"the output's schema of stage {stage.name!r} cannot be compiled: {why}")


def deferred_of(stage: Stage, tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """Return those of *tools* that *stage* shows by name only until the model loads them, by name; sorted."""
    listed = {tool_name(name) for name in stage.deferred_tools}
    chosen = {
        tool.name: tool
        for tool in tools
        if tool.deferred or not listed.isdisjoint((tool.name, *(tool.connector or ())))
    }
    return {name: chosen[name] for name in sorted(chosen)}


def _policy(stage: Stage) -> tuple[PolicyStep, ...] | None:
    if stage.offline is None:
        return None
    return tuple(
        PolicyStep(s.call, dict(s.args), s.for_each, s.extract, s.sentences, s.into, s.say, s.route, s.pages)
        for s in stage.offline
    )


def composed(blueprint: Blueprint, program: StageProgram, known: Components) -> StageProgram:
    """Return *program* with the components that its prompts get: those of the blueprint, and what it cannot do without.

    A model that is not told the names of deferred tools could load none.
    """
    names = (*blueprint.components, *((DEFERRED_TOOLS,) if program.deferred else ()))
    return replace(program, components=known.used(names)) if names else program


def looking_ahead(stages: Mapping[str, StageProgram]) -> dict[str, StageProgram]:
    """Return *stages*, in the order of the file, each knowing whether one that may follow can share its cache."""
    order = [*stages]
    following: dict[str, list[str]] = {}
    for name, program in stages.items():
        edges = program.stage.transitions
        behind = order[program.position + 1 : program.position + 2]
        following[name] = behind if edges is None else [edge.target for edge in edges if edge.target in stages]
    made: dict[str, StageProgram] = {}
    for name, program in stages.items():
        reached: dict[str, None] = {}
        left = [*following[name]]
        while left:
            target = left.pop()
            if target not in reached:
                reached[target] = None
                left += following[target]
        shares = any(_shares_cache(program, stages[target]) for target in reached if target != name)
        made[name] = replace(program, stages_ahead=shares)
    return made


def _shares_cache(one: StageProgram, other: StageProgram) -> bool:
    return one.offered.digest == other.offered.digest and _asked_of(one.model) == _asked_of(other.model)


def _asked_of(model: ModelSettings | None) -> object:
    return None if model is None else (model.models, model.allow_user_default, model.parameters)
