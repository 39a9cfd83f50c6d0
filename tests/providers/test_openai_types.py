"""What we send, held against the official client's own types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import ask, assistant, block, request, requests, result, tool, tools, user
from typed_dicts import faults

from shoal.providers import SERVERS, Request, Text, chat_encoder

completion = pytest.importorskip(
    "openai.types.chat.completion_create_params", reason="the dependency group `wire` is not installed"
)

FULL = request(
    user("hi"),
    assistant("", ask("a", arguments='{"x":1}')),
    result("a"),
    system=(block("s"),),
    tools=tools(tool()),
    tail=Text.of("T"),
    temperature=0.5,
    options={"seed": 1, "stop": ["x"], "reasoning_effort": "low", "tool_choice": "auto"},
)


def body(asked: Request, server: str = "azure") -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(bytes(chat_encoder(SERVERS[server]).encode(asked)))
    return decoded


def faults_of(sent: object) -> list[str]:
    return faults(sent, completion.CompletionCreateParamsStreaming)


@pytest.mark.parametrize("server", ["azure", "generic"])
def test_a_full_request_fits_the_official_types(server: str):
    assert faults_of(body(FULL, server)) == []


@given(drawn=requests(), server=st.sampled_from(["azure", "generic", "mistral"]))
def test_any_request_fits_the_official_types(drawn: Request, server: str):
    assert faults_of(body(drawn, server)) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"messages": "hi"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "x"}}]}
            ]
        },
        {"messages": [{"role": "user", "content": "x", "cache": True}]},
        {"tools": [{"type": "function", "function": {"description": "nameless"}}]},
        {"stream": False},
        {"temperature": "hot"},
        {"seed": True},
        {"unheard_of": 1},
        {"stop": [1]},
    ],
)
def test_the_check_itself_bites(broken: dict[str, Any]):
    assert faults_of({**body(FULL), **broken})
