"""Markers in Chat Completions, where a server takes them in parts of messages."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from providers_parts import PNG, request

from shoal.providers import SERVERS, Message, Text, blob, chat_encoder, shipped_profile

PROFILE = replace(shipped_profile("gpt-6.1-sol"), min_cacheable_tokens=0)
PARTS = {"image_url": blob(PNG), "file": blob(b"%PDF-1.7")}


@pytest.mark.parametrize("kind", PARTS)
def test_a_marker_stands_beside_the_data_of_a_part_and_not_in_it(kind: str):
    asked = request(Message("user", (Text.of("x"),), blobs=(PARTS[kind],)), tail=Text.of("T"))
    made = json.loads(bytes(chat_encoder(SERVERS["openai"], profile=PROFILE).encode(asked)))
    part = made["messages"][0]["content"][-1]
    assert set(part) == {"type", kind, "prompt_cache_breakpoint"}
