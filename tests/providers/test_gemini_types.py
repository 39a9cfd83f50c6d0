"""What we send to the Gemini API, held against the official client's own types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_parts import PNG, ask, assistant, block, request, requests, result, tool, tools, user
from pydantic import BaseModel, ValidationError
from test_gemini import MODEL, turn

from shoal.providers import Message, OutputFormat, Request, Text, blob, shipped_profile
from shoal.providers._gemini import GeminiEncoder

types = pytest.importorskip("google.genai.types", reason="the group `wire` is not installed")

FULL = request(
    Message("user", (Text.of("hi"),), blobs=(blob(PNG), blob(b"%PDF-1.7"))),
    turn(["text", 1, "c2ln"], ["call", 0, "c2ln", True], texts=("a",), calls=1),
    Message("tool", (Text.of("r"),), call_id="own-0", blobs=(blob(PNG),)),
    assistant("", ask("b")),
    result("b", is_error=True),
    user("x"),
    model=MODEL,
    system=(block("s"),),
    tools=tools(tool()),
    tail=Text.of("T"),
    temperature=0.5,
    output=OutputFormat("o", b'{"type":"object"}'),
    options={
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["look"]}},
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}, "stopSequences": ["x"]},
    },
)


def body(asked: Request, model: str = MODEL) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(bytes(GeminiEncoder("google", shipped_profile(model)).encode(asked).body))
    return decoded


def fits(sent: dict[str, Any]) -> bool:
    """Check each part of a body against the model that the client has for it; all of them forbid unknown fields."""
    kinds: dict[str, type[BaseModel]] = {
        "generationConfig": types.GenerationConfig,
        "systemInstruction": types.Content,
        "toolConfig": types.ToolConfig,
    }
    for name, value in sent.items():
        match name:
            case "contents":
                assert all(types.Content.model_validate(one) for one in value)
            case "tools":
                assert all(types.Tool.model_validate(one) for one in value)
            case _:
                assert kinds[name].model_validate(value)
    return True


def test_a_full_request_fits_the_official_types():
    assert fits(body(FULL))


@given(drawn=requests(), model=st.sampled_from([MODEL, "gemini-2.5-flash"]))
def test_any_request_fits_the_official_types(drawn: Request, model: str):
    assert fits(body(drawn, model))


@pytest.mark.parametrize(
    "broken",
    [
        {"contents": [{"role": "user", "parts": [{"words": "x"}]}]},
        {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "a", "response": "text"}}]}]},
        {"tools": [{"functionDeclarations": [{"label": "a"}]}]},
        {"generationConfig": {"unheardOf": 1}},
        {"toolConfig": {"functionCallingConfig": {"modus": "ANY"}}},
    ],
)
def test_the_check_itself_bites(broken: dict[str, Any]):
    with pytest.raises(ValidationError):
        fits({**body(FULL), **broken})
