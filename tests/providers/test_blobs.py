"""Stored parts."""

from __future__ import annotations

import base64

import pytest
from providers_parts import PNG, request, user

from shoal.errors import ProviderRefused
from shoal.providers import Media, Message, Text, blob, blob_of, stand_in
from shoal.providers._blobs import in_base64, in_words
from shoal.providers._wire import Wire


def test_a_stand_in_names_type_measure_size_and_file():
    assert str(blob(PNG, "hero.png").stand_in) == f"[image/png 64x48, {len(PNG)} bytes] hero.png"
    assert str(blob(b"\0" * 2048).stand_in) == "[application/octet-stream, 2 KB]"
    assert str(blob(b"\0" * 3_000_000).stand_in) == "[application/octet-stream, 2.9 MB]"


@pytest.mark.parametrize(
    ("media", "line"),
    [
        (Media("application/pdf", pages=1), "[application/pdf 1 page, 10 bytes] x"),
        (Media("application/pdf", pages=12), "[application/pdf 12 pages, 10 bytes] x"),
        (Media("audio/wav", seconds=61.7), "[audio/wav 62 s, 10 bytes] x"),
        (Media("audio/wav"), "[audio/wav, 10 bytes] x"),
    ],
)
def test_a_stand_in_says_how_long_a_part_is(media: Media, line: str):
    assert stand_in(media, 10, "x") == line


def test_a_part_whose_bytes_lie_elsewhere_is_the_same_part():
    here, there = (
        blob(PNG, "a.png"),
        blob_of(Media("image/png", 64, 48), len(PNG), b"d" * 16, lambda: PNG, name="a.png"),
    )
    assert (here.stand_in, here.side_px, here.width_px) == (there.stand_in, there.side_px, there.width_px)


def test_a_turn_in_words_names_what_its_model_made():
    said = Message("assistant", (Text.of("Here:"),), blobs=(blob(PNG, "a.png"), blob(b"hi", "b.txt")))
    lines = f"[image/png 64x48, {len(PNG)} bytes] a.png\n[text/plain, 2 bytes] b.txt\nhi"
    assert in_words(said).text == f"Here:\n{lines}"
    assert in_words(Message("assistant", blobs=said.blobs)).text == lines
    assert in_words(said).blobs == ()


def test_a_turn_without_parts_is_its_own_words():
    said = user("hello")
    assert in_words(said) is said


def test_text_is_held_as_text():
    assert blob(b"hi").text == Text.of("hi")
    assert blob(PNG).text is None


def test_bytes_are_fetched_when_the_request_is_written_and_not_before():
    fetched: list[str] = []

    def load() -> bytes:
        fetched.append("now")
        return PNG

    held = in_base64(blob(PNG, load=load))
    wire = Wire((b'"', held, b'"'), held.size + 2)
    assert fetched == []
    assert bytes(wire) == b'"' + base64.b64encode(PNG) + b'"'
    assert len(bytes(wire)) == wire.size
    assert list(wire.pieces(4)) == list(wire.pieces()) == [b'"', held, b'"']


@pytest.mark.parametrize("now", [b"short", OSError("gone")])
def test_bytes_that_are_not_what_they_were_are_refused(now: bytes | OSError):
    def load() -> bytes:
        if isinstance(now, OSError):
            raise now
        return now

    with pytest.raises(ProviderRefused, match=r"'a\.png'"):
        in_base64(blob(PNG, "a.png", load=load)).load()


def test_a_message_with_another_part_has_another_digest():
    with_part = Message("user", (Text.of("x"),), blobs=(blob(PNG),))
    assert with_part.digest != user("x").digest
    assert request(with_part).digest != request(user("x")).digest
