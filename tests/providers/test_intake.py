"""What models take beside text, and what they count for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from providers_parts import PNG, request, user

from shoal.errors import ConfigInvalid
from shoal.providers import (
    TEXT_ONLY,
    Blob,
    Intake,
    Media,
    Message,
    ModelProfile,
    blob,
    blob_of,
    matches,
    profiles_from,
    shipped_profile,
)
from shoal.providers._token_counts import count_locally

ALL = ("image/*", "audio/*", "video/*", "application/pdf")


def part(mime: str, size: int = 1000, **facts: Any) -> Blob:
    return blob_of(Media(mime, **facts), size, b"d" * 16, lambda: b"")


def image(width: int, height: int) -> Blob:
    return part("image/png", width_px=width, height_px=height)


@pytest.mark.parametrize(
    ("counting", "seen", "tokens"),
    [
        ("claude", image(28, 28), 1),
        ("claude", image(29, 28), 2),
        ("claude", image(1092, 1092), 1521),
        ("claude", image(4000, 3000), 4784),
        ("claude", image(5152, 28), 92),
        ("claude", part("image/png"), 4784),
        ("claude-small", image(1568, 784), 1568),
        ("claude-small", image(3136, 28), 56),
        ("claude", part("application/pdf", pages=3), 6000),
        ("claude", part("application/pdf"), 2000),
        ("gpt", image(1024, 1024), 1024),
        ("gpt", image(4096, 4096), 1536),
        ("gemini", image(384, 384), 258),
        ("gemini", image(385, 10), 258),
        ("gemini", image(769, 768), 516),
        ("gemini", part("audio/wav", seconds=10.0), 320),
        ("gemini", part("audio/wav", size=160_000), 320),
        ("gemini", part("audio/wav", size=1), 1),
        ("gemini", part("video/mp4", size=100, seconds=9e18), 3200),
        ("gemini", part("application/pdf", pages=10), 2580),
        ("flat", image(10, 10), 1500),
        ("flat", part("application/pdf", pages=2), 3000),
        ("nobody's", image(10, 10), 1500),
    ],
)
def test_a_part_counts_as_its_vendor_counts_it(counting: str, seen: Blob, tokens: int):
    assert Intake(ALL, counting).tokens(seen) == tokens


def test_a_part_that_is_not_sent_counts_nothing_beside_its_stand_in():
    assert TEXT_ONLY.tokens(image(100, 100)) == 0
    assert Intake(("*/*",)).tokens(blob(b"text")) == 0


def test_text_is_shown_to_every_model_and_anything_else_to_those_that_take_it():
    shown = [TEXT_ONLY.shows(blob(b"text")), TEXT_ONLY.shows(blob(PNG)), Intake(("image/png",)).shows(blob(PNG))]
    assert shown == [True, False, True]


@pytest.mark.parametrize(
    ("pattern", "covers"),
    [("image/png", True), ("image/*", True), ("*/*", True), ("image/gif", False), ("text/*", False), ("*/png", False)],
)
def test_a_pattern_covers_a_type(pattern: str, covers: bool):
    assert matches((pattern,), "image/png") is covers


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("claude-opus-5", "claude"),
        ("claude-sonnet-4-5", "claude-small"),
        ("gpt-5.4", "gpt"),
        ("gemini-2.5-pro", "gemini"),
        ("deepseek-v4-pro", "flat"),
        ("never heard of", "flat"),
    ],
)
def test_each_family_has_its_rule(model: str, rule: str):
    assert shipped_profile(model).intake.counting == rule


def test_a_rule_that_nobody_has_is_refused_with_those_there_are():
    with pytest.raises(
        ConfigInvalid, match=r"`counts_parts` is 'tiles' .* write one of claude, claude-small, gpt, gem"
    ):
        profiles_from({"mine": {"counts_parts": "tiles"}}, source="a test")


@pytest.mark.anyio
async def test_a_request_is_counted_with_its_parts_as_far_as_they_are_sent():
    spoken = Message("user", user("x").texts, blobs=(blob(PNG), blob(b"four" * 100)))
    sees = ModelProfile("m", input_types=("image/*",), counts_parts="claude")
    blind, seeing = [(await count_locally(request(spoken), p)).tokens for p in (ModelProfile("m"), sees)]
    assert seeing - blind == 3 * 2
    bare = msgspec.structs.replace(spoken, blobs=())
    assert blind - (await count_locally(request(bare), sees)).tokens == pytest.approx(100 + 15, abs=6)
