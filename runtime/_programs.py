"""What runs are made of: read from files, built in Python, recorded in the journal; each made ready once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar, final

from shoal.blueprints import Blueprint, Stage, load, refuse_unusable, resolve
from shoal.errors import DefinitionMissing, SpawnRefused
from shoal.runtime._bundle import Bundle, bundle_of, read_definition
from shoal.runtime._connections import Connections
from shoal.runtime._function import AgenticCall, AgenticFunction, find
from shoal.runtime._script_tools import signature
from shoal.runtime._seed_files import OWN_FOLDER
from shoal.runtime.context import AGENTIC, SHIPPED, Components
from shoal.runtime.events import RunSpawned
from shoal.runtime.journal import Journal
from shoal.runtime.program import Program, recorded, warn_of_schemas
from shoal.runtime.scripts import MARK, Sandbox
from shoal.runtime.tools import Tool

_KEPT = 256
"""Definitions, and files, that are kept ready; the one that was used longest ago goes first."""
_K = TypeVar("_K")
_V = TypeVar("_V")


@final
class _Recent(Generic[_K, _V]):
    """The values that were used last, by key."""

    def __init__(self) -> None:
        self._values: dict[_K, _V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: _K, make: Callable[[], _V]) -> _V:
        """Return the value of *key*, made where it is not kept."""
        value = self._values.pop(key) if key in self._values else make()
        self._values[key] = value
        if len(self._values) > _KEPT:
            del self._values[next(iter(self._values))]
        return value


@final
class Programs:
    """What runs are made of: blueprints and agentic functions, read or recorded, and each made ready to run once.

    Args:
        journal: Where definitions are kept.
        components: What may stand in prompts beside regions.
        connections: MCP servers whose tools runs may use.
        sandbox: Knows the functions that stand in the place of scripts.
    """

    def __init__(self, journal: Journal, components: Components, connections: Connections, sandbox: Sandbox) -> None:
        self._journal = journal
        self._components = components
        self._connections = connections
        self._sandbox = sandbox
        self._functions: dict[str, AgenticFunction[..., Any]] = {}
        """Agentic functions that were given in code, by qualified name; others are imported."""
        self._ready: _Recent[tuple[object, ...], tuple[object, Program]] = _Recent()
        self._files: _Recent[tuple[object, ...], Bundle] = _Recent()
        self._adopted: _Recent[tuple[object, ...], Bundle] = _Recent()

    def __repr__(self) -> str:
        return f"<Programs {len(self._ready)} ready, {len(self._files)} files read>"

    def bundle(self, blueprint: str | Path | Blueprint | AgenticCall[Any]) -> Bundle:
        """Return *blueprint* with its workers; a file that did not change, or the same object, is looked at once.

        Args:
            blueprint: A name of the library, a path, a blueprint built in Python, or a call of an agentic function.

        Raises:
            BlueprintError: It cannot be found or loaded, or a name in it stands for nothing.
        """
        if isinstance(blueprint, AgenticCall):
            return self.enlist(blueprint.function)
        if isinstance(blueprint, Blueprint):
            key = (id(blueprint), signature(blueprint.folder))
            return self._adopted.get(key, lambda: self._adopt(blueprint))
        return self._read(resolve(blueprint))

    def _read(self, path: Path) -> Bundle:
        file = path / "blueprint.toml" if path.is_dir() else path
        if not file.exists():
            file = path / "agent.leviath"
        if not file.exists():
            return bundle_of(load(path), _load)  # which says what is missing
        known = file.stat()
        key = (path, known.st_mtime_ns, known.st_size, signature(file.parent))
        return self._files.get(key, lambda: bundle_of(load(path), _load))

    def _adopt(self, blueprint: Blueprint) -> Bundle:
        refuse_unusable(blueprint)
        return bundle_of(blueprint, _load)

    async def of(self, bundle: Bundle, tools: Sequence[Tool] = ()) -> Program:
        """Return *bundle* made ready to run; runs of one bundle with the same tools share it.

        Raises:
            SpawnRefused: It lists tools that nobody has, or a server of tools cannot be reached.
        """
        needs = len(self._connections) or any(stage.available_connectors for stage in bundle.blueprint.stages)
        connected = await self._connections.tools_for(bundle, tools) if needs else ()
        key = (id(bundle), *map(id, tools), *map(id, connected))
        # What the key names is kept with the program: while that lives, its ids name nothing else.
        return self._ready.get(key, lambda: ((bundle, tools, connected), self._composed(bundle, tools, connected)))[1]

    def _composed(self, bundle: Bundle, tools: Sequence[Tool], connected: Sequence[Tool]) -> Program:
        self._check_components(bundle)
        program = Program(bundle, tools, connected, self._components)
        warn_of_schemas((*connected, *(tool for tool, _ in program.shipped)))
        return program

    def _check_components(self, bundle: Bundle) -> None:
        missing = [name for name in bundle.blueprint.components if name not in self._components]
        if missing:
            near = get_close_matches(missing[0], [each.name for each in self._components], n=1)
            hint = f"did you mean `{near[0]}`?" if near else "register it with `swarm.components.register(…)`"
            raise SpawnRefused(
                f"{bundle.blueprint.name!r} wants the component {missing[0]!r} in its prompts, and this swarm has none"
                f" of that name; {hint}"
            )
        used = self._components.used(bundle.blueprint.components)
        odd = [each.name for each in used if each.layer == "L2"]
        if odd and bundle.function is None:
            raise SpawnRefused(
                f"{bundle.blueprint.name!r} wants the component {odd[0]!r} in its prompts, which stands in calls of "
                "agentic functions only; take it out"
            )

    def enlist(self, function: AgenticFunction[..., Any]) -> Bundle:
        """Take note of *function*, and return what a run of it is made of."""
        source = function.source
        self._functions[source.qualname] = function
        known = [each.name for each in self._components]
        used = tuple([name for name in known if name in AGENTIC or name not in SHIPPED])
        key = (source, function.name, function.job, used)
        return self._adopted.get(key, lambda: Bundle(_blueprint_of(function, used), function=source))

    def function(self, qualname: str) -> AgenticFunction[..., Any]:
        """Return the agentic function of a qualified name: as it was given in code, else imported.

        Raises:
            DefinitionMissing: It cannot be had.
        """
        return self._functions.get(qualname) or find(qualname)

    def check_function(self, program: Program) -> None:
        """See that the agentic function that a run of *program* is, if it is one, is here; a changed one is named.

        Raises:
            DefinitionMissing: It is not; it is named.
        """
        was = program.function
        if was is not None and self.function(was.qualname).source.digest != was.digest:
            said = f"the agentic function {was.qualname!r} is not what it was when the run began"
            warnings.warn(said, RuntimeWarning, stacklevel=3)

    def defined(self, digest: str, tools: Sequence[Tool] = ()) -> Program:
        """Return what the journal holds under *digest*, made ready to run.

        Raises:
            DefinitionMissing: It is not there, or needs functions that were not given again.
        """
        key = (digest, *map(id, tools))
        return self._ready.get(key, lambda: (tools, self._recorded(digest, tools)))[1]

    def _recorded(self, digest: str, tools: Sequence[Tool]) -> Program:
        bundle, given = read_definition(self._journal.definition(digest))
        at_hand = {tool.name: tool for tool in tools}
        connected = [self._connections.recorded(tool) for tool in given if tool.get("connector")]
        given = [tool for tool in given if not tool.get("connector")]
        missing = [str(tool["name"]) for tool in given if tool["name"] not in at_hand]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            raise DefinitionMissing(f"this run has the functions {listed} as tools; give them again with `tools=[…]`")
        missing = [name for name in bundle.blueprint.components if name not in self._components]
        if missing:
            raise DefinitionMissing(
                f"this run has the component {missing[0]!r} in its prompts; register it again with `swarm.components`"
            )
        functions = [at_hand[str(tool["name"])] for tool in given]
        return Program(bundle, functions, connected, self._components, recorded_as=digest)

    def check_functions(self, spawned: RunSpawned, tools: Sequence[Tool]) -> None:
        """See that the functions that stand in the place of a run's scripts are here; a changed one is named.

        Functions that it has as *tools* are named too, where their source is not what it was.

        Raises:
            DefinitionMissing: One is not; it is named.
        """
        for said in self._changed(spawned, tools):
            warnings.warn(f"{said} when the run began", RuntimeWarning, stacklevel=3)

    def _changed(self, spawned: RunSpawned, tools: Sequence[Tool]) -> Iterator[str]:
        here_now = {tool.name: tool.source for tool in tools}
        for was in spawned.tools:
            now = here_now.get(was.name)
            if now is not None and now[1] != was.digest:
                yield f"the function {was.name!r}, a tool of this run, is not what it was"
        for path, digest in spawned.scripts:
            kept = self._journal.definition(digest).decode()
            if not kept.startswith(MARK):
                continue
            name = path.removeprefix(OWN_FOLDER)
            here = self._sandbox.trusted(name)
            if here is None:
                raise DefinitionMissing(
                    f"this run has functions in the place of the script {name!r}; give them again with `scripts={{…}}`"
                )
            if here.digest != digest:
                yield f"the functions in the place of the script {name!r} are not what they were"

    def looked_at(self, digest: str) -> Program:
        """Return what the journal holds under *digest*, for whoever only looks at a run and calls no tool."""
        key = ("looked at", digest)
        return self._ready.get(key, lambda: (None, recorded(self._journal.definition(digest), self._components)))[1]

    def made(self, kept: Program | None, digest: str) -> Program:
        """Return what *digest* stands for in the history of a run that is made of *kept* by now."""
        if kept is None:
            return self.looked_at(digest)
        return kept if digest in (kept.digest, kept.recorded_as) else self._before(kept, digest)

    def _before(self, kept: Program, digest: str) -> Program:
        try:
            return self.defined(digest, kept.given)
        except DefinitionMissing:  # it had functions that are not needed any more
            return self.looked_at(digest)


def _load(name: str, base: Path | None) -> Blueprint:
    return load(resolve(name, base=base))


def _blueprint_of(function: AgenticFunction[..., Any], components: tuple[str, ...]) -> Blueprint:
    """Return the blueprint that stands for *function*: one stage, which the function walks in its place."""
    return Blueprint(
        function.name, (Stage(function.name, transitions=()),), description=function.job, components=components
    )
