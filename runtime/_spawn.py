"""The birth of a run: checked, seeded and journaled before anything of it runs, or refused with nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import msgspec

from shoal.blueprints import Blueprint
from shoal.errors import ConfigInvalid, PartRefused, SpawnRefused
from shoal.providers import Text
from shoal.runtime._attachment import Given, SeedValue, given
from shoal.runtime._edges import enter
from shoal.runtime._facts import Found, look_up
from shoal.runtime._host import Host
from shoal.runtime._live import Live
from shoal.runtime._own_scripts import check_tools, own_scripts
from shoal.runtime._seeds import Resolved, check_callers, resolve_seeds
from shoal.runtime._sources import Moment, sources
from shoal.runtime._sowing import carry, sow
from shoal.runtime._tooling import tool_context
from shoal.runtime._transforms import Carried
from shoal.runtime._unbuilt import refuse_unbuilt
from shoal.runtime.context import resolve
from shoal.runtime.events import BudgetGiven, Event, FrameEntered, RestartRule, RunSpawned, ToolSource
from shoal.runtime.program import Program
from shoal.runtime.scripts import Script
from shoal.runtime.state import RunState


@final
@dataclass(frozen=True, slots=True)
class Birth:
    """How a run is to begin.

    Args:
        run_id: Its id.
        program: What it is made of.
        task: Its task; `None` for none.
        seeds: The caller's values by name.
        workdir: Its working directory.
        stage: The stage it starts in; `None` for the blueprint's entry.
        parent: The run that spawns it; `None` for a root.
        root: The root of its tree; `None` for itself.
        depth: 0 for a root.
        deeper: Levels of children that may stand below it.
        item: Id of the fan-out item; `None` for none.
        waited: Its parent waits for it in a tool call.
        unattended: Nobody is there to ask.
        key: Idempotency key; `None` for none.
        model: Model that replaces every stage's; `None` for none.
        output_dir: Folder that listings leave out; `None` for none.
        trace: `traceparent` of the span that was current; `None` for none.
        detached: It outlives its parent.
        output_format: How its answer is to be written; `None` for what its blueprint says.
        output_instructions: What its answer is to look like; `None` for what its blueprint says.
        output_schema: JSON schema of its answer, as JSON source; `None` for what its blueprint says.
        carried: What regions hold of its parent's when it begins.
        budgets: The runs above it whose budgets it is under.
        budget: Limits in place of its blueprint's; `None` for none.
        restarts: How often it may crash, beside the rule for all runs; `None` for no such limit.
        entered: How its agentic function is called; `None` where it walks the stages of a blueprint.
        default_model: What its user prefers, as `provider` or `provider:model`; `None` for nothing.
    """

    run_id: str
    program: Program
    task: str | None
    seeds: Mapping[str, SeedValue] = field(default_factory=dict[str, SeedValue])
    workdir: Path = Path()
    stage: str | None = None
    parent: str | None = None
    root: str | None = None
    depth: int = 0
    deeper: int = 3
    item: str | None = None
    waited: bool = False
    unattended: bool = True
    key: str | None = None
    model: str | None = None
    output_dir: Path | None = None
    trace: str | None = None
    detached: bool = False
    output_format: str | None = None
    output_instructions: str | None = None
    output_schema: str | None = None
    carried: tuple[Carried, ...] = ()
    budgets: tuple[str, ...] = ()
    budget: BudgetGiven | None = None
    restarts: RestartRule | None = None
    entered: FrameEntered | None = None
    default_model: str | None = None


@final
@dataclass(frozen=True, slots=True, eq=False)
class Born:
    """A run that has been checked and seeded, and of which nothing is journaled yet.

    Args:
        state: What its first events add up to.
        events: Its first events, in order.
        definitions: Scripts that it uses and facts that it was given, by digest.
        parts: Bytes of the stored parts that it begins with, by digest; empty once they are in the journal.
    """

    state: RunState
    events: tuple[Event, ...]
    definitions: Mapping[str, bytes]
    parts: dict[str, bytes]

    def write(self, host: Host) -> None:
        """Append its first events; they are durable after the journal's next barrier.

        Raises:
            JournalFailed: The journal cannot be written.
        """
        program = self.state.program
        host.journal.define(program.digest, program.definition)
        for digest, data in self.definitions.items():
            host.journal.define(digest, data)
        for digest, data in self.parts.items():
            host.journal.store(digest, data)
        self.parts.clear()
        self.state.take_facts_from(host.journal.definition)
        for event in self.events:
            host.journal.append(event)


class Announced(NamedTuple):
    """A birth, and what is called right before its first event is journaled, so that both become durable together."""

    birth: Birth
    announce: Callable[[], object] | None = None


async def give_birth(host: Host, birth: Birth) -> RunState:
    """Check, seed and journal a run, and return its state; it does not run yet.

    Args:
        host: The services it will share.
        birth: How it begins.

    Raises:
        SpawnRefused, NotBuiltYet: It cannot run; nothing was journaled.
        JournalFailed: The journal cannot be written.
    """
    born = await conceive(host, birth)
    born.write(host)
    await host.journal.barrier()
    return born.state


async def conceive(host: Host, birth: Birth) -> Born:
    """Check and seed a run; nothing is journaled.

    Raises:
        SpawnRefused, NotBuiltYet: It cannot run.
    """
    program = birth.program
    refuse_unbuilt(program.blueprint)
    workdir = _folder(birth.workdir)
    given_by_caller = await _given(host, birth)
    caller = {name: value.shown for name, value in given_by_caller.items()}
    task = None if birth.task is None else host.secrets.strike(Text.of(birth.task))
    check_callers(program.regions, program.blueprint.name, caller if task is None else {**caller, "task": task})
    check_serving(host, program, birth, birth.budgets)
    spawned = _spawned(birth, workdir, task, caller)
    found = await look_up(host, program, workdir)
    scripts = dict(await own_scripts(program.blueprint, host.sandbox, host.threads))
    await check_tools(program.tool_scripts, host.sandbox)
    resolved = await _seeded(host, birth, spawned, given_by_caller)
    scripts |= {seed.script.path: seed.script for seed in resolved if seed.script is not None}
    spawned = msgspec.structs.replace(spawned, scripts=tuple((path, script.digest) for path, script in scripts.items()))
    drafting = Drafting()
    state = RunState(
        birth.run_id,
        program,
        load=partial(held, drafting.parts, host.journal.part),
        facts=partial(held, found.definitions, host.journal.definition),
    )
    # Worked out on a state of its own first: what is refused here leaves no trace in the journal.
    events = await _first_events(host, state, spawned, (*resolved, *birth.carried), drafting, scripts, found)
    if birth.entered is not None:
        events.append(Event(birth.run_id, state.seq + 1, host.clock.stamp(), birth.entered))
        state.apply(events[-1])
    definitions = {script.digest: script.source.encode() for script in scripts.values()}
    return Born(state, tuple(events), {**definitions, **found.definitions}, drafting.parts)


def _spawned(birth: Birth, workdir: Path, task: Text | None, caller: Mapping[str, Text]) -> RunSpawned:
    """Return the first event of a run: how it begins, but for the scripts that it uses."""
    program = birth.program
    limited = has_budget(program.blueprint, birth.stage, birth.budget)
    return RunSpawned(
        program.blueprint.name,
        program.digest,
        task,
        tuple(sorted(caller.items())),
        str(workdir),
        birth.parent,
        birth.root or birth.run_id,
        birth.depth,
        item=birth.item,
        detached=birth.detached,
        unattended=birth.unattended,
        key=birth.key,
        stage=birth.stage,
        waited=birth.waited,
        trace=birth.trace,
        tools=sources_given(program),
        model=birth.model,
        default_model=birth.default_model,
        children_deeper=birth.deeper,
        output_dir=None if birth.output_dir is None else str(birth.output_dir),
        output_format=birth.output_format,
        output_instructions=birth.output_instructions,
        output_schema=birth.output_schema,
        budgets=(birth.run_id, *birth.budgets) if limited else birth.budgets,
        budget=birth.budget,
        restarts=birth.restarts,
    )


def sources_given(program: Program) -> tuple[ToolSource, ...]:
    """Return where the functions that were given in code are, and what they say."""
    return tuple(ToolSource(tool.name, *tool.source) for tool in program.given if tool.source is not None)


def held(new: Mapping[str, bytes], journaled: Callable[[str], bytes], digest: str) -> bytes:
    """Return the bytes under *digest*, which are among the *new* ones until what brings them is *journaled*."""
    data = new.get(digest)
    return journaled(digest) if data is None else data


async def _given(host: Host, birth: Birth) -> Mapping[str, Given]:
    """Return the caller's values, their parts looked at.

    Raises:
        SpawnRefused: One is of no use.
    """
    try:
        made = {name: await given(value, host.limits.part_bytes, host.threads) for name, value in birth.seeds.items()}
    except (ConfigInvalid, PartRefused) as refused:
        raise SpawnRefused(f"a seed of {birth.program.blueprint.name!r} cannot be taken: {refused}") from refused
    strike = host.secrets.strike
    return {name: msgspec.structs.replace(value, text=strike(value.text)) for name, value in made.items()}


def _entry(spawned: RunSpawned, program: Program) -> str:
    return spawned.stage or program.blueprint.entry


async def _seeded(host: Host, birth: Birth, spawned: RunSpawned, caller: Mapping[str, Given]) -> tuple[Resolved, ...]:
    """Return what the seeds of its regions give, with secrets struck out."""
    program = birth.program
    context = tool_context(host, program, spawned, birth.run_id, lambda _name: None)
    moment = Moment(program.stages[_entry(spawned, program)].stage, 1, host.clock.unix(), 0)
    found = sources(host, program, context, spawned, moment, given=caller)
    seeded = await resolve_seeds(tuple(program.regions.values()), found)
    return tuple([host.secrets.in_seed(each) for each in seeded])


def has_budget(blueprint: Blueprint, stage: str | None, given: BudgetGiven | None) -> bool:
    """Say whether a run has a budget of its own; a worker of its parent's own blueprint shares its parent's.

    Args:
        blueprint: What it runs.
        stage: The stage that it is handed, of its parent's blueprint; `None` for a run of its own.
        given: Limits in place of its blueprint's; `None` for none.
    """
    limits = (blueprint.budget.max_cost_usd, blueprint.budget.max_tokens, blueprint.budget.max_wall_s)
    return given is not None or (stage is None and limits != (None, None, None))


def _folder(path: Path) -> Path:
    real = path.resolve()
    if not real.is_dir():
        raise SpawnRefused(f"the working directory {str(path)!r} is no folder; name one that exists")
    return real


def check_serving(host: Host, program: Program, made: Birth | RunSpawned, budgets: Sequence[str]) -> None:
    """Refuse a run one of whose stages nobody can serve, or whose instructions do not fit.

    Args:
        host: The services it shares.
        program: What it is made of.
        made: How it begins, or began: the models that its user asks for, and limits in place of its blueprint's.
        budgets: The runs above it whose budgets it is under.

    Raises:
        SpawnRefused: See above.
    """
    for stage in program.stages.values():
        servings = host.serving(stage.model, made.model, made.default_model)
        host.home.purses.check_prices(servings, budgets, program.blueprint, made.budget)
        serving = servings[0]
        layout = stage.layout
        if layout.instructions is None:
            continue
        home = layout.regions[layout.instructions_in]
        most = resolve(home, serving.profile.window_tokens).budget
        cost = layout.instruction_tokens
        if cost > most:
            raise SpawnRefused(
                f"the instructions of stage {stage.name!r} are {cost} tokens and the region {home.name!r} that holds "
                f"them has {most} on {serving.label}; raise its budget or shorten `system_prompt`"
            )


@final
class Drafting:
    """A journal that only remembers: events of a run, until it is sure that all of them may happen."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.parts: dict[str, bytes] = {}

    def append(self, event: Event) -> None:
        self.events.append(event)

    def store(self, digest: str, data: bytes) -> None:
        self.parts[digest] = data


async def _first_events(
    host: Host,
    state: RunState,
    spawned: RunSpawned,
    given: tuple[Resolved | Carried, ...],
    drafting: Drafting,
    scripts: Mapping[str, Script],
    found: Found,
) -> list[Event]:
    first = Event(state.run_id, 1, host.clock.stamp(), spawned)
    state.apply(first)
    live = Live(state, host, journal=drafting, scripts=scripts)
    for fact in found.events:
        live.emit(fact)
    stage = _entry(spawned, state.program)
    program = state.program.stages[stage]
    await enter(live, stage, host.serving(program.model, spawned.model, spawned.default_model)[0])
    for each in given:
        await (sow(live, each) if isinstance(each, Resolved) else carry(live, each))
    return [first, *drafting.events]
