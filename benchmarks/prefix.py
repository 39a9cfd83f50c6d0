"""What a cache has to read anew when a run has to live within a small budget: declared layouts, defaults, flat lists.

    python benchmarks/prefix.py

One run asks its model 50 times: a system prompt of 4 kB, five tools, a result of 40 kB from the first call and results
of 1 kB after it, all within 8,000 tokens. `effective` is what is not in the cache plus a tenth of what is, in kB over
all requests, where the cache holds the prefix that is byte for byte that of the request before, in the order tools,
system, messages. What counts is what the model reads: names, schemas and texts, without the vendor's JSON around them.

The run keeps its task, and what it found in the big result, in front of the model to the end; that is checked in each
request, and so is the budget. The flat lists do not have to. A conversation with more room keeps more of the big result
and of the talk, and costs more: both layouts give it the same 40 %. One JSON line a figure; figures do not depend on
the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import anyio

from shoal.blueprints import Blueprint, Region, Stage
from shoal.providers import ModelProfile, Request, Text, ToolCall, ToolSpec, Usage
from shoal.runtime import Limits, MemoryJournal, Swarm, tool
from shoal.testing import Say, ScriptedProvider

CALLS = 50
BUDGET_TOKENS = 8_000
REPLY_TOKENS = 200
SYSTEM = "Work through the sources one by one and keep what matters for the task. ".ljust(4_000, "s")
TASK = "Find out what the sources say about the price of copper, and when each of them says it.".ljust(400, ".")
FINDINGS = "\n".join(f"FINDING {n}: what the archive says about copper in 19{n:02}".ljust(100, ".") for n in range(10))
BIG = f"{FINDINGS}\n".ljust(40_000, "b")
SMALL = "a page of a source ".ljust(1_000, "p")


# --- the workload as a run


@tool(reads=True)
async def archive(name: str) -> str:
    """Return everything that the archive holds under a name."""
    return BIG


@tool(reads=True)
async def page(number: int) -> str:
    """Return one page of the sources."""
    return f"{number} {SMALL}"[:1_000]


@tool(reads=True)
async def index(letter: str) -> str:
    """Return the index of the sources for one letter of the alphabet."""
    return SMALL


@tool(reads=True)
async def cite(number: int) -> str:
    """Return how a page is to be cited, with author, year and publisher."""
    return SMALL


def replies() -> list[Say]:
    """Return what the model says: it looks, writes down what it found, looks on, and is done."""
    note = ToolCall("", "context_append", Text.of(json.dumps({"region": "findings", "content": FINDINGS})))
    looks = [ToolCall("", "page", Text.of(json.dumps({"number": number}))) for number in range(CALLS - 2)]
    first = ToolCall("", "archive", Text.of('{"name": "copper"}'))
    calls = [(first,), (note, looks[0]), *[(look,) for look in looks[1:]]]
    return [*[Say("", calls=made, usage=Usage()) for made in calls], Say("done", usage=Usage())]


async def requests_of(regions: Sequence[Region]) -> list[Request]:
    """Return the requests of the run in a layout of *regions*."""
    stage = Stage("work", available_tools=("context_append",), system_prompt=SYSTEM, max_iterations=CALLS + 5)
    profile = ModelProfile("m", BUDGET_TOKENS + REPLY_TOKENS, REPLY_TOKENS)
    provider = ScriptedProvider(*replies(), profile=profile, purposes={"titling": "Copper"})
    blueprint = Blueprint("copper", (stage,), regions=tuple(regions))
    async with Swarm([provider], MemoryJournal(), limits=Limits()) as swarm:
        run = await swarm.spawn(blueprint, task=TASK, tools=(archive, page, index, cite))
        await run.result()
    return [request for request in provider.requests if request.purpose == "stage"]


# --- what a cache makes of it


def pieces(request: Request) -> Iterable[str]:
    """Yield what the model reads of *request*, in the order of a cache."""
    for spec in request.tools.specs:
        yield from schema(spec)
    yield from (block.text for block in request.system)
    for segment in request.messages:
        for message in segment.messages:
            yield message.text
            yield from (f"{call.name}{call.arguments}" for call in message.calls)
    if request.tail is not None:
        yield str(request.tail)


@dataclass(frozen=True)
class Cost:
    """What a sequence of requests costs, in kB: see the module's text for *effective*."""

    effective: float
    peak: float
    cached_share: float


def schema(spec: ToolSpec) -> Iterable[str]:
    yield from (spec.name, spec.description, spec.schema.decode())


def cost_of(prompts: Sequence[Sequence[str]]) -> Cost:
    before = b""
    effective = sent = cached = peak = 0.0
    for prompt in prompts:
        now = "".join(prompt).encode()
        same = next((at for at, pair in enumerate(zip(before, now, strict=False)) if pair[0] != pair[1]), len(before))
        effective += len(now) - same + 0.1 * same
        sent, cached, peak, before = sent + len(now), cached + same, max(peak, len(now)), now
    return Cost(effective / 1_000, peak / 1_000, cached / sent)


def check(name: str, requests: Sequence[Request]) -> None:
    """Check that each request keeps the budget, the task, and what was found once it was written down."""
    assert len(requests) == CALLS, f"{name}: {len(requests)} requests instead of {CALLS}"
    for number, request in enumerate(requests):
        text = "".join(pieces(request))
        assert len(text.encode()) <= 4 * BUDGET_TOKENS, f"{name}: request {number} is over the budget"
        assert TASK in text, f"{name}: request {number} has lost the task"
        assert number < 1 or FINDINGS in text, f"{name}: request {number} has lost what was found"


# --- layouts

DEFAULTS = (
    Region("task", kind="pinned", budget=0.05),
    Region("findings", kind="pinned", budget=0.05),
    Region("stage_instructions", kind="pinned", budget=0.15),
    Region("conversation", kind="sliding_window", budget=0.4, max_items=None),
)
"""Kinds and budgets, nothing else. (In a file the conversation has no `max_items` unless one is written.)"""

DECLARED = (
    Region("task", kind="pinned", budget=0.05, volatility="stable"),
    Region("findings", kind="pinned", budget=0.05, volatility="grows"),
    Region("stage_instructions", kind="pinned", budget=0.15),
    Region("conversation", kind="sliding_window", budget=0.4, max_items=None, shed_to=0.25),
)


def undeclared(regions: Sequence[Region]) -> tuple[Region, ...]:
    """Return *regions* without what they say of how they move."""
    return tuple(replace(region, volatility="rewritten") for region in regions)


# --- flat lists

Turns = list[list[str]]


def flat(shape: Callable[[Turns], Turns], big: str = BIG) -> list[list[str]]:
    """Return the prompts of a flat list that *shape* cuts before each request: a turn is a call and its result.

    The newest turn stays whatever its size, or the model would never see the big result.
    """
    tools = [piece for given in (archive, page, index, cite) for piece in schema(given.tool.spec)]
    turns: Turns = []
    prompts: list[list[str]] = []
    for number in range(CALLS):
        turns = shape(turns)
        prompts.append([*tools, SYSTEM, TASK, *[text for turn in turns for text in turn]])
        turns = [*turns, [f"page{number}".ljust(30), big if number == 0 else f"{number} {SMALL}"[:1_000]]]
    return prompts


ROOM = 4 * BUDGET_TOKENS - len(SYSTEM) - len(TASK) - 1_500


def size(turns: Turns) -> int:
    return sum(len(text) for turn in turns for text in turn)


def sliding(turns: Turns) -> Turns:
    while size(turns) > ROOM and len(turns) > 1:
        turns = turns[1:]
    return turns


def halved(turns: Turns) -> Turns:
    if size(turns) <= ROOM:
        return turns
    while size(turns) > ROOM // 2 and len(turns) > 1:
        turns = turns[1:]
    return turns


def figure(name: str, cost: Cost, **more: object) -> None:
    rounded = {"value": round(cost.effective, 1), "unit": "effective kB", "peak_kb": round(cost.peak, 1)}
    print(json.dumps({"figure": name, **rounded, "cached": round(cost.cached_share, 3), **more}), flush=True)


async def main() -> None:
    for name, layout, target in (
        ("declared", DECLARED, {"target": 150}),
        ("declared/volatility_undeclared", undeclared(DECLARED), {}),
        ("defaults", DEFAULTS, {"target": 180}),
    ):
        requests = await requests_of(layout)
        check(name, requests)
        figure(f"prefix/{name}", cost_of([list(pieces(request)) for request in requests]), **target)
    figure("prefix/flat/append_only", cost_of(flat(lambda turns: turns)), budget="none")
    figure("prefix/flat/sliding", cost_of(flat(sliding)))
    figure("prefix/flat/half", cost_of(flat(halved)))
    figure("prefix/flat/half_and_capped", cost_of(flat(halved, BIG[:4_000])))


if __name__ == "__main__":
    anyio.run(main)
