"""The main job over each provider: nothing that a vendor would refuse, the same work, and the bill of the vendor."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import httpx
import pytest

import shoal
from shoal.providers import Provider, Usage, anthropic, codex, compatible, google, openai, openai_chat
from shoal.runtime import Outcome, Tally
from shoal.testing import wire

pytestmark = pytest.mark.anyio

FILES = {"boats.md": "Boats are small.\n", "docs/ships.md": "Ships carry grain.\n", "sea.txt": "The sea is wide.\n"}
TASK = "What do these files say of the sea, and of what sails on it? " * 300
KEY = "a-key-of-the-tests"
CALLS = {"context_write": 1, "fan_out": 1, "read_file": 2 * len(FILES), "submit_output": 1 + len(FILES)}

Make = Callable[[str, httpx.AsyncBaseTransport | None], Provider]
PROVIDERS: Mapping[str, Make] = {
    "anthropic": lambda url, http: anthropic(KEY, model="claude-opus-5-5", base_url=url, http=http),
    "anthropic, older": lambda url, http: anthropic(KEY, model="claude-haiku-4-5", base_url=url, http=http),
    "openai": lambda url, http: openai(KEY, model="gpt-6.1-sol", base_url=f"{url}/v1", http=http),
    "openai, older": lambda url, http: openai(KEY, model="gpt-5.4", base_url=f"{url}/v1", http=http),
    "openai-chat": lambda url, http: openai_chat(KEY, model="gpt-6.1-sol", base_url=f"{url}/v1", http=http),
    "codex": lambda url, http: codex(KEY, model="gpt-5.4", base_url=f"{url}/backend-api/codex", http=http),
    "google": lambda url, http: google(KEY, model="gemini-3.8-flash", base_url=f"{url}/v1beta", http=http),
    "google, older": lambda url, http: google(KEY, model="gemini-2.5-flash", base_url=f"{url}/v1beta", http=http),
    "deepseek": lambda url, http: compatible(
        f"{url}/v1", capabilities="deepseek", api_key=KEY, model="deepseek-v4-pro", http=http
    ),
}


@dataclass
class Done:
    """A digest that is over: how it ended, and what it used by its own account."""

    outcome: Outcome
    used: Tally


def model(ask: wire.Ask) -> wire.Turn:
    """Do its work and no more: what it calls follows from what it may call, and from what came back."""
    offered = {tool.name for tool in ask.tools}
    behind = {result.name for result in ask.results}
    thought = wire.think("What is next?")
    if "context_write" in offered and not behind:
        return wire.turn(thought, wire.call("context_write", region="brief", content="Say what it holds."))
    if "fan_out" in offered and not behind:
        return wire.turn(thought, wire.call("fan_out", items=[{"id": name, "seeds": {"path": name}} for name in FILES]))
    if "read_file" in offered and "submit_output" in offered and not behind:
        [name] = [name for name in FILES if any(name in said.text for said in ask.said)]
        return wire.turn("I read it.", wire.call("read_file", path=name), wire.call("read_file", path=name, offset=5))
    if "submit_output" in offered and "submit_output" not in behind:
        return wire.turn(thought, wire.call("submit_output", content="It is about the sea."))
    return wire.turn("Done.")


async def digest(provider: Provider, folder: Path) -> Done:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    async with shoal.Swarm([provider]) as swarm:
        run = await swarm.spawn("digest", task=TASK, workdir=folder)
        outcome = await run.result()
        return Done(outcome, swarm.ledger().total)


def server_of(name: str) -> wire.Settings:
    price = {"input": "0.3", "output": "2.5", "read": "0.03"}
    models = {"gemini-2.5-flash": {"like": "gemini-2.5-flash", "price": price}}
    return wire.Settings(server="deepseek" if name == "deepseek" else "openai", models=models)


def calls_in(journal: wire.Journal) -> Counter[str]:
    turns = [exchange.turn for exchange in journal if isinstance(exchange.turn, wire.Turn) and exchange.whole]
    return Counter(call.name for turn in turns for call in turn.calls)


def billed(ledger: wire.Ledger) -> Usage:
    """What the server counted, in our buckets."""
    long = sum(row.writes.get(ttl, 0) for row in ledger for ttl in ("1h", "12h"))
    uncached = ledger.input - ledger.read - ledger.written
    reasoning = sum(row.reasoning for row in ledger)
    return Usage(uncached, ledger.read, ledger.written - long, long, ledger.output, reasoning)


@pytest.mark.sockets
@pytest.mark.wall_limit(300)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_main_job_breaks_no_rule_and_is_billed_as_it_says(name: str, tmp_path: Path):
    async with wire.serve(model, server_of(name)) as server:
        done = await digest(PROVIDERS[name](server.base_url, None), tmp_path)
        await server.journal.wait_ended()
    assert (done.outcome.status, done.outcome.output) == ("complete", "It is about the sea.")
    assert (server.violations, calls_in(server.journal)) == ((), CALLS)
    assert done.used.usage == billed(server.ledger)
    assert done.used.cost == server.ledger.cost_usd
    assert done.used.usage.cache_read > 1024


FAULTS: tuple[wire.Fault, ...] = (
    wire.Failure(429, retry_after="2"),
    wire.Failure(503),
    wire.Html(502),
    wire.Reset("request"),
    wire.Reset("headers"),
    wire.HangUp(-1),
    wire.Cut(),
    wire.ErrorEvent(),
)


def every_first_time(exchange: wire.Exchange) -> tuple[wire.Fault, ...]:
    """Fail each request once, in a way that follows from what it says: not from the order in which they come."""
    return () if exchange.repeats else (FAULTS[zlib.crc32(exchange.raw) % len(FAULTS)],)


@pytest.mark.parametrize("name", PROVIDERS)
async def test_the_main_job_gets_over_a_failure_of_every_request(name: str, tmp_path: Path):
    http = wire.InProcess(model, replace(server_of(name), faults=every_first_time))
    done = await digest(PROVIDERS[name]("http://nowhere", http), tmp_path)
    assert (done.outcome.status, done.outcome.output) == ("complete", "It is about the sea.")
    assert (http.violations, calls_in(http.journal)) == ((), CALLS)
    assert len(http.journal.repeated) >= len(http.journal) // 2


@pytest.mark.wall_limit(3600)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_job_that_goes_astray_breaks_no_rule_all_the_same(name: str, tmp_path: Path, nightly: bool):
    for seed in range(200 if nightly else 4):
        settings = replace(server_of(name), faults=every_first_time if seed % 2 else ())
        http = wire.InProcess(astray(seed), settings)
        await digest(PROVIDERS[name]("http://nowhere", http), tmp_path)
        assert (http.violations, len(http.journal) > 1) == ((), True), f"seed {seed}"


def astray(seed: int) -> wire.Brain:
    """Return a model that makes up two of five replies, and otherwise does its work."""
    fuzz = wire.Fuzz(seed, steps=30, odd=0.1)

    def brain(ask: wire.Ask) -> wire.Turn:
        dice = zlib.crc32(f"{seed} {ask.said!r}".encode("utf-8", "surrogatepass"))
        return fuzz(ask) if dice % 5 < 2 else model(ask)

    return brain


@pytest.mark.sockets
@pytest.mark.wall_limit(300)
@pytest.mark.parametrize("name", PROVIDERS)
async def test_a_run_that_is_cancelled_leaves_the_server_at_once(name: str, tmp_path: Path):
    asked = anyio.Event()

    def slow(_ask: wire.Ask) -> wire.Turn:
        asked.set()
        return wire.Turn((wire.Text("begun, and then " * 10),), faults=(wire.Stall(3600.0, at=2),))

    async with wire.serve(slow, server_of(name)) as server:
        async with shoal.Swarm([PROVIDERS[name](server.base_url, None)]) as swarm:
            run = await swarm.spawn("digest", task="What do these files say?", workdir=tmp_path)
            await asked.wait()
            await run.cancel()
            assert (await run.result()).status == "cancelled"
            await server.journal.wait_ended()
        assert server.violations == ()
        assert {exchange.client_left for exchange in server.journal.replies} == {True}
