"""Who is told which span a request belongs to: servers whose hosts the user lists, and no other."""

from __future__ import annotations

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider

import shoal
from shoal.blueprints import Blueprint, CallerSeed, FanOut, Nudge, Region, Stage
from shoal.errors import ConfigInvalid
from shoal.observability import Propagation, Span, trace_of
from shoal.observability import _propagate as propagate
from shoal.providers import anthropic
from shoal.runtime import MemoryJournal, virtual
from shoal.testing import wire

pytestmark = pytest.mark.anyio

QUIET = Nudge(enabled=False)
REGIONS = (
    Region("task", kind="pinned", max_tokens=500, seed=CallerSeed("task"), volatility="stable"),
    Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None),
)
TALK = Blueprint("talk", (Stage("talk", available_tools=(), nudge=QUIET),), regions=REGIONS)
FAN = Blueprint(
    "fan",
    (
        Stage("split", mode="fan_out", fan_out=FanOut(worker_stage="read"), transitions=(), nudge=QUIET),
        Stage("read", transitions=(), nudge=QUIET, allow_as_worker=True),
    ),
    regions=REGIONS,
)
ITEMS = [{"id": "a", "task": "one"}, {"id": "b", "task": "two"}]


class Told(httpx.AsyncBaseTransport):
    """Hands on to an emulator, and keeps what each request said of its span."""

    def __init__(self, server: wire.InProcess) -> None:
        self._server = server
        self.said: list[str | None] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.said.append(request.headers.get("traceparent"))
        return await self._server.handle_async_request(request)


async def played(made: Blueprint, *hosts: str) -> tuple[list[str | None], tuple[Span, ...]]:
    """Run *made*; return what each request said, and the spans."""
    fans = iter([wire.turn(wire.call("fan_out", items=ITEMS))])
    told = Told(wire.InProcess(lambda ask: next(fans, wire.turn("said")) if made is FAN else wire.turn("said")))
    provider = anthropic("k", model="claude-sonnet-5", http=told)
    async with shoal.Swarm([provider], trace_hosts=hosts, clock=virtual()) as swarm:
        run = await swarm.spawn(made, task="x")
        assert (await run.result()).status == "complete"
        return told.said, trace_of(swarm.journal, run.run_id)


def headers(spans: tuple[Span, ...]) -> set[str]:
    """Return what the requests of *spans* are to say."""
    return {f"00-{span.trace_id}-{span.span_id}-01" for span in spans if span.kind == "client"}


@pytest.mark.parametrize(("made", "least"), [(TALK, 1), (FAN, 3)])
async def test_a_listed_host_is_told_the_span_of_each_request_also_of_runs_below(made: Blueprint, least: int):
    said, spans = await played(made, "other.example", "API.anthropic.com")
    assert None not in said
    assert len(said) == len(set(said)) >= least
    assert set(said) <= headers(spans)


@pytest.mark.parametrize("hosts", [(), ("anthropic.com", "api.openai.com", "evil-api.anthropic.com")])
async def test_any_other_host_learns_nothing(hosts: tuple[str, ...]):
    said, _ = await played(TALK, *hosts)
    assert set(said) == {None}


async def test_a_run_below_a_users_span_says_the_users_trace():
    with TracerProvider().get_tracer("theirs").start_as_current_span("request") as theirs:
        said, spans = await played(TALK, "api.anthropic.com")
    trace_id = f"{theirs.get_span_context().trace_id:032x}"
    assert {str(text).split("-")[1] for text in said} == {trace_id}
    assert set(said) <= headers(spans)


@pytest.mark.parametrize("host", ["https://gateway.example", "gateway.example:443", "a b", "", "me@gateway.example"])
def test_what_is_no_host_is_refused(host: str):
    with pytest.raises(ConfigInvalid, match="give the host alone"):
        shoal.Swarm(trace_hosts=[host])


def test_an_address_is_a_host():
    assert Propagation(["127.0.0.1", "[::1]", "::1"]).hosts == {"127.0.0.1", "::1"}
    assert repr(Propagation(["b", "a"])) == "<Propagation to a, b>"


def test_a_root_that_is_not_at_hand_gives_a_trace_and_trees_are_forgotten_in_time(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(propagate, "MOST_TREES", 2)
    propagation, journal = Propagation(["a"]), MemoryJournal()
    for root in ("r1", "r2", "r3"):
        assert propagation.traceparent(journal, root, root, 5, "m").startswith("00-")
    assert set(propagation._trees) == {"r2", "r3"}
