"""Built-in kinds written again as scripts: the same operations give the same request."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio.from_thread
import anyio.to_thread
import pytest
from windowkit import Held, stage, text_of

from shoal.blueprints import Region
from shoal.providers import SERVERS, Request, chat_encoder
from shoal.runtime.context import REGION_HOOKS
from shoal.runtime.scripts import Sandbox, Script, ScriptLimits

pytestmark = pytest.mark.anyio

ENCODER = chat_encoder(SERVERS["openrouter"])
SCRIPTS = Path(__file__).parent / "rebuilt"
BUDGET = 400
Operation = Callable[[Held], object]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox whose limits a busy machine does not reach."""
    made = Sandbox(ScriptLimits(seconds=10))
    yield made
    made.close()


def bytes_of(held: Held) -> bytes:
    prompt = held.prompt()
    return bytes(ENCODER.encode(Request("m", prompt.system, prompt.messages, prompt.tail)))


async def functions(sandbox: Sandbox, name: str) -> Mapping[str, Callable[[Any], Any]]:
    """Return the functions of the script *name*, for use in a thread."""
    script = Script(f"{name}.py", (SCRIPTS / f"{name}.py").read_text())
    known = await sandbox.defines(script, REGION_HOOKS)

    def called(hook: str, ctx: Any) -> Any:
        return anyio.from_thread.run(partial(sandbox.call, script, hook, ctx, at=0.0, seed=0))

    return {hook: partial(called, hook) for hook in known}


def window(region: Region, scripts: Mapping[str, Mapping[str, Callable[[Any], Any]]]) -> Held:
    small = Region(**{**{name: getattr(region, name) for name in region.__slots__}, "max_tokens": BUDGET // 2})
    return Held(region, stages=(stage(), stage("small", regions=(small,))), scripts=scripts)


def append(rng: random.Random) -> Operation:
    text = text_of(rng.randint(1, 45), rng.choice("abcdef"))
    return lambda held: held.call("context_append", region="r", content=text)


def overwrite(rng: random.Random) -> Operation:
    text = text_of(rng.randint(1, 45), "w")
    return lambda held: held.call("context_write", region="r", content=text)


def too_big(rng: random.Random) -> Operation:
    return lambda held: held.call("context_append", region="r", content=text_of(BUDGET + rng.randint(1, 9)))


def delete(rng: random.Random) -> Operation:
    count = rng.randint(1, 3)
    return lambda held: held.call("context_delete", region="r", oldest=count)


def delete_by_id(rng: random.Random) -> Operation:
    entry_id = rng.randint(1, 120)
    return lambda held: held.call("context_delete", region="r", id=entry_id)


def press(rng: random.Random) -> Operation:
    need = rng.randint(1, 200)
    return lambda held: held.press(need)


def route(rng: random.Random) -> Operation:
    tokens = rng.choice([10, 30, BUDGET + 50])
    return lambda held: held.write("r", tokens, writer="routing")


def move(rng: random.Random) -> Operation:
    name = rng.choice(["work", "small"])
    return lambda held: held.enter(name)


def keyed(rng: random.Random) -> Operation:
    key, text = rng.choice("abcdef"), text_of(rng.randint(1, 20), "k")
    return lambda held: held.call("context_write", region="r", content=text, key=key)


def delete_key(rng: random.Random) -> Operation:
    key = rng.choice("abcdef")
    return lambda held: held.call("context_delete", region="r", key=key)


EVERYTHING = [append] * 8 + [route] * 3 + [overwrite, too_big, delete, delete_by_id, press, move]

PAIRS: Sequence[tuple[str, dict[str, Any], dict[str, Any], Sequence[Callable[[random.Random], Operation]]]] = [
    ("pinned", {"kind": "pinned"}, {"pinned": True}, EVERYTHING),
    ("temporary", {"kind": "temporary"}, {}, EVERYTHING),
    ("clearable", {"kind": "clearable"}, {}, EVERYTHING),
    ("sliding_window", {"kind": "sliding_window", "max_items": None}, {}, EVERYTHING),
    ("sliding_window_per_item", {"kind": "sliding_window", "max_items": 8}, {}, [append]),
    ("hashmap", {"kind": "hashmap"}, {}, [keyed] * 8 + [delete_key, append]),
]


@pytest.mark.parametrize(("name", "built_in", "custom", "kinds"), PAIRS, ids=[pair[0] for pair in PAIRS])
async def test_two_hundred_operations_give_the_same_requests(
    sandbox: Sandbox,
    name: str,
    built_in: dict[str, Any],
    custom: dict[str, Any],
    kinds: Sequence[Callable[[random.Random], Operation]],
):
    rng = random.Random(name)
    operations = [rng.choice(kinds)(rng) for _ in range(200)]
    scripts = {"r": await functions(sandbox, name)}
    one = window(Region("r", max_tokens=BUDGET, **built_in), {})
    other = window(Region("r", kind="custom", script="r.py", max_tokens=BUDGET, **custom), scripts)

    def requests() -> list[tuple[bytes, bytes]]:
        made: list[tuple[bytes, bytes]] = []
        for operation in operations:
            operation(one)
            operation(other)
            made.append((bytes_of(one), bytes_of(other)))
        return made

    compared = await anyio.to_thread.run_sync(requests)
    assert [at for at, (built, script) in enumerate(compared) if built != script] == []
    assert len({built for built, _ in compared}) > 40  # the operations did something


async def test_the_store_of_a_rebuilt_hashmap_may_be_larger(sandbox: Sandbox):
    scripts = {"r": await functions(sandbox, "hashmap")}
    made = Held(Region("r", kind="custom", script="r.py", max_tokens=100), scripts=scripts)

    def work() -> list[int]:
        held: list[int] = []
        for number in range(20):
            made.call("context_write", region="r", content=text_of(20, str(number % 10)), key="k")
            held.append(made.tokens("r"))
        return held

    held = await anyio.to_thread.run_sync(work)
    assert max(held) == 100
    assert made.texts("r")[-1].startswith("9")
