"""A blueprint made ready to run: what all runs of one definition share.

A run's memory is its window; what it is made of stands here once, however many runs there are.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from shoal.blueprints import Blueprint, ModelSettings, OutputSpec, Region, Stage, stage_tools, tool_name
from shoal.errors import SpawnRefused, ToolInvalid
from shoal.providers import NO_TOOLS, PolicyStep, Text, ToolSet
from shoal.runtime._bundle import Bundle, definition_of, read_definition
from shoal.runtime._output_spec import NOTHING_ASKED, OutputAsked, merged, told
from shoal.runtime._script_tools import ToolFile, script_tool
from shoal.runtime.context import (
    DEFERRED_TOOLS,
    SHIPPED,
    Components,
    ContextComponent,
    Layout,
    Theme,
    layout_of,
    names_of,
)
from shoal.runtime.scripts import Script
from shoal.runtime.tools import BUILT_IN, LOAD_TOOLS, MEMORY, SUBMIT_OUTPUT, Effects, Tool, compiled, schema_bytes


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


_SHARED_FROM_BYTES = 256
"""A shorter text costs less than looking for its like."""
MOST_SHARED_BYTES = 16 * 1024 * 1024
"""Most bytes of texts that the runs of one definition share."""


@final
class Program:
    """A blueprint made ready to run.

    Args:
        bundle: The blueprint, with the ones its stages name as workers.
        given: Tools that the spawn brings in code.
        connected: Tools of MCP servers; the stages that list them, or their servers, see them.
        components: What may stand in prompts beside regions; `None` for what ships.
        recorded_as: Digest under which the journal holds it where it was read from there; `None` elsewhere. Functions
            that were changed since give it another digest now.

    Raises:
        SpawnRefused: A stage lists a tool that nobody has, a given one would take another's place, or an answer's
            schema is none.
    """

    def __init__(
        self,
        bundle: Bundle,
        given: Sequence[Tool] = (),
        connected: Sequence[Tool] = (),
        components: Components | None = None,
        *,
        recorded_as: str | None = None,
    ) -> None:
        blueprint = bundle.blueprint
        self.bundle = bundle
        self.blueprint = blueprint
        self.function = bundle.function
        """The agentic function that a run of it is; `None` for one that walks its stages."""
        self.given = tuple(given)
        self.connected = tuple(connected)
        self.definition = definition_of(bundle, (*self.given, *self.connected))
        """What the journal keeps of it."""
        self.digest = hashlib.sha256(self.definition).hexdigest()[:32]
        self.recorded_as = recorded_as or self.digest
        _check_given(self.given)
        theme = Theme(names_of(blueprint))
        self.shipped, broken = _shipped(bundle.tools)
        """Tools that the blueprint ships as scripts, each with its file."""
        warn_of_schemas(self.given)
        # A function given in code takes the place of a script of its name: whoever runs the blueprint trusts it more.
        known = {
            **by_any_name(self.connected),
            **BUILT_IN,
            **{tool.name: tool for tool, _ in self.shipped},
            **{t.name: t for t in self.given},
        }
        self.outside: Mapping[str, Tool] = {name: tool for name, tool in known.items() if tool.call is not None}
        """The tools that reach outside the run, by name."""
        listed = {name for stage in blueprint.stages for name in stage_tools(stage)}
        # Functions given in code belong to the stages that list them; if none does, to all.
        for_all = tuple(tool.name for tool in self.given if tool.name not in listed)
        stages = {
            stage.name: _stage(blueprint, stage, position, known, for_all, theme, broken)
            for position, stage in enumerate(blueprint.stages)
        }
        known_components = SHIPPED if components is None else components
        stages = {name: _composed(blueprint, stage, known_components) for name, stage in stages.items()}
        if blueprint.tool_list == "run":
            whole = offer(_tools_of(stages.values()))
            stages = {name: _restricted(stage, whole) for name, stage in stages.items()}
        self.stages: Mapping[str, StageProgram] = _looking_ahead(stages)
        self._seen: dict[tuple[str, bool, OutputAsked, bool], StageProgram] = {}
        self._shared: dict[Text, Text] = {}
        self._shared_bytes = 0

    def __repr__(self) -> str:
        return f"<Program {self.blueprint.name} {self.digest}>"

    def share(self, text: Text) -> Text:
        """Return *text*, or the same text as another run of this definition holds it: what is equal stands once.

        Seeds are what runs have in common. Only so much of them is kept, so that runs which have nothing in common do
        not keep each other's texts alive.
        """
        held = self._shared.get(text)
        if held is None:
            if len(text) < _SHARED_FROM_BYTES or self._shared_bytes + len(text) > MOST_SHARED_BYTES:
                return text
            held = self._shared[text] = text
            self._shared_bytes += len(text)
        return held

    def seen(
        self, stage: str, *, unattended: bool, asked: OutputAsked = NOTHING_ASKED, remembers: bool = False
    ) -> StageProgram:
        """Return *stage* as a run sees it.

        Args:
            stage: The stage.
            unattended: Nobody is there to ask: it is offered no tool that would wait for a person.
            asked: What whoever spawned the run asks of its answer.
            remembers: There is a memory; without one the tools on it are not offered.
        """
        key = (stage, unattended, asked, remembers)
        known = self._seen.get(key)
        if known is None:
            known = self._own(stage, unattended=unattended, asked=asked, remembers=remembers)
            if self.blueprint.tool_list == "run":
                every = [
                    self._own(name, unattended=unattended, asked=asked, remembers=remembers) for name in self.stages
                ]
                known = _restricted(known, offer(_tools_of(every)))
            self._seen[key] = known
        return known

    def _own(self, stage: str, *, unattended: bool, asked: OutputAsked, remembers: bool) -> StageProgram:
        whole = self.stages[stage]
        if asked != NOTHING_ASKED:
            whole = _answering(whole, merged(self.blueprint.output, whole.stage.output, asked))
        if not remembers:
            whole = _without(whole, MEMORY)
        if not unattended:
            return whole
        needed = {tool_name(name) for name in whole.stage.required_tools}
        held = {**whole.tools, **whole.deferred}
        return _without(whole, {n for n, tool in held.items() if tool.effects.asks_human and n not in needed})

    @property
    def tool_scripts(self) -> Sequence[Script]:
        """The scripts of the shipped tools that its stages list."""
        used = {
            id(tool) for stage in self.stages.values() for tool in (*stage.tools.values(), *stage.deferred.values())
        }
        return [Script(file.path, file.source) for tool, file in self.shipped if id(tool) in used]

    @property
    def regions(self) -> Mapping[str, Region]:
        """Every region's definition, in declared order, wherever it is declared."""
        return self.stages[self.blueprint.entry].layout.everything

    def following(self, stage: str) -> str | None:
        """Return the stage that stands behind *stage* in the file; `None` for the last."""
        position = self.stages[stage].position + 1
        return self.blueprint.stages[position].name if position < len(self.blueprint.stages) else None


def recorded(definition: bytes, components: Components | None = None) -> Program:
    """Return what the journal holds of a run's definition, for those who only look at the run.

    Functions that were given in code stand in it with name and schema; nothing can call them. Of its components those
    show that are among *components*; `None` for what ships.

    Raises:
        DefinitionMissing: It was written by a newer version.
    """
    bundle, given = read_definition(definition)
    tools = [shown_only(each) for each in given]
    return Program(bundle, [t for t in tools if not t.connector], [t for t in tools if t.connector], components)


def shown_only(recorded: Mapping[str, Any]) -> Tool:
    """Return a tool as the journal holds it, which nothing can call."""
    source, connector = recorded["source"], recorded.get("connector")
    effects = Effects(**recorded.get("effects", {}))
    return Tool(
        recorded["name"],
        recorded["description"],
        recorded["schema"],
        None,
        "ask" if connector else "allow",
        effects,
        source and tuple(source),
        connector and tuple(connector),
        recorded.get("deferred", False),
    )


def shipped_names(files: Sequence[ToolFile]) -> frozenset[str]:
    """Return the names of the tools that *files* are."""
    return frozenset([tool.name for tool, _ in _shipped(files)[0]]) if files else frozenset()


def _shipped(files: Sequence[ToolFile]) -> tuple[tuple[tuple[Tool, ToolFile], ...], Mapping[str, str]]:
    """Return the tools that *files* are, and why others are none, by the name of their file."""
    made: list[tuple[Tool, ToolFile]] = []
    broken: dict[str, str] = {}
    for file in files:
        known = {tool.name: repr(other.path) for tool, other in made}
        try:
            tool = script_tool(file)
        except ToolInvalid as why:
            broken[file.stem] = str(why)
            continue
        if tool.name in BUILT_IN or tool.name in known:
            whose = known.get(tool.name, "a built-in one")
            broken[file.stem] = f"{file.path!r} calls its tool `{tool.name}`, as {whose} is called; rename it"
        else:
            made.append((tool, file))
    return tuple(made), broken


def _stage(
    blueprint: Blueprint,
    stage: Stage,
    position: int,
    known: Mapping[str, Tool],
    for_all: Sequence[str],
    theme: Theme,
    broken: Mapping[str, str],
) -> StageProgram:
    served = [t.name for t in known.values() if t.connector and t.connector[0] in stage.available_connectors]
    names = dict.fromkeys((*stage_tools(stage), *for_all, *served))
    missing = [name for name in names if name not in known]
    unusable = next((name for name in missing if name in broken), None)
    if unusable is not None:
        raise SpawnRefused(
            f"stage {stage.name!r} of {blueprint.name!r} lists `{unusable}`, whose script cannot be used: "
            f"{broken[unusable]}"
        )
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        raise SpawnRefused(
            f"stage {stage.name!r} of {blueprint.name!r} lists {listed}, which nobody has; "
            "give it with `spawn(tools=[…])`, ship it as `tools/NAME.py`, or take it out of `available_tools`"
        )
    # A tool of a server is offered under its whole name, however the stage calls it.
    tools = {known[name].name if known[name].connector else name: known[name] for name in names}
    later = deferred_of(stage, tools.values())
    if later:
        tools = {name: tool for name, tool in tools.items() if name not in later}
        tools[LOAD_TOOLS] = BUILT_IN[LOAD_TOOLS]
    _check_output(blueprint, stage)
    layout = layout_of(blueprint, stage, theme)
    regions = layout.regions.items()
    refreshing = tuple(name for name, region in regions if getattr(region.seed, "refresh", "once") != "once")
    gates = [edge.gate for edge in stage.transitions or () if edge.gate is not None]
    watched = tuple(gate.require_region_updated for gate in gates if gate.require_region_updated is not None)
    program = StageProgram(
        stage,
        layout,
        tools,
        offer(tools),
        _policy(stage),
        position,
        refreshing,
        watched,
        stage.model or blueprint.model,
        deferred=later,
    )
    return _answering(program, merged(blueprint.output, stage.output))


def _looking_ahead(stages: Mapping[str, StageProgram]) -> dict[str, StageProgram]:
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


def by_any_name(connected: Sequence[Tool]) -> Mapping[str, Tool]:
    """Return tools of MCP servers by the names that stages may use: the whole one, and the bare one if unique."""
    bare = Counter(tool.connector[1] for tool in connected if tool.connector)
    short = {tool.connector[1]: tool for tool in connected if tool.connector and bare[tool.connector[1]] == 1}
    return {**short, **{tool.name: tool for tool in connected}}


def _check_given(given: Sequence[Tool]) -> None:
    names = Counter(tool.name for tool in given)
    for tool in given:
        built_in = BUILT_IN.get(tool.name)
        if names[tool.name] > 1:
            raise SpawnRefused(f"two tools are given under the name `{tool.name}`; rename one of them")
        if built_in is not None and built_in.call is None:
            raise SpawnRefused(f"`{tool.name}` is a tool that the run itself answers; give yours another name")


def warn_of_schemas(tools: Iterable[Tool]) -> None:
    """Say which of *tools* have a schema that cannot be compiled; what can only be looked at calls nothing."""
    for tool in tools:
        _, why = compiled(tool.spec.schema)
        if why and tool.call is not None:
            said = f"the schema of the tool `{tool.name}` cannot be compiled, so its arguments are not checked: {why}"
            warnings.warn(said, RuntimeWarning, stacklevel=4)


def _check_output(blueprint: Blueprint, stage: Stage) -> None:
    for output in (stage.output, blueprint.output):
        if output is not None and output.schema:
            _, why = compiled(schema_bytes(output.schema))
            if why:
                raise SpawnRefused(f"the output's schema of stage {stage.name!r} cannot be compiled: {why}")


def _answering(program: StageProgram, spec: OutputSpec) -> StageProgram:
    """Return *program* with an answer that has to look like *spec*, which the tool that takes it says."""
    submit, said = program.tools.get(SUBMIT_OUTPUT), told(spec)
    if submit is None or not said:
        return replace(program, output=spec)
    described = replace(submit, description=f"{BUILT_IN[SUBMIT_OUTPUT].description}\n{said}")
    tools = {**program.tools, SUBMIT_OUTPUT: described}
    return replace(program, tools=tools, offered=offer(tools), output=spec)


def _without(program: StageProgram, names: Collection[str]) -> StageProgram:
    """Return *program* without its tools of *names*; where that leaves nothing to load, nothing is loaded."""
    if not any(name in program.tools or name in program.deferred for name in names):
        return program
    later = {name: tool for name, tool in program.deferred.items() if name not in names}
    gone = {*names, *(() if later else (LOAD_TOOLS,))} if program.deferred else names
    tools = {name: tool for name, tool in program.tools.items() if name not in gone}
    return replace(program, tools=tools, offered=offer(tools), deferred=later)


def _tools_of(stages: Iterable[StageProgram]) -> Mapping[str, Tool]:
    """Return the tools of *stages*, in whose requests all of them stand; of two of one name the first stage's."""
    tools: dict[str, Tool] = {}
    for stage in stages:
        tools = {**stage.tools, **tools}
    return tools


def _restricted(program: StageProgram, offered: ToolSet) -> StageProgram:
    """Return *program* with all of *offered* in its requests, of which it may call its own."""
    return replace(program, offered=offered, allowed=tuple(sorted(program.tools)))


def offer(tools: Mapping[str, Tool]) -> ToolSet:
    """Return what a request offers of *tools*, sorted by name."""
    if not tools:
        return NO_TOOLS
    chosen = [tools[name] for name in sorted(tools)]
    return ToolSet(tuple(tool.spec for tool in chosen), sum(tool.tokens for tool in chosen))


# --- tools that are loaded later


def deferred_of(stage: Stage, tools: Iterable[Tool]) -> Mapping[str, Tool]:
    """Return those of *tools* that *stage* shows by name only until the model loads them, by name; sorted."""
    listed = {tool_name(name) for name in stage.deferred_tools}
    chosen = {
        tool.name: tool
        for tool in tools
        if tool.deferred or not listed.isdisjoint((tool.name, *(tool.connector or ())))
    }
    return {name: chosen[name] for name in sorted(chosen)}


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


def _composed(blueprint: Blueprint, program: StageProgram, known: Components) -> StageProgram:
    """Return *program* with the components that its prompts get: those of the blueprint, and what it cannot do without.

    A model that is not told the names of deferred tools could load none.
    """
    names = (*blueprint.components, *((DEFERRED_TOOLS,) if program.deferred else ()))
    return replace(program, components=known.used(names)) if names else program


def _policy(stage: Stage) -> tuple[PolicyStep, ...] | None:
    if stage.offline is None:
        return None
    return tuple(
        PolicyStep(s.call, dict(s.args), s.for_each, s.extract, s.sentences, s.into, s.say, s.route, s.pages)
        for s in stage.offline
    )
