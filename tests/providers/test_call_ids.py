"""Ids of calls that a server counts anew in each turn: no transcript holds two calls of one id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from providers_parts import ask, assistant, request, result, tool, tools, user

from shoal.providers import (
    Completed,
    Message,
    Reply,
    Text,
    ToolCall,
    Usage,
    VendorProvider,
    anthropic,
    exchange,
    openai,
)
from shoal.providers._calls import told_apart
from shoal.testing import wire

LONG = "toolu_01A09q90qw90lq917835lq9"


def completed(*calls: ToolCall) -> Completed:
    return Completed(Reply(Text.of("I look."), calls), Usage(1, 0, 0, 0, 1, 0))


def ids(made: Completed) -> list[str]:
    return [call.call_id for call in made.reply.calls]


def test_an_id_that_stands_in_the_transcript_is_replaced():
    asked = request(user("x"), assistant("", ask("call_0")), result("call_0"))
    assert ids(told_apart(completed(ask("call_0"), ask("call_9")), asked)) == ["call_0_1", "call_9"]


def test_the_vendor_s_own_id_of_a_call_counts_and_not_ours():
    ours = ToolCall("call_7_0", "look", Text.of("{}"), "call_0")
    asked = request(user("x"), assistant("", ours), result("call_7_0"))
    assert ids(told_apart(completed(ask("call_0")), asked)) == ["call_0_1"]
    assert ids(told_apart(completed(ask("call_7_0")), asked)) == ["call_7_0"]


def test_a_new_id_is_none_that_stands_there_already():
    asked = request(user("x"), assistant("", ask("a"), ask("a_2")), result("a"), result("a_2"))
    assert ids(told_apart(completed(ask("a"), ask("a_3")), asked)) == ["a_4", "a_3"]


def test_a_reply_of_which_all_ids_are_new_is_left_as_it_is():
    asked = request(user("x"), assistant("", ask("call_0")), result("call_0"))
    for made in (completed(ask("call_1")), completed()):
        assert told_apart(made, asked) is made


def test_a_long_id_is_not_looked_for():
    asked = request(user("x"), assistant("", ask(LONG)), result(LONG))
    made = completed(ask(LONG))
    assert told_apart(made, asked) is made


LOOK = tools(tool("look", b'{"type":"object","properties":{}}'))
APIS: Mapping[str, tuple[str, Mapping[str, Any], Callable[[wire.Server], VendorProvider]]] = {
    "anthropic": (
        "claude-opus-4-8",
        {"thinking": {"type": "adaptive"}},
        lambda server: anthropic("a-key", base_url=server.base_url),
    ),
    "openai": (
        "gpt-6.1-sol",
        {"reasoning": {"effort": "low"}},
        lambda server: openai("a-key", base_url=server.openai_url),
    ),
}


@pytest.mark.anyio
@pytest.mark.sockets
@pytest.mark.parametrize("api", APIS)
async def test_thoughts_go_back_beside_the_calls_of_a_server_that_uses_one_id_for_all(api: str):
    model, options, make = APIS[api]
    turn = wire.turn(wire.think("hm"), wire.call("look", call_id="call_0"))
    async with wire.serve(wire.Script(turn, turn, last="done")) as server:
        provider = make(server)
        said: list[Message] = [user("x")]
        sent: list[str] = []
        for _ in range(2):
            asked = request(*said, model=model, options=options, tools=LOOK)
            reply = (await exchange(provider, asked)).reply
            sent += [call.call_id for call in reply.calls]
            said.append(Message("assistant", (reply.text,), reply.calls, state=reply.state))
            said.append(result(reply.calls[0].call_id))
        last = await exchange(provider, request(*said, model=model, options=options, tools=LOOK))
        await provider.aclose()
    assert (len(set(sent)), str(last.reply.text)) == (2, "done")
    assert all(message.state is not None for message in said if message.role == "assistant")
