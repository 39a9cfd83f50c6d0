"""Stored parts."""

from __future__ import annotations

import base64

import pytest
from providers_parts import PNG, request, user

from shoal.errors import ProviderRefused
from shoal.providers import Message, Text, blob, sniff
from shoal.providers._blobs import image_size, in_base64
from shoal.providers._wire import Wire

GIF = b"GIF89a" + (3).to_bytes(2, "little") + (5).to_bytes(2, "little")
JPEG = b"\xff\xd8\xff\xe0\x00\x04xx\xff\xc0\x00\x0b\x08\x00\x07\x00\x09"


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        (b"RIFF....WEBPVP8 ", "image/webp"),
        (b"RIFF....WAVEfmt ", "audio/wav"),
        (b"%PDF-1.7", "application/pdf"),
        ("Grüße".encode(), "text/plain"),
        (b"", "text/plain"),
        (b"a\0b", "application/octet-stream"),
        (b"\xff\xfe", "application/octet-stream"),
    ],
)
def test_bytes_say_what_they_are(data: bytes, mime: str):
    assert sniff(data) == mime


@pytest.mark.parametrize(
    ("data", "size"),
    [(PNG, (64, 48)), (GIF, (3, 5)), (JPEG, (9, 7)), (PNG[:20], None), (JPEG[:12], None), (b"text", None)],
)
def test_an_image_says_how_large_it_is(data: bytes, size: tuple[int, int] | None):
    assert image_size(data) == size


def test_a_stand_in_names_type_measure_size_and_file():
    assert str(blob(PNG, "hero.png").stand_in) == f"[image/png 64x48, {len(PNG)} bytes] hero.png"
    assert str(blob(b"\0" * 2048).stand_in) == "[application/octet-stream, 2 KB]"
    assert str(blob(b"\0" * 3_000_000).stand_in) == "[application/octet-stream, 2.9 MB]"


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
    assert list(wire.pieces(4)) == [b'"', held, b'"']


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
