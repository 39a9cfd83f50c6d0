"""What a window costs: assembly after one new entry, memory, and how much of a request is made anew each turn.

    python benchmarks/window.py [--rounds 400] [--turns 200] [--runs 1000]

Assembly is timed in a window of 20 regions and 100,000 tokens and in one of 10,000 tokens, each after one entry was
appended; the figure is their ratio, so the machine's own speed does not enter. Memory is what a window of 100,000
tokens in entries of 1 kB allocates, over the bytes of those entries: alone, and with all that it and the encoder keep
once it was sent. What 1,000 runs of one blueprint share (instructions, schemas, seeds) stands once: the figure is what
a run holds beside it, over what it shares. A byte counts as made anew where the string that holds it is in no earlier
request. One JSON line a figure.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Literal

from shoal.blueprints import Blueprint, Region, Stage
from shoal.providers import SERVERS, Message, Request, Text, ToolCall, chat_encoder
from shoal.runtime._bundle import Bundle
from shoal.runtime.context import (
    CONVERSATION,
    Draft,
    EntryKind,
    Prompt,
    SeedBlock,
    SeedResolved,
    Theme,
    Window,
    assemble,
    estimate,
    layout_of,
    names_of,
)
from shoal.runtime.events import NUMBERS, Event, RunSpawned, StageEntered, decode, encode
from shoal.runtime.program import Program
from shoal.runtime.state import RunState

Kind = Literal["pinned", "temporary", "compacting", "clearable", "hashmap"]
KINDS: tuple[Kind, ...] = ("pinned", "temporary", "compacting", "clearable", "hashmap")
ENTRY_BYTES = 1_000
ENCODER = chat_encoder(SERVERS["generic"])


def regions() -> tuple[Region, ...]:
    """Return 20 regions: of each kind some that grow and some that are rewritten, and a conversation."""
    made = [
        Region(f"r{n}", kind=KINDS[n % 5], budget=1.0, volatility="grows" if n % 2 else "rewritten", compact_at=1.0)
        for n in range(17)
    ]
    talk = Region(CONVERSATION, kind="sliding_window", budget=1.0, max_items=None)
    return (*made, Region("todos", kind="checklist"), Region("plan", placement="tail", budget=1.0), talk)


class Filled:
    """A window with entries of 1 kB, spread over its regions.

    Args:
        tokens: How many tokens it holds.
    """

    def __init__(self, tokens: int) -> None:
        stage = Stage("work", system_prompt="Work on the task until it is done.")
        blueprint = Blueprint("bench", (stage,), regions=regions())
        layout = layout_of(blueprint, stage, Theme(names_of(blueprint)))
        self.window = Window(layout, 1_000_000)
        self.seq = 0
        self.bytes = 0
        names = [name for name in layout.regions if name not in ("todos", "stage_instructions", "final_output")]
        while sum(state.tokens for state in self.window.states.values()) < tokens:
            name = names[self.seq % len(names)]
            if name == CONVERSATION:
                self.turn()
            else:
                key = f"k{self.seq}" if layout.regions[name].kind == "hashmap" else None
                self.write(name, "text", self.message("user"), key=key)

    def message(self, role: Literal["user", "tool"], call_id: str = "") -> Message:
        return Message(role, (Text.of(f"{self.seq} ".ljust(ENTRY_BYTES, "x")),), call_id=call_id, tool_name="look")

    def write(self, region: str, kind: EntryKind, message: Message, *, key: str | None = None) -> None:
        self.seq += 1
        draft = Draft(kind, message, estimate(message), self.seq, key=key, writer="framework")
        plan = self.window.plan_write(region, draft, joins=kind == "tool_result")
        for change, said in plan.changes:
            self.window.apply(change, self.seq, 0.0, said)
        self.bytes += len(message.text.encode()) + sum(len(call.arguments) for call in message.calls)

    def turn(self) -> None:
        """A turn as most are: one call, and its result of 1 kB."""
        call_id = f"call_{self.seq}"
        call = ToolCall(call_id, "look", Text.of('{"path": "src/main.py"}'))
        self.write(CONVERSATION, "assistant_turn", Message("assistant", (), (call,)))
        self.write(CONVERSATION, "tool_result", self.message("tool", call_id))

    def note(self) -> None:
        self.write("r1", "text", self.message("user"))


def encoded(prompt: Prompt) -> list[bytes]:
    """Return the byte strings of the request that *prompt* is."""
    request = Request("m", prompt.system, prompt.messages, prompt.tail, prompt.tools)
    return list(ENCODER.encode(request).leaves())


def figure(name: str, value: float, unit: str, **more: object) -> None:
    print(json.dumps({"figure": name, "value": round(value, 3), "unit": unit, **more}), flush=True)


def assembly_us(filled: Filled, append: Callable[[Filled], None]) -> float:
    append(filled)
    began = time.perf_counter()
    assemble(filled.window)
    return (time.perf_counter() - began) * 1e6


def measure_assembly(rounds: int) -> None:
    for what, append in (("conversation", Filled.turn), ("region", Filled.note)):
        small, large = Filled(10_000), Filled(100_000)
        for filled in (small, large):
            assemble(filled.window)
        gc.disable()
        pairs = [(assembly_us(small, append), assembly_us(large, append)) for _ in range(rounds)]
        gc.enable()
        # The append grows both windows alike, so the first rounds are the ones that are 10 times apart.
        first = pairs[: max(1, rounds // 4)]
        us = [statistics.median(column) for column in zip(*first, strict=True)]
        figure(
            f"window/assembly/{what}",
            us[1] / us[0],
            "x from 10,000 to 100,000 tokens",
            target=1.3,
            us_small=round(us[0], 1),
            us_large=round(us[1], 1),
        )


def measure_memory() -> None:
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    filled = Filled(100_000)
    for name, prepare, target in (
        ("alone", lambda: None, {"target": 1.6}),
        ("sent", lambda: encoded(assemble(filled.window)), {}),
    ):
        prepare()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        figure(f"window/memory/{name}", held / filled.bytes, "x bytes of its entries", bytes=held, **target)
    tracemalloc.stop()


def measure_shared(runs: int) -> None:
    """Runs of one blueprint, each made from its events as a resumed one is: what do they hold that is their own?"""
    instructions, seed = "Work through the sources. ".ljust(4_000, "i"), "a source ".ljust(40_000, "s")
    stage = Stage("work", system_prompt=instructions, available_tools=("read_file", "context_append", "context_delete"))
    blueprint = Blueprint("bench", (stage,), regions=(Region("sources", kind="pinned", max_tokens=20_000), *regions()))
    program = Program(Bundle(blueprint))
    events = [
        encode(RunSpawned("bench", program.digest, None, (), "/", None, "r", 0)),
        encode(StageEntered("work", 1, "p", "m", 1_000_000)),
        encode(SeedResolved("sources", "literal", (SeedBlock("", Text.of(seed), 10_000),))),
    ]
    numbers = (NUMBERS[RunSpawned], NUMBERS[StageEntered], NUMBERS[SeedResolved])
    gc.collect()
    tracemalloc.start()
    states: list[RunState] = []
    first = 0
    for number in range(runs + 1):
        state = RunState(f"r{number}", program)
        for seq, (kind, data) in enumerate(zip(numbers, events, strict=True), start=1):
            payload = decode(kind, data)
            assert payload is not None
            state.apply(Event(state.run_id, seq, 0.0, payload))
        assemble(state.view, state.stage.offered)
        states.append(state)
        if not number:
            gc.collect()
            first = tracemalloc.get_traced_memory()[0]
    gc.collect()
    own = (tracemalloc.get_traced_memory()[0] - first) / runs
    tracemalloc.stop()
    shared = len(instructions) + len(seed) + sum(len(spec.schema) for spec in states[0].stage.offered.specs)
    figure("window/memory/shared", own / shared, "x what runs of one blueprint share, a run", runs=runs, bytes=own)


def measure_anew(turns: int) -> None:
    filled = Filled(10_000)
    known: dict[int, bytes] = {}
    shares: list[float] = []
    for _ in range(turns):
        filled.turn()
        leaves = encoded(assemble(filled.window))
        anew = sum(len(leaf) for leaf in leaves if id(leaf) not in known)
        shares.append(anew / sum(map(len, leaves)))
        known.update((id(leaf), leaf) for leaf in leaves)
    last = shares[-max(1, turns // 4) :]
    figure("window/encoded_anew", statistics.mean(last), "of a request's bytes a turn", turns=turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    measure_assembly(args.rounds)
    measure_memory()
    measure_shared(args.runs)
    measure_anew(args.turns)


if __name__ == "__main__":
    main()
