"""The provider that plays listed replies."""

from __future__ import annotations

from contextlib import aclosing

import anyio
import pytest
from providers_parts import ask, assistant, block, request, result, tool, tools, user

from shoal.errors import PartialReply, ProviderRefused
from shoal.providers import (
    Completed,
    Message,
    ProviderState,
    ReasoningDelta,
    Request,
    RetryPolicy,
    Text,
    TextDelta,
    Usage,
    exchange,
)
from shoal.testing import (
    IllegalTranscript,
    Say,
    ScriptedProvider,
    ScriptEnded,
    call,
    check_legal,
    request_bytes,
    request_json,
)

pytestmark = pytest.mark.anyio

HI = request(user("hi"))


async def answered(provider: ScriptedProvider, asked: Request = HI) -> Completed:
    return await exchange(provider, asked)


async def test_replies_are_played_in_order_and_requests_kept():
    provider = ScriptedProvider("one", call("look", path="a"))
    first, second = await answered(provider), await answered(provider)
    assert (str(first.reply.text), first.finish, first.simulated) == ("one", "stop", True)
    assert (second.reply.calls, second.finish) == ((call("look", "call_1", path="a"),), "tool_calls")
    assert provider.requests == (HI, HI)
    assert repr(provider) == "<ScriptedProvider scripted, 2 of 2 replies played>"


async def test_all_that_a_vendor_says_can_be_said():
    state = ProviderState("p", "m", b"1")
    reply = Say("a\nb", (call("look", "own"),), "hm", Usage(1, output=2), "length", state, delay_s=3.0)
    async with aclosing(ScriptedProvider(reply).stream(HI)) as stream:
        *deltas, completed = [event async for event in stream]
    assert deltas == [ReasoningDelta("hm"), TextDelta("a\n"), TextDelta("b")]
    assert isinstance(completed, Completed)
    assert (completed.usage, completed.finish, completed.reply.state) == (Usage(1, output=2), "length", state)
    assert completed.reply.calls[0].call_id == "own"
    assert anyio.current_time() == pytest.approx(3.0, abs=0.5)


async def test_a_defect_is_raised_as_it_is():
    with pytest.raises(RuntimeError, match="a defect"):
        await answered(ScriptedProvider(RuntimeError("a defect")))


async def test_an_error_is_raised():
    with pytest.raises(ProviderRefused):
        await answered(ScriptedProvider(ProviderRefused("no")))


async def test_a_cut_stream_ends_after_its_characters():
    seen: list[object] = []
    once = RetryPolicy(attempts=1)
    with pytest.raises(PartialReply):
        await exchange(ScriptedProvider(Say("abc", cut_after=2)), HI, policy=once, on_delta=seen.append)
    assert seen == [TextDelta("ab")]


async def test_a_request_more_than_the_script_has_is_an_error():
    with pytest.raises(ScriptEnded, match="one request more"):
        await answered(ScriptedProvider())


async def test_a_script_may_answer_by_the_request():
    provider = ScriptedProvider(script=lambda asked: asked.model)
    assert str((await answered(provider, request(user("x"), model="m2"))).reply.text) == "m2"


async def test_other_purposes_have_answers_of_their_own():
    provider = ScriptedProvider("stage", purposes={"titling": "A title"})
    title = await answered(provider, request(user("x"), purpose="titling"))
    assert (str(title.reply.text), str((await answered(provider)).reply.text)) == ("A title", "stage")


async def test_an_illegal_transcript_is_refused_unless_the_provider_is_lenient():
    orphan = request(user("x"), result("a"))
    with pytest.raises(IllegalTranscript):
        await answered(ScriptedProvider("a"), orphan)
    assert await answered(ScriptedProvider("a", lenient=True), orphan)


async def test_profile_count_and_name_are_those_given():
    provider = ScriptedProvider(name="p", window_tokens=9, max_output_tokens=8, price=None)
    profile = provider.profile("x")
    assert (provider.name, profile.window_tokens, profile.max_output_tokens, profile.price) == ("p", 9, 8, None)
    assert (await provider.count_tokens(HI)).tokens == -(-len(request_bytes(HI)) // 4)
    await provider.aclose()
    assert provider.closed


def test_the_outgoing_request_can_be_read():
    assert request_json(HI)["messages"] == [{"role": "user", "content": "hi"}]
    assert "max_completion_tokens" in request_json(HI, server="azure")


LEGAL = [
    request(user("a"), assistant("b", ask("1"), ask("2")), result("1"), result("2"), user("c")),
    request(system=(block("s"),)),
    request(user("a"), Message("system", (Text.of("s"),)), tools=tools(tool("a"), tool("b"))),
]


@pytest.mark.parametrize("asked", LEGAL)
def test_a_legal_transcript_passes(asked: Request):
    check_legal(asked)


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (request(), "at least one message"),
        (request(user("a"), max_tokens=0), "at least one token"),
        (request(user("a"), tools=tools(tool("a"), tool("a"))), "names of tools are unique"),
        (request(user("a"), result("1")), "each result answers the turn before"),
        (request(user("a"), assistant("", ask("1")), user("b")), "directly behind their calls"),
        (request(user("a"), assistant("", ask("1"))), "one result before the next request"),
        (request(assistant("", ask("1"), ask("2")), result("2"), result("1")), "in call order"),
        (request(assistant("", ask("1")), result("1"), result("1")), "each result answers the turn before"),
        (request(assistant("", ask("1"), ask("1")), result("1"), result("1")), "call ids are unique"),
        (request(assistant("", ask("")), result("")), "call ids are unique"),
        (request(assistant("", ask("1")), result("1"), assistant("", ask("1")), result("1")), "call ids are unique"),
        (request(Message("user", (Text.of("a"),), (ask("1"),)), result("1")), "only an assistant"),
        (request(user("")), "text, parts or calls"),
        (request(assistant("")), "text, parts or calls"),
    ],
)
def test_each_broken_rule_is_named(asked: Request, rule: str):
    with pytest.raises(IllegalTranscript, match=rule):
        check_legal(asked)
