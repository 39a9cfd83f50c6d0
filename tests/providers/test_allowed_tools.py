"""Requests that show more tools than may be called: a vendor that can be told is told, and the tools stay the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from providers_parts import request, tool, tools, user

from shoal.providers import Request, shipped_profile
from shoal.providers._codex import SERVER as CODEX
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._messages import MessagesEncoder
from shoal.providers._responses import OPENAI_SERVER, ResponsesEncoder, ResponsesServer

OFFERED = tools(tool("look"), tool("write.it"), tool("shout"))


def asked(*allowed: str, **more: Any) -> Request:
    return request(user("x"), tools=OFFERED, allowed_tools=allowed, **more)


def responses(sent: Request, server: ResponsesServer = OPENAI_SERVER) -> dict[str, Any]:
    encoder = ResponsesEncoder("openai", shipped_profile("gpt-6.1-sol"), server)
    made: dict[str, Any] = json.loads(bytes(encoder.encode(sent).body))
    return made


def gemini(sent: Request) -> dict[str, Any]:
    encoder = GeminiEncoder("google", shipped_profile("gemini-4-argon"))
    made: dict[str, Any] = json.loads(bytes(encoder.encode(sent).body))
    return made


def test_openai_is_told_under_the_names_that_are_sent():
    made = responses(asked("look", "write.it"))
    sent = [one["name"] for one in made["tools"]]
    assert made["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": name} for name in sent if name != "shout"],
    }
    assert len(sent) == 3


def test_openai_s_own_types_know_the_choice():
    types = pytest.importorskip("openai.types.responses.tool_choice_allowed", reason="`wire` is not installed")
    assert types.ToolChoiceAllowed.model_validate(responses(asked("look"))["tool_choice"], strict=True)


def test_gemini_is_told_under_the_names_that_are_sent():
    made = gemini(asked("look", "write.it"))
    sent = [one["name"] for one in made["tools"][0]["functionDeclarations"]]
    assert made["toolConfig"] == {
        "functionCallingConfig": {
            "mode": "VALIDATED",
            "allowedFunctionNames": [name for name in sent if name != "shout"],
        }
    }


@pytest.mark.parametrize("allowed", [(), ("unknown",)])
def test_where_nothing_may_be_called_nothing_is_called(allowed: tuple[str, ...]):
    assert responses(asked(*allowed))["tool_choice"] == "none"
    assert gemini(asked(*allowed))["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}


def test_a_request_that_allows_everything_says_nothing():
    free = request(user("x"), tools=OFFERED)
    assert "tool_choice" not in responses(free)
    assert "toolConfig" not in gemini(free)


def test_a_request_without_tools_says_nothing():
    bare = request(user("x"), allowed_tools=("look",))
    assert "tool_choice" not in responses(bare)
    assert "toolConfig" not in gemini(bare)


def test_what_the_options_choose_wins():
    assert responses(asked("look", options={"tool_choice": "required"}))["tool_choice"] == "required"
    config = {"functionCallingConfig": {"mode": "NONE"}}
    assert gemini(asked("look", options={"toolConfig": config}))["toolConfig"] == config


def test_vendors_without_such_a_list_are_told_nothing():
    assert "tool_choice" not in responses(asked("look"), CODEX)
    encoder = MessagesEncoder("anthropic", shipped_profile("claude-opus-5-5"))
    assert "tool_choice" not in json.loads(bytes(encoder.encode(asked("look")).body))


@pytest.mark.parametrize("encode", [responses, gemini])
def test_the_tools_are_the_same_bytes_whatever_may_be_called(encode: Any):
    assert encode(asked("look"))["tools"] == encode(asked("shout"))["tools"]
