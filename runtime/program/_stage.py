"""One stage made ready, and how it looks to a run that answers otherwise, has more tools, or fewer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final

from shoal.blueprints import ModelSettings, OutputSpec, Stage, tool_name
from shoal.providers import NO_TOOLS, PolicyStep, ToolSet
from shoal.runtime._output_spec import told
from shoal.runtime.context import ContextComponent, Layout
from shoal.runtime.program._tools import by_any_name
from shoal.runtime.tools import BUILT_IN, LOAD_TOOLS, SUBMIT_OUTPUT, Tool


@final
@dataclass(frozen=True, slots=True, eq=False)
class StageProgram:
    """One stage made ready.

    Args:
        stage: Its definition.
        layout: What it sees.
        tools: Its tools by name.
        offered: What a request offers.
        policy: The offline provider's steps; `None` for its default.
        position: Its place in the file, from 0.
        refreshing: Regions whose seed is resolved again on each entry, in declared order.
        watched: Regions whose content a gate compares with the stage's entry.
        model: Who serves it and how it is called: its own word, else the blueprint's; `None` for the host's default.
        stages_ahead: A stage that may follow, at once or later, offers the same tools to the same model.
        output: What its answer has to look like.
        allowed: Of *offered*, the tools that it may call, by name; `None` for all of them.
        deferred: Tools that stand by name only until the model loads them, by name; sorted.
        components: What stands in its prompt beside regions, in order.
    """

    stage: Stage
    layout: Layout
    tools: Mapping[str, Tool]
    offered: ToolSet
    policy: tuple[PolicyStep, ...] | None
    position: int
    refreshing: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    model: ModelSettings | None = None
    stages_ahead: bool = False
    output: OutputSpec = field(default_factory=OutputSpec)
    allowed: tuple[str, ...] | None = None
    deferred: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    components: tuple[ContextComponent, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.stage.name


def offer(tools: Mapping[str, Tool]) -> ToolSet:
    """Return what a request offers of *tools*, sorted by name."""
    if not tools:
        return NO_TOOLS
    chosen = [tools[name] for name in sorted(tools)]
    return ToolSet(tuple(tool.spec for tool in chosen), sum(tool.tokens for tool in chosen))


def answering(program: StageProgram, spec: OutputSpec) -> StageProgram:
    """Return *program* with an answer that has to look like *spec*, which the tool that takes it says."""
    submit, said = program.tools.get(SUBMIT_OUTPUT), told(spec)
    if submit is None or not said:
        return replace(program, output=spec)
    described = replace(submit, description=f"{BUILT_IN[SUBMIT_OUTPUT].description}\n{said}")
    tools = {**program.tools, SUBMIT_OUTPUT: described}
    return replace(program, tools=tools, offered=offer(tools), output=spec)


def without(program: StageProgram, names: Collection[str]) -> StageProgram:
    """Return *program* without its tools of *names*; where that leaves nothing to load, nothing is loaded."""
    if not any(name in program.tools or name in program.deferred for name in names):
        return program
    later = {name: tool for name, tool in program.deferred.items() if name not in names}
    gone = {*names, *(() if later else (LOAD_TOOLS,))} if program.deferred else names
    tools = {name: tool for name, tool in program.tools.items() if name not in gone}
    return replace(program, tools=tools, offered=offer(tools), deferred=later)


def tools_of(stages: Iterable[StageProgram]) -> Mapping[str, Tool]:
    """Return the tools of *stages*, in whose requests all of them stand; of two of one name the first stage's."""
    tools: dict[str, Tool] = {}
    for stage in stages:
        tools = {**stage.tools, **tools}
    return tools


def restricted(program: StageProgram, offered: ToolSet) -> StageProgram:
    """Return *program* with all of *offered* in its requests, of which it may call its own."""
    return replace(program, offered=offered, allowed=tuple(sorted(program.tools)))


def loadable(program: StageProgram, wanted: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which of *wanted* are deferred tools of the stage, by their own names, and which are not."""
    by_name = by_any_name([tool for tool in program.deferred.values() if tool.connector])
    known: dict[str, None] = {}
    unknown: list[str] = []
    for each in wanted:
        name = tool_name(each)
        found = program.deferred.get(name) or by_name.get(name)
        if found is None:
            unknown.append(each)
        else:
            known[found.name] = None
    return tuple(known), tuple(unknown)


def with_own(program: StageProgram, own: Sequence[Tool]) -> StageProgram:
    """Return *program* with the tools that the run found in its own folder on offer, behind all others."""
    return _behind(program, {tool.name: tool for tool in own}) if own else program


def loaded(program: StageProgram, names: Iterable[str]) -> StageProgram:
    """Return *program* with its deferred tools of *names* on offer, behind all others, in that order."""
    more = {name: program.deferred[name] for name in names if name in program.deferred}
    return _behind(program, more) if more else program


def _behind(program: StageProgram, more: Mapping[str, Tool]) -> StageProgram:
    behind = [tool for name, tool in more.items() if name not in {spec.name for spec in program.offered.specs}]
    specs = (*program.offered.specs, *(tool.spec for tool in behind))
    offered = ToolSet(specs, program.offered.tokens + sum(tool.tokens for tool in behind))
    allowed = None if program.allowed is None else tuple(sorted({*program.allowed, *more}))
    return replace(program, tools={**program.tools, **more}, offered=offered, allowed=allowed)
