"""What we send to Anthropic, held against the official client's own types; what we read, against its parser."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import PNG, ask, assistant, block, request, requests, result, tool, tools, user
from test_messages import THOUGHT, state
from typed_dicts import faults

from shoal.providers import Message, OutputFormat, Request, Text, blob, shipped_profile
from shoal.providers._messages import MessagesEncoder

stable = pytest.importorskip("anthropic.types.message_create_params", reason="the group `wire` is not installed")
beta = pytest.importorskip("anthropic.types.beta.message_create_params")
MODELS = ["claude-opus-5-5", "claude-haiku-4-5", "claude-opus-4-8", "unheard-of"]

FULL = request(
    Message("user", (Text.of("hi"),), blobs=(blob(PNG), blob(b"%PDF-1.7"))),
    assistant("", ask("a", arguments='{"x":1}'), state=state(THOUGHT, ["call", 0])),
    result("a", is_error=True),
    Message("system", (Text.of("now"),)),
    model="claude-opus-5-5",
    system=(block("s" * 4000, volatility="stable"),),
    tools=tools(tool()),
    output=OutputFormat("o", b'{"type":"object"}'),
    options={"tool_choice": {"type": "auto"}, "thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}},
)


def body(asked: Request, model: str = "claude-opus-5-5") -> dict[str, Any]:
    profile = replace(shipped_profile(model), cache="markers", min_cacheable_tokens=0)
    decoded: dict[str, Any] = json.loads(bytes(MessagesEncoder("anthropic", profile).encode(asked).body))
    return decoded


def faults_of(sent: object) -> list[str]:
    # Sampling left the types when newer models stopped taking it; old models still do.
    kept = {name: part for name, part in dict(sent).items() if name not in ("temperature", "top_k", "top_p")}  # type: ignore[call-overload]
    return faults(kept, stable.MessageCreateParamsStreaming)


def test_a_full_request_fits_the_official_types():
    assert faults_of(body(FULL)) == []


def test_a_message_for_one_turn_fits_the_beta_types():
    scoped = body(request(user("x"), Message("system", (Text.of("T"),), turn_scoped=True)))
    assert faults(scoped, beta.MessageCreateParamsStreaming) == []


@given(drawn=requests(), model=st.sampled_from(MODELS))
def test_any_request_fits_the_official_types(drawn: Request, model: str):
    made = body(drawn, model)
    assert faults(made, beta.MessageCreateParamsStreaming) == []


@pytest.mark.parametrize(
    "broken",
    [
        {"max_tokens": "many"},
        {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "{}"}]}]},
        {"tools": [{"input_schema": {}}]},
        {"system": [{"type": "text"}]},
        {"thinking": {"type": "enabled"}},
        {"cache_control": {"type": "ephemeral", "ttl": "2h"}},
        {"unheard_of": 1},
    ],
)
def test_the_check_itself_bites(broken: dict[str, Any]):
    assert faults_of({**body(FULL), **broken})
