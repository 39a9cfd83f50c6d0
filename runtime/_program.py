"""A blueprint made ready to run: what all runs of one definition share.

A run's memory is its window; what it is made of stands here once, however many runs there are.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

from shoal.blueprints import Blueprint, ModelSettings, OutputSpec, Region, Stage, stage_tools, tool_name
from shoal.errors import SpawnRefused, ToolInvalid
from shoal.providers import NO_TOOLS, PolicyStep, Text, ToolSet
from shoal.runtime._bundle import Bundle, definition_of, read_definition
from shoal.runtime._output_spec import NOTHING_ASKED, OutputAsked, merged, told
from shoal.runtime._script_tools import ToolFile, script_tool
from shoal.runtime.context import Layout, Theme, layout_of, names_of
from shoal.runtime.scripts import Script
from shoal.runtime.tools import BUILT_IN, SUBMIT_OUTPUT, Effects, Tool, compiled, schema_bytes


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
        *,
        recorded_as: str | None = None,
    ) -> None:
        blueprint = bundle.blueprint
        self.bundle = bundle
        self.blueprint = blueprint
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
        if blueprint.tool_list == "run":
            whole = offer(_tools_of(stages.values()))
            stages = {name: _restricted(stage, whole) for name, stage in stages.items()}
        self.stages: Mapping[str, StageProgram] = _looking_ahead(stages)
        self._seen: dict[tuple[str, bool, OutputAsked], StageProgram] = {}
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

    def seen(self, stage: str, *, unattended: bool, asked: OutputAsked = NOTHING_ASKED) -> StageProgram:
        """Return *stage* as a run sees it.

        Args:
            stage: The stage.
            unattended: Nobody is there to ask: it is offered no tool that would wait for a person.
            asked: What whoever spawned the run asks of its answer.
        """
        key = (stage, unattended, asked)
        known = self._seen.get(key)
        if known is None:
            known = self._own(stage, unattended=unattended, asked=asked)
            if self.blueprint.tool_list == "run":
                every = [self._own(name, unattended=unattended, asked=asked) for name in self.stages]
                known = _restricted(known, offer(_tools_of(every)))
            self._seen[key] = known
        return known

    def _own(self, stage: str, *, unattended: bool, asked: OutputAsked) -> StageProgram:
        whole = self.stages[stage]
        if asked != NOTHING_ASKED:
            whole = _answering(whole, merged(self.blueprint.output, whole.stage.output, asked))
        return _left_alone(whole) if unattended else whole

    @property
    def tool_scripts(self) -> Sequence[Script]:
        """The scripts of the shipped tools that its stages list."""
        used = {id(tool) for stage in self.stages.values() for tool in stage.tools.values()}
        return [Script(file.path, file.source) for tool, file in self.shipped if id(tool) in used]

    @property
    def regions(self) -> Mapping[str, Region]:
        """Every region's definition, in declared order, wherever it is declared."""
        return self.stages[self.blueprint.entry].layout.everything

    def following(self, stage: str) -> str | None:
        """Return the stage that stands behind *stage* in the file; `None` for the last."""
        position = self.stages[stage].position + 1
        return self.blueprint.stages[position].name if position < len(self.blueprint.stages) else None


def recorded(definition: bytes) -> Program:
    """Return what the journal holds of a run's definition, for those who only look at the run.

    Functions that were given in code stand in it with name and schema; nothing can call them.

    Raises:
        DefinitionMissing: It was written by a newer version.
    """
    bundle, given = read_definition(definition)
    tools = [shown_only(each) for each in given]
    return Program(bundle, [t for t in tools if not t.connector], [t for t in tools if t.connector])


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
        _, why = compiled(tool.spec.schema)
        if why:
            said = f"the schema of the tool `{tool.name}` cannot be compiled, so its arguments are not checked: {why}"
            warnings.warn(said, RuntimeWarning, stacklevel=3)


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


def _left_alone(program: StageProgram) -> StageProgram:
    """Return *program* without the tools that wait for a person, but those that its stage cannot do without."""
    needed = {tool_name(name) for name in program.stage.required_tools}
    tools = {name: t for name, t in program.tools.items() if not t.effects.asks_human or name in needed}
    return program if len(tools) == len(program.tools) else replace(program, tools=tools, offered=offer(tools))


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


def _policy(stage: Stage) -> tuple[PolicyStep, ...] | None:
    if stage.offline is None:
        return None
    return tuple(
        PolicyStep(s.call, dict(s.args), s.for_each, s.extract, s.sentences, s.into, s.say, s.route, s.pages)
        for s in stage.offline
    )
