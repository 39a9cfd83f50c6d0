"""However a reply travels, and whatever a server does to its calls, what is read is the same: over real connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from providers_parts import block, request, takes, tool, tools, user

from shoal.errors import PartialReply, ProviderBusy, ProviderError, ProviderUnavailable
from shoal.providers import (
    Completed,
    Request,
    RetryPolicy,
    VendorProvider,
    anthropic,
    codex,
    compatible,
    exchange,
    google,
    openai,
    openai_chat,
)
from shoal.testing import wire

pytestmark = [pytest.mark.anyio, pytest.mark.sockets, pytest.mark.wall_limit(180)]

KEY = "a-key-of-the-tests"
APIS: Mapping[str, tuple[str, Callable[[wire.Server], VendorProvider]]] = {
    "anthropic": ("claude-opus-4-8", lambda server: anthropic(KEY, base_url=server.base_url)),
    "openai": ("gpt-6.1-sol", lambda server: openai(KEY, base_url=server.openai_url)),
    "openai-chat": ("gpt-5.4", lambda server: openai_chat(KEY, base_url=server.openai_url)),
    "codex": ("gpt-6.1-sol", lambda server: codex(KEY, base_url=f"{server.base_url}/backend-api/codex")),
    "google": ("gemini-4-argon", lambda server: google(KEY, base_url=f"{server.base_url}/v1beta")),
}
apis = pytest.mark.parametrize("api", APIS)

SAID = wire.turn(
    wire.think("größer als 鯨"),
    'Zwei Zeilen\N{LINE SEPARATOR}und ein Fisch: \N{FISH}, "quoted" \\ and\nbroken',
    wire.call("look", path="a\u0085b"),
    wire.call("look", path="é"),
    wire.call("rest"),
)
HARMLESS: Mapping[str, tuple[wire.Fault, ...]] = {
    "a byte at a time": (wire.Chunks(1),),
    "three bytes at a time": (wire.Chunks(3),),
    "split characters": (wire.SplitCharacters(),),
    "split line ends": (wire.SplitNewlines(),),
    "CR": (wire.Newlines("\r"),),
    "CRLF": (wire.Newlines("\r\n"),),
    "LF": (wire.Newlines("\n"),),
    "a byte order mark": (wire.Bom(), wire.Chunks(2)),
    "comments": (wire.Comments(),),
    "pings": (wire.Pings(),),
    "two ends": (wire.DuplicateDone(),),
    "an event that nobody knows": (wire.Inject('{"type":"unheard.of"}', at=1, name="unheard.of"),),
}
CONTENT = {("google", "two ends")}
"""A stream of Gemini has no end mark: its last event is a part of the reply, and twice is twice."""
CALLS: Mapping[str, tuple[wire.Fault, ...]] = {
    "all calls in one piece": (wire.WholeCalls(),),
    "one id for all": (wire.CallIds("same"),),
    "no ids": (wire.CallIds("missing"), wire.WholeCalls()),
    "no numbers": (wire.CallIndexes("missing"),),
    "numbers that are null": (wire.CallIndexes("null"),),
    "one number for all": (wire.CallIndexes("zero"),),
}
ASKED = request(
    user("Look."),
    system=(block("You look."),),
    tools=tools(tool("look", takes(path="string")), tool("rest", b'{"type":"object","properties":{}}')),
    timeout_s=150.0,
)


def asked(model: str) -> Request:
    return Request(model, ASKED.system, ASKED.messages, tools=ASKED.tools, timeout_s=150.0)


async def replies(api: str, *faults: tuple[wire.Fault, ...], said: wire.Turn = SAID) -> list[Completed]:
    """Return the reply to the same request, delivered with each of *faults*."""
    model, make = APIS[api]
    settings = wire.Settings(faults=wire.on(dict(enumerate(faults, 1))))
    async with wire.serve(wire.Script(last=said), settings) as server:
        return await replies_of(make(server), model, len(faults))


async def replies_of(provider: VendorProvider, model: str, count: int = 1) -> list[Completed]:
    try:
        return [await exchange(provider, asked(model), policy=RetryPolicy(attempts=1)) for _ in range(count)]
    finally:
        await provider.aclose()


def meant(completed: Completed) -> Any:
    reply = completed.reply
    calls = [(call.name, str(call.arguments)) for call in reply.calls]
    assert len({call.vendor_id or call.call_id for call in reply.calls}) == len(calls)
    return str(reply.text), reply.reasoning, calls, completed.finish, completed.usage.output


@apis
async def test_what_is_read_does_not_depend_on_how_it_travels(api: str):
    harmless = {how: faults for how, faults in HARMLESS.items() if (api, how) not in CONTENT}
    plain, *delivered = await replies(api, (), *harmless.values())
    assert [call.name for call in plain.reply.calls] == ["look", "look", "rest"]
    assert plain.finish == "tool_calls"
    differing = [how for how, read in zip(harmless, delivered, strict=True) if meant(read) != meant(plain)]
    assert differing == []


async def test_calls_are_told_apart_whatever_a_server_calls_them():
    plain, *delivered = await replies("openai-chat", (), *CALLS.values())
    differing = [how for how, read in zip(CALLS, delivered, strict=True) if meant(read) != meant(plain)]
    assert differing == []


@apis
@pytest.mark.parametrize(
    "fault",
    [wire.Cut(at=2), wire.HangUp(at=2), wire.Reset(at=2), wire.Reset(at="headers"), wire.Cut(at=-1)],
    ids=["cut", "hung up", "reset", "reset at once", "no end"],
)
async def test_a_stream_that_breaks_off_is_no_reply(api: str, fault: wire.Fault):
    with pytest.raises((ProviderUnavailable, PartialReply)):
        await replies(api, (fault,))


@apis
async def test_an_overload_within_a_stream_is_a_busy_vendor(api: str):
    with pytest.raises(ProviderError) as caught:
        await replies(api, (wire.ErrorEvent(at=1),))
    error = caught.value if caught.value.__cause__ is None else caught.value.__cause__
    assert isinstance(error, ProviderBusy | ProviderUnavailable)


@apis
async def test_a_page_of_a_proxy_is_no_reply(api: str):
    with pytest.raises(ProviderUnavailable, match="an HTML page"):
        await replies(api, (wire.Html(502),))


@apis
@pytest.mark.parametrize("stop", ["length", "refusal"])
async def test_why_a_reply_ended_is_the_same_everywhere(api: str, stop: str):
    [completed] = await replies(api, (), said=wire.turn("half a", stop=stop))
    assert completed.finish == stop


@pytest.mark.parametrize("server", ["llama.cpp", "vllm", "ollama", "openrouter", "deepseek", "mistral", "azure"])
async def test_a_server_of_ones_own_is_read_like_the_vendors(server: Any):
    async with wire.serve(wire.Script(last=SAID), wire.Settings(server=server)) as serving:
        provider = compatible(serving.openai_url, api_key=KEY, capabilities=server)
        [completed] = await replies_of(provider, "any")
    text, _, calls, finish, _ = meant(completed)
    assert (text, finish) == ("".join(part.text for part in SAID.parts if isinstance(part, wire.Text)), "tool_calls")
    assert [name for name, _ in calls] == ["look", "look", "rest"]
