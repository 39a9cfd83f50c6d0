"""Outgoing requests with stored parts, as each vendor gets them, as files under `tests/prompts`.

The same window is shown to a model that takes images and documents, and to one that takes text only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from windowkit import Held, png, stage

from shoal.blueprints import Region
from shoal.providers import SERVERS, ModelProfile, Request, chat_encoder, shipped_profile
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._messages import MessagesEncoder
from shoal.providers._responses import ResponsesEncoder
from shoal.runtime.context import Prompt

SamePrompt = Callable[[str, str], None]
Encode = Callable[[ModelProfile, Request], bytes]

PDF = b"%PDF-1.7 /Type /Page /Type /Page"


def compatible(known: ModelProfile, asked: Request) -> bytes:
    return bytes(chat_encoder(SERVERS["openrouter"], "openrouter", known.model, known).encode(asked))


ENCODERS: dict[str, tuple[str, Encode]] = {
    "anthropic": ("claude-haiku-4-5", lambda known, asked: bytes(MessagesEncoder("a", known).encode(asked).body)),
    "openai": ("gpt-5.4", lambda known, asked: bytes(ResponsesEncoder("openai", known).encode(asked).body)),
    "gemini": ("gemini-2.5-flash", lambda known, asked: bytes(GeminiEncoder("google", known).encode(asked).body)),
    "compatible": ("gpt-5.4", compatible),
}


def window(known: ModelProfile) -> Prompt:
    """Return a prompt with parts in a region, in a tail, in a message, in a turn and in a result."""
    held = Held(
        Region("artwork", kind="pinned", max_tokens=9_000, accepts=("image/*", "application/pdf")),
        Region("notes", kind="hashmap"),
        Region("desk", kind="pinned", placement="tail"),
        intake=known.intake,
        stages=(stage(system_prompt="Describe what you see."),),
    )
    hero, brief = held.store(png(1024, 768), "hero.png"), held.store(PDF, "brief.pdf")
    words, odd = held.store(b"Two piers.", "harbour.txt"), held.store(b"\0\1\2", "model.bin")
    held.write("artwork", "", key="draft", parts=(hero,))
    held.write("artwork", "", parts=(brief,))
    held.write("notes", "What the harbour master says:", key="harbour", parts=(words,))
    held.write("desk", "On the desk:", parts=(odd,))
    held.say("Compare it with this one.", parts=(held.store(png(64, 48), "other.png"),))
    held.turn("I look at both, and read one more.", calls=["call_1"], arguments='{"path": "third.png"}')
    held.answer("call_1", "", parts=(held.store(png(32, 32), "third.png"),))
    held.turn("Here is a sketch.", parts=(held.store(png(16, 16)),))
    held.say("Thank you.")
    return held.prompt()


def readable(body: bytes) -> str:
    """Return *body* as readable JSON, long data shortened."""
    text = json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    return re.sub(r"([A-Za-z0-9+/]{12})[A-Za-z0-9+/]{12,}={0,2}(?=\")", r"\1…", text) + "\n"


@pytest.mark.parametrize("vendor", ENCODERS)
@pytest.mark.parametrize("sees", [True, False], ids=["seeing", "blind"])
def test_a_window_with_parts_is_sent_as(vendor: str, sees: bool, same_prompt: SamePrompt):
    model, encode = ENCODERS[vendor]
    known = shipped_profile(model)
    known = known if sees else replace(known, input_types=("text/*",))
    prompt = window(known)
    body = encode(known, Request(model, prompt.system, prompt.messages, prompt.tail, prompt.tools))
    same_prompt(f"parts/{vendor}_{'seeing' if sees else 'blind'}", readable(body))


def test_a_blind_model_is_shown_no_bytes():
    prompt = window(ModelProfile("m"))
    lifted = prompt.messages[0].messages[0].blobs
    assert [blob.name for blob in lifted] == ["harbour.txt"]
