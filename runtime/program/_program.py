"""A blueprint made ready to run: what all runs of one definition share.

A run's memory is its window; what it is made of stands here once, however many runs there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import final

from shoal.blueprints import Region, stage_tools, tool_name
from shoal.providers import Text
from shoal.runtime._bundle import Bundle, definition_of, read_definition
from shoal.runtime._output_spec import NOTHING_ASKED, OutputAsked, merged
from shoal.runtime.context import SHIPPED, Components
from shoal.runtime.program._making import Making
from shoal.runtime.program._stage import StageProgram, answering, offer, restricted, tools_of, without
from shoal.runtime.program._tools import by_any_name, check_given, shipped, shown_only, warn_of_schemas
from shoal.runtime.scripts import Script
from shoal.runtime.tools import BUILT_IN, MEMORY, Tool

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
        check_given(self.given)
        self.shipped, broken = shipped(bundle.tools)
        """Tools that the blueprint ships as scripts, each with its file."""
        warn_of_schemas(self.given)
        # A function given in code takes the place of a script of its name: whoever runs the blueprint trusts it more.
        known = {
            **by_any_name(self.connected),
            **BUILT_IN,
            **{tool.name: tool for tool, _ in self.shipped},
            **{tool.name: tool for tool in self.given},
        }
        self.outside: Mapping[str, Tool] = {name: tool for name, tool in known.items() if tool.call is not None}
        """The tools that reach outside the run, by name."""
        listed = {name for stage in blueprint.stages for name in stage_tools(stage)}
        # Functions given in code belong to the stages that list them; if none does, to all.
        for_all = tuple(tool.name for tool in self.given if tool.name not in listed)
        making = Making(blueprint, known, for_all, broken)
        self.stages: Mapping[str, StageProgram] = making.stages(SHIPPED if components is None else components)
        """Its stages made ready, by name, in the order of the file."""
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
                known = restricted(known, offer(tools_of(every)))
            self._seen[key] = known
        return known

    def _own(self, stage: str, *, unattended: bool, asked: OutputAsked, remembers: bool) -> StageProgram:
        whole = self.stages[stage]
        if asked != NOTHING_ASKED:
            whole = answering(whole, merged(self.blueprint.output, whole.stage.output, asked))
        if not remembers:
            whole = without(whole, MEMORY)
        if not unattended:
            return whole
        needed = {tool_name(name) for name in whole.stage.required_tools}
        held = {**whole.tools, **whole.deferred}
        return without(whole, {n for n, tool in held.items() if tool.effects.asks_human and n not in needed})

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
