"""Scripts in their sandbox: what they can do, what they cannot, and that nothing outlives a call."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import ConfigInvalid
from shoal.runtime.scripts import Sandbox, Script, ScriptError, ScriptLimits

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """Share the worker processes, which take a moment to start. It has the time that a busy machine needs."""
    made = Sandbox(ScriptLimits(seconds=60.0))
    yield made
    made.close()


@pytest.fixture(scope="module")
def brisk() -> Iterator[Sandbox]:
    made = Sandbox(ScriptLimits(seconds=1.0))
    yield made
    made.close()


def script(source: str) -> Script:
    return Script("scripts/test.py", source)


async def run(sandbox: Sandbox, source: str, argument: object = None, **more: object) -> object:
    given = {"at": 0.0, "seed": 0, **more}
    return await sandbox.call(script(source), "f", argument, **given)  # type: ignore[arg-type]


async def test_a_function_is_given_a_plain_copy_and_gives_plain_values(sandbox: Sandbox):
    source = "def f(ctx):\n    ctx['n'] += 1\n    return {'n': ctx['n'], 'l': (1, 2.5, None, True)}"
    given = {"n": 1}
    assert await run(sandbox, source, given) == {"n": 2, "l": [1, 2.5, None, True]}
    assert given == {"n": 1}


async def test_no_global_outlives_a_call(sandbox: Sandbox):
    source = "seen = []\ndef f(ctx):\n    seen.append(ctx)\n    return seen"
    assert [await run(sandbox, source, n) for n in (1, 2)] == [[1], [2]]


async def test_the_clock_stands_at_the_time_of_the_event(sandbox: Sandbox):
    source = "import datetime\ndef f(ctx):\n    return datetime.datetime.now().isoformat()"
    assert await run(sandbox, source, at=1_767_225_600.0) == "2026-01-01T00:00:00"


async def test_random_numbers_follow_from_the_seed(sandbox: Sandbox):
    source = "import random\ndef f(ctx):\n    return random.random()"
    first, again, other = [await run(sandbox, source, seed=n) for n in (1, 1, 2)]
    assert first == again != other


async def test_sleep_takes_no_time(sandbox: Sandbox):
    assert await run(sandbox, "import time\ndef f(ctx):\n    time.sleep(1000)\n    return 1") == 1


async def test_what_a_script_prints_is_dropped(sandbox: Sandbox, capfd: pytest.CaptureFixture[str]):
    assert await run(sandbox, "def f(ctx):\n    print('hello')\n    return 1") == 1
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def f(ctx):\n    x = 'a'\n    while True:\n        x = x + x", "memory"),
        ("def f(ctx):\n    return f(ctx)", "depth"),
        ("def f(ctx):\n    raise ValueError('no')", "raised"),
        ("def g(ctx):\n    return 1", "raised"),
        ("def f(ctx):\n    return open('/etc/passwd').read()", "raised"),
        ("def f(:", "syntax"),
        ("def f(ctx):\n    return {1, 2}", "result"),
        ("def f(ctx):\n    return b'x'", "result"),
        ("def f(ctx):\n    return float('nan')", "result"),
        ("def f(ctx):\n    return float('inf')", "result"),
        ("def f(ctx):\n    return {1: 2}", "result"),
        ("class A:\n    pass\ndef f(ctx):\n    return A()", "result"),
    ],
)
async def test_a_call_that_comes_to_nothing_says_why(sandbox: Sandbox, source: str, reason: str):
    with pytest.raises(ScriptError) as failed:
        await run(sandbox, source)
    assert failed.value.reason == reason


async def test_a_call_that_takes_too_long_says_so_and_others_are_served(brisk: Sandbox):
    with pytest.raises(ScriptError) as failed:
        await run(brisk, "def f(ctx):\n    while True:\n        pass")
    assert failed.value.reason == "time"
    assert await run(brisk, "def f(ctx):\n    return 1") == 1


async def test_an_argument_that_is_too_big_counts_as_a_failed_call(sandbox: Sandbox):
    with pytest.raises(ScriptError) as failed:
        await run(sandbox, "def f(ctx):\n    return 1", "x" * 4_200_000)
    assert failed.value.reason == "argument"


async def test_what_a_script_defines_is_known_without_calling_it(sandbox: Sandbox):
    source = "def render(ctx):\n    return ''\non_write = 3\n"
    assert await sandbox.defines(script(source), ("render", "on_write", "on_overflow")) == {"render"}


async def test_a_script_that_cannot_be_read_says_so_when_it_is_asked(sandbox: Sandbox):
    with pytest.raises(ScriptError) as failed:
        await sandbox.defines(script("def render(:"), ("render",))
    assert failed.value.reason == "syntax"


def workers() -> set[int]:
    """Return the sandbox's worker processes that are children of this one."""
    lists = Path("/proc/self/task").glob("*/children")
    pids = {int(pid) for children in lists for pid in children.read_text().split()}
    return {pid for pid in pids if "monty" in Path(f"/proc/{pid}/comm").read_text()}


def kill_a_worker(but: set[int]) -> None:
    """Kill a worker process that starts from now on, as a machine short of memory would."""
    while not (started := workers() - but):
        time.sleep(0.02)
    time.sleep(0.1)
    os.kill(max(started), signal.SIGKILL)


async def test_a_worker_that_dies_is_reported_and_replaced():
    own = Sandbox(ScriptLimits(seconds=15))
    killer = threading.Thread(target=kill_a_worker, args=(workers(),))
    killer.start()
    with pytest.raises(ScriptError) as failed:
        await run(own, "def f(ctx):\n    while True:\n        pass")
    killer.join()
    assert failed.value.reason == "crashed"
    assert await run(own, "def f(ctx):\n    return 1") == 1
    own.close()


async def test_limits_are_what_they_are_set_to():
    small = Sandbox(ScriptLimits(seconds=0.01))
    with pytest.raises(ScriptError) as failed:
        await run(small, "def f(ctx):\n    while True:\n        pass")
    small.close()
    small.close()
    assert failed.value.reason == "time"


async def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with pytest.raises(ConfigInvalid, match=r"pip install 'shoal\[scripts\]'"):
        await run(Sandbox(), "def f(ctx):\n    return 1")


def test_a_script_is_known_by_its_text():
    assert script("a").digest == script("a").digest != script("b").digest
    assert repr(Sandbox()) == "<Sandbox idle>"
