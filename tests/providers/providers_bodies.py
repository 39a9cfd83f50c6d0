"""The strict schema layer: a body that was sent, held against the types of its vendor's official client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError
from typed_dicts import faults

messages = pytest.importorskip("anthropic.types.beta.message_create_params", reason="the group `wire` is missing")
completions = pytest.importorskip("openai.types.chat.completion_create_params", reason="the group `wire` is missing")
responses = pytest.importorskip("openai.types.responses.response_create_params", reason="the group `wire` is missing")
genai = pytest.importorskip("google.genai.types", reason="the group `wire` is missing")

SAMPLING = frozenset({"temperature", "top_k", "top_p"})
GEMINI_PARTS: Mapping[str, Any] = {
    "contents": genai.Content,
    "tools": genai.Tool,
    "generationConfig": genai.GenerationConfig,
    "systemInstruction": genai.Content,
    "toolConfig": genai.ToolConfig,
}


def schema_faults(path: str, body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with *body*, sent to *path*, by its vendor's own types."""
    if path.endswith("/messages"):
        # Sampling left the types when newer models stopped taking it; old models still do.
        kept = {name: part for name, part in body.items() if name not in SAMPLING}
        return faults(kept, messages.MessageCreateParamsStreaming)
    if path.endswith("/chat/completions"):
        plain = {**body, "messages": [_plain(message) for message in body["messages"]]}
        return faults(plain, completions.CompletionCreateParamsStreaming)
    if path.endswith("/responses"):
        return faults(body, responses.ResponseCreateParamsStreaming)
    assert "Content" in path, path
    return gemini_faults(body)


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return *message* without what other servers have beside OpenAI's fields: reasoning, and markers of a gateway."""
    kept = {name: part for name, part in message.items() if name not in ("reasoning_content", "reasoning_details")}
    if isinstance(kept.get("content"), list):
        kept["content"] = [
            {name: value for name, value in part.items() if name != "cache_control"} for part in kept["content"]
        ]
    return kept


def gemini_faults(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a body for Gemini; its client has models for the parts, which forbid unknown fields."""
    found: list[str] = []
    for name, value in body.items():
        if name not in GEMINI_PARTS:
            found.append(f"body: {name!r} is unknown")
            continue
        for part in value if isinstance(value, list) else [value]:
            try:
                GEMINI_PARTS[name].model_validate(part)
            except ValidationError as error:
                found.append(f"body.{name}: {error}")
    return found
