"""What we send to the Responses API, held against the official client's own types."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import PNG, ask, assistant, block, request, requests, result, tool, tools, user
from test_responses import THOUGHT, state
from typed_dicts import faults

from shoal.providers import Message, OutputFormat, Request, Text, blob, shipped_profile
from shoal.providers._codex import SERVER as CODEX
from shoal.providers._responses import OPENAI_SERVER, ResponsesEncoder, ResponsesServer

params = pytest.importorskip(
    "openai.types.responses.response_create_params", reason="the group `wire` is not installed"
)

FULL = request(
    Message("user", (Text.of("hi"),), blobs=(blob(PNG), blob(b"%PDF-1.7"))),
    assistant("a", ask("a", arguments='{"x":1}'), state=state(THOUGHT, ["text", 1, "commentary"], ["call", 0])),
    Message("tool", (Text.of("r"),), call_id="a", blobs=(blob(PNG),)),
    assistant("", ask("b")),
    result("b"),
    Message("system", (Text.of("now"),)),
    user("x"),
    model="gpt-6.1-sol",
    system=(block("s" * 5000, volatility="stable"),),
    tools=tools(tool()),
    tail=Text.of("T"),
    output=OutputFormat("o", b'{"type":"object"}'),
    options={"tool_choice": "auto", "reasoning": {"effort": "low"}, "service_tier": "auto"},
)


def body(asked: Request, server: ResponsesServer = OPENAI_SERVER) -> dict[str, Any]:
    profile = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
    decoded: dict[str, Any] = json.loads(bytes(ResponsesEncoder("openai", profile, server).encode(asked).body))
    return decoded


def faults_of(sent: object) -> list[str]:
    return faults(sent, params.ResponseCreateParamsStreaming)


@pytest.mark.parametrize("server", [OPENAI_SERVER, CODEX, replace(OPENAI_SERVER, marks_results=True)])
def test_a_full_request_fits_the_official_types(server: ResponsesServer):
    assert faults_of(body(FULL, server)) == []


@given(drawn=requests(), server=st.sampled_from([OPENAI_SERVER, CODEX]))
def test_any_request_fits_the_official_types(drawn: Request, server: ResponsesServer):
    assert faults_of(body(drawn, server)) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"input": 5},
        {"input": [{"type": "function_call", "call_id": "a", "name": "b"}]},
        {"input": [{"type": "message", "role": "robot", "content": "x"}]},
        {"tools": [{"type": "function", "function": {"name": "nested"}}]},
        {"include": ["everything"]},
        {"stream": False},
        {"unheard_of": 1},
    ],
)
def test_the_check_itself_bites(broken: dict[str, Any]):
    assert faults_of({**body(FULL), **broken})
