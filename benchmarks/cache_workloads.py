"""The workloads of `cache.py`: whole runs, on virtual time, against the emulator, which needs no socket for them."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio

from shoal.blueprints import (
    Blueprint,
    CallerSeed,
    FanOut,
    Nudge,
    Region,
    Route,
    Stage,
    ToolRouting,
    dumps,
)
from shoal.providers import Provider, anthropic, openai, openai_chat
from shoal.runtime import Limits, Run, Swarm, tool, virtual
from shoal.runtime.events import QuestionAsked
from shoal.testing import virtual_backend, wire

MODELS = {
    "markers": "claude-sonnet-4-6",
    "points": "gpt-6.1-terra",
    "responses": "gpt-6.1-terra",
    "steps": "gpt-5.4",
}
"""One model for each kind of cache: Anthropic's, and the two regimes of OpenAI, of which one over both of its APIs."""

THINKING_S = 2.0
QUIET = Nudge(enabled=False)
LIMITS = Limits(max_iterations=1000, inferences=64)
TASK = Region("task", kind="pinned", max_tokens=2_000, seed=CallerSeed("task"), volatility="stable")
RULES = Region("rules", kind="pinned", max_tokens=8_000, seed=CallerSeed("rules"), volatility="stable")
INSTRUCTIONS = Region("stage_instructions", kind="pinned", max_tokens=2_000)
TODOS = Region("todos", kind="checklist", max_tokens=1_000)


def words(what: str, size: int) -> str:
    """Return *size* bytes of text about *what*, different for each *what*."""
    line = f"{what}: the pier is closed and boats wait outside of the harbour. "
    return (line * (size // len(line) + 1))[:size]


@tool(reads=True)
async def search(query: str) -> str:
    """Search the archive and return what it says."""
    return words(query, 3_000)


@tool(reads=True)
async def read_part(name: str) -> str:
    """Read one part of the corpus."""
    return words(name, 24_000)


@tool(reads=True)
async def fetch(url: str) -> str:
    """Fetch a page of the web."""
    return words(url, 9_000)


TOOLS = (search, read_part, fetch)
TASK_TEXT = "Find out when the pier opens again."
SEEDS = {"rules": words("rule", 8_000), "corpus": words("corpus", 100_000)}


@dataclass(frozen=True)
class Workload:
    """What is run.

    Args:
        blueprint: The agent.
        says: What the model says, by how often it was asked before; workers have a say of their own.
        worker: The agent that its first stage hands items to.
        drive: What a user does while it runs.
    """

    blueprint: Blueprint
    says: Callable[[int, wire.Ask], wire.Turn]
    worker: Blueprint | None = None
    drive: Callable[[Run], Awaitable[None]] | None = None


def called(name: str, /, **arguments: Any) -> wire.Turn:
    return wire.turn(wire.call(name, **arguments), delay_s=THINKING_S)


def said(text: str) -> wire.Turn:
    return wire.turn(text, delay_s=THINKING_S)


def research() -> Workload:
    """50 turns: pages go to a region that grows and lets go of the oldest; a checklist is rewritten now and then."""
    found = Region("findings", kind="temporary", max_tokens=40_000, volatility="grows")
    talk = Region("conversation", kind="sliding_window", max_tokens=20_000, max_items=None)
    routed = ToolRouting(overrides={"fetch": Route("findings")})
    stage = Stage("research", system_prompt=words("how", 600), available_tools=NAMES, tool_routing=routed, nudge=QUIET)

    def says(number: int, _ask: wire.Ask) -> wire.Turn:
        if number == 50:
            return said("That is all.")
        if number % 10 == 3:
            return called("todo_add", text=f"look into {number}")
        return called("fetch", url=f"https://archive/{number}")

    return Workload(Blueprint("research", (stage,), regions=(TASK, RULES, found, TODOS, INSTRUCTIONS, talk)), says)


def pipeline() -> Workload:
    """Five stages of one model with the same tools, over a corpus and one conversation; each has its instructions."""
    corpus = Region("corpus", kind="pinned", max_tokens=40_000, seed=CallerSeed("corpus"), volatility="stable")
    facts = Region("facts", kind="hashmap", max_tokens=4_000)
    talk = Region("conversation", kind="sliding_window", max_tokens=40_000, max_items=None)
    stages = tuple(
        Stage(f"step-{n}", system_prompt=words(f"step {n}", 2_000), available_tools=NAMES, nudge=QUIET)
        for n in range(5)
    )

    def says(number: int, _ask: wire.Ask) -> wire.Turn:
        return said("Done.") if number % 6 == 5 else called("search", query=f"{number}")

    return Workload(Blueprint("pipeline", stages, regions=(TASK, RULES, corpus, facts, INSTRUCTIONS, talk)), says)


def fan_out() -> Workload:
    """A lead that hands 30 items to workers at once; they share rules and a corpus, and each has a task of its own."""
    corpus = Region("corpus", kind="pinned", max_tokens=40_000, seed=CallerSeed("corpus"))
    item = Region("item", kind="pinned", max_tokens=1_000, seed=CallerSeed("item"))
    talk = Region("conversation", kind="sliding_window", max_tokens=20_000, max_items=None)
    reads = Stage("read", system_prompt=words("reading", 1_000), available_tools=("todo_add",), nudge=QUIET)
    worker = Blueprint("worker", (reads,), regions=(RULES, corpus, item, INSTRUCTIONS, talk))
    split = Stage(
        "split",
        mode="fan_out",
        seeds={"rules": "rules", "corpus": "corpus"},
    )
    finds = Region("finds", max_tokens=20_000)
    merge = Stage("merge", nudge=QUIET)
    items = [{"id": f"i{n}", "seeds": {"item": words(f"item {n}", 400)}} for n in range(30)]

    def says(_number: int, ask: wire.Ask) -> wire.Turn:
        if "## item" in ask.system:
            return called("todo_add", text=f"look at part {len(ask.calls)}") if len(ask.calls) < 3 else said("Read.")
        return said("Merged.") if ask.calls else called("fan_out", items=items)

    lead = Blueprint("lead", (split, merge), regions=(TASK, RULES, corpus, finds, INSTRUCTIONS, talk))
    return Workload(lead, says, worker)


def chat(turns: int = 200) -> Workload:
    """200 turns with a user, in a window that has to let go of its oldest turns more than once."""
    facts = Region("facts", kind="hashmap", max_tokens=4_000)
    talk = Region("conversation", kind="sliding_window", max_tokens=12_000, max_items=None)
    stage = Stage("talk", mode="interactive", system_prompt=words("manners", 3_000), available_tools=NAMES)

    async def drive(run: Run) -> None:
        left = turns
        async for event in run.events():
            if isinstance(event.payload, QuestionAsked):
                left -= 1
                if not left:
                    await run.cancel("enough")
                    return
                await anyio.sleep(30.0)
                await run.send(words(f"and {left}", 300))

    def says(number: int, _ask: wire.Ask) -> wire.Turn:
        return said(words(f"so {number}", 500))

    return Workload(Blueprint("chat", (stage,), regions=(TASK, RULES, facts, INSTRUCTIONS, talk)), says, drive=drive)


def corpus() -> Workload:
    """46 calls of one stage: the first ten read a corpus into a region, the others work through it."""
    read = Region("reading", kind="temporary", max_tokens=120_000, volatility="grows")
    talk = Region("conversation", kind="sliding_window", max_tokens=30_000, max_items=None)
    routed = ToolRouting(overrides={"read_part": Route("reading")})
    stage = Stage("read", system_prompt=words("how", 600), available_tools=NAMES, tool_routing=routed, nudge=QUIET)

    def says(number: int, _ask: wire.Ask) -> wire.Turn:
        if number == 45:
            return said("That is all.")
        return called("read_part", name=f"part {number}") if number < 10 else called("search", query=f"{number}")

    return Workload(Blueprint("corpus", (stage,), regions=(TASK, RULES, read, TODOS, INSTRUCTIONS, talk)), says)


def gather_then_plan() -> Workload:
    """A stage that gathers sources, and one that only reads them and rewrites its plan with every turn."""
    sources = Region("sources", kind="temporary", max_tokens=120_000, volatility="grows")
    plan = Region("plan", kind="pinned", max_tokens=2_000, placement="tail")
    talk = Region("conversation", kind="sliding_window", max_tokens=20_000, max_items=None)
    routed = ToolRouting(overrides={"read_part": Route("sources")})
    gather = Stage(
        "gather", system_prompt=words("gather", 600), available_tools=NAMES, tool_routing=routed, nudge=QUIET
    )
    plans = Stage("plan", system_prompt=words("plan", 600), available_tools=NAMES, nudge=QUIET)

    def says(number: int, _ask: wire.Ask) -> wire.Turn:
        if number in (12, 23):
            return said("Done.")
        if number < 12:
            return called("read_part", name=f"part {number}")
        return called("context_write", region="plan", content=words(f"plan {number}", 900))

    return Workload(Blueprint("plan", (gather, plans), regions=(TASK, RULES, sources, plan, INSTRUCTIONS, talk)), says)


NAMES = ("search", "read_part", "fetch", "todo_add", "context_write")
WORKLOADS: dict[str, Callable[[], Workload]] = {
    "research": research,
    "pipeline": pipeline,
    "fan-out": fan_out,
    "chat": chat,
    "corpus": corpus,
    "gather-then-plan": gather_then_plan,
}


def played(workload: Workload, cache: str, *, leads: bool = True) -> wire.InProcess:
    """Run *workload* with the model that has *cache*, and return the server that answered it.

    Args:
        workload: What is run.
        cache: Name of the cache.
        leads: Requests wait for a prefix that another one is writing; without it they come as they are made.
    """
    number = 0

    def brain(ask: wire.Ask) -> wire.Turn:
        nonlocal number
        if "a title of at most" in ask.system:
            return wire.turn("A title")
        number += 1
        return workload.says(number - 1, ask)

    async def run() -> wire.InProcess:
        http = wire.InProcess(brain, wire.Settings(cache=wire.CacheSwitches(openai_machine_rpm=None)))
        make = {"markers": anthropic, "responses": openai}.get(cache, openai_chat)
        await _run(workload, make("key", model=MODELS[cache], prefix_leader=leads, http=http))
        return http

    name, options = virtual_backend("asyncio")
    return anyio.run(run, backend=name, backend_options=options)


async def _run(workload: Workload, provider: Provider) -> None:
    with tempfile.TemporaryDirectory() as folder:
        blueprint = workload.blueprint
        if workload.worker is not None:
            (Path(folder) / "blueprint.toml").write_text(dumps(workload.worker))
            split = blueprint.stages[0]
            at_work = replace(split, fan_out=FanOut(worker_agent=folder, results_region="finds"))
            blueprint = replace(blueprint, stages=(at_work, *blueprint.stages[1:]))
        async with Swarm([provider], clock=virtual(), limits=LIMITS) as swarm:
            run = await swarm.spawn(
                blueprint,
                task=TASK_TEXT,
                seeds={region.name: SEEDS[region.name] for region in blueprint.regions if region.name in SEEDS},
                tools=TOOLS,
                unattended=workload.drive is None,
            )
            if workload.drive is not None:
                await workload.drive(run)
            await run.result()
