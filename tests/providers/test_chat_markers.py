"""Markers in Chat Completions, where a server takes them in parts of messages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from providers_parts import PNG, assistant, block, request, tool, tools, user

from shoal.providers import SERVERS, Message, Text, blob, chat_encoder, shipped_profile

PROFILE = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
PARTS = {"image_url": blob(PNG), "file": blob(b"%PDF-1.7")}


def test_a_gateway_to_claude_is_sent_no_more_markers_than_claude_takes():
    claude = replace(shipped_profile("anthropic/claude-opus-4-8"), min_cacheable_tokens=0)
    said = [block("x" * 9000, volatility=kind) for kind in ("stable", "stable", "grows", "rewritten", "rewritten")]
    turns = [message for _ in range(20) for message in (user("y" * 4000), assistant("z" * 4000))]
    asked = request(*turns, user("end"), system=tuple(said), tools=tools(tool()))
    made = bytes(chat_encoder(SERVERS["openrouter"], profile=claude).encode(asked)).decode()
    assert 1 <= made.count("cache_control") <= 4


@pytest.mark.parametrize("kind", PARTS)
def test_a_marker_stands_beside_the_data_of_a_part_and_not_in_it(kind: str):
    asked = request(Message("user", (Text.of("x"),), blobs=(PARTS[kind],)), tail=Text.of("T"))
    made = json.loads(bytes(chat_encoder(SERVERS["openai"], profile=PROFILE).encode(asked)))
    part = made["messages"][0]["content"][-1]
    assert set(part) == {"type", kind, "prompt_cache_breakpoint"}
