"""One conversation is the same through every API: what a brain sees, says, and gets back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from test_chat_rules import function as chat_function
from test_gemini_rules import function as gemini_function
from test_responses_rules import CODEX, ENCRYPTED
from test_responses_rules import function as responses_function
from wirekit import ANTHROPIC, GEMINI, OPENAI, Desk, tool

from shoal.testing import wire

SCRIPT: tuple[wire.Playable, ...] = (
    (wire.think("hm"), "I look.", wire.call("f", x=1)),
    (wire.call("f", x=2), wire.call("f", x=3)),
    "Seen.",
)
QUESTION = "What do you see?"


class Talk:
    """A client of one API: it asks, runs what is called, and asks again until nothing is."""

    def __init__(self) -> None:
        self.asked: list[wire.Ask] = []
        script = wire.Script(*SCRIPT)

        def brain(ask: wire.Ask) -> wire.Turn | wire.Failure:
            self.asked.append(ask)
            return script(ask)

        self.desk = Desk(brain)

    def send(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        got = self.desk.send(path, body, headers)
        assert got.exchange.violations == ()
        return got


def anthropic(talk: Talk) -> None:
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        body = {"model": "claude-opus-4-8", "max_tokens": 1000, "system": "Be brief.", "tools": [tool()],
                "messages": messages, "thinking": {"type": "adaptive"}}  # fmt: skip
        content = talk.send("/v1/messages", body, ANTHROPIC).json["content"]
        uses = [block for block in content if block["type"] == "tool_use"]
        if not uses:
            return
        results = [
            {"type": "tool_result", "tool_use_id": use["id"], "content": f"seen {use['input']['x']}"} for use in uses
        ]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]


def chat(talk: Talk) -> None:
    messages: list[Any] = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    while True:
        body = {"model": "gpt-5.4", "tools": [chat_function()], "messages": messages}
        message = talk.send("/v1/chat/completions", body, OPENAI).json["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls", []):
            seen = f"seen {json.loads(call['function']['arguments'])['x']}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": seen})
        if not message.get("tool_calls"):
            return


def items(talk: Talk, path: str, **more: Any) -> None:
    given: list[Any] = [{"role": "user", "content": QUESTION}]
    while True:
        body = {"model": "gpt-5.4", "instructions": "Be brief.", "tools": [responses_function()], "input": given,
                "store": False, "include": [ENCRYPTED], **more}  # fmt: skip
        got = talk.send(path, body, OPENAI)
        output = (got.events[-1]["response"] if "stream" in more else got.json)["output"]
        # Ids of calls are longer than the stateless transport takes back.
        output = [{**item, "call_id": item["call_id"][:64]} if "call_id" in item else item for item in output]
        calls = [item for item in output if item["type"] == "function_call"]
        if not calls:
            return
        given += output
        for call in calls:
            seen = f"seen {json.loads(call['arguments'])['x']}"
            given.append({"type": "function_call_output", "call_id": call["call_id"], "output": seen})


def responses(talk: Talk) -> None:
    items(talk, "/v1/responses")


def codex(talk: Talk) -> None:
    items(talk, CODEX, stream=True)


def gemini(talk: Talk) -> None:
    contents: list[Any] = [{"role": "user", "parts": [{"text": QUESTION}]}]
    while True:
        body = {"contents": contents, "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "tools": [{"functionDeclarations": [gemini_function()]}]}  # fmt: skip
        got = talk.send("/v1beta/models/gemini-3.8-flash:generateContent", body, GEMINI)
        content = got.json["candidates"][0]["content"]
        calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
        if not calls:
            return
        results = [
            {"functionResponse": {"id": call["id"], "name": "f", "response": {"output": f"seen {call['args']['x']}"}}}
            for call in calls
        ]
        contents += [content, {"role": "user", "parts": results}]


def plain(ask: wire.Ask) -> list[tuple[str, str, list[Any], list[Any]]]:
    """The conversation as far as it does not depend on the API: neighbours of one role are one."""
    told: list[tuple[str, str, list[Any], list[Any]]] = []
    for said in ask.said:
        calls = [(call.name, arguments(call)) for call in said.calls]
        results = [(result.name, result.text) for result in said.results]
        if told and told[-1][0] == said.role:
            role, text, before, answered = told.pop()
            told.append((role, text + said.text, before + calls, answered + results))
        else:
            told.append((said.role, said.text, calls, results))
    return told


def arguments(call: wire.Call) -> Any:
    return json.loads(call.arguments) if isinstance(call.arguments, str) else dict(call.arguments)


WHOLE = [
    ("system", "Be brief.", [], []),
    ("user", QUESTION, [], []),
    ("assistant", "I look.", [("f", {"x": 1})], []),
    ("user", "", [], [("f", "seen 1")]),
    ("assistant", "", [("f", {"x": 2}), ("f", {"x": 3})], []),
    ("user", "", [], [("f", "seen 2"), ("f", "seen 3")]),
]


@pytest.mark.parametrize("client", [anthropic, chat, responses, codex, gemini])
def test_a_conversation_is_the_same_through_every_api(client: Callable[[Talk], None]):
    talk = Talk()
    client(talk)
    assert [plain(ask) for ask in talk.asked] == [WHOLE[:2], WHOLE[:4], WHOLE]
    assert {ask.choice for ask in talk.asked} == {"auto"}
    assert [[offered.name for offered in ask.tools] for ask in talk.asked] == [["f"]] * 3
