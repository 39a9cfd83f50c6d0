"""What bytes say of themselves: files are built here as their formats want them, and read back."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Media, media_of, sniff

Make = Callable[[int, int], bytes]  # width and height in, a file out


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\x00\x00\x00"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 3


def jpeg(width: int, height: int) -> bytes:
    app = b"\xff\xe0\x00\x04ab"
    filled = b"\xff" * 3 + b"\xdb\x00\x03x"
    return b"\xff\xd8" + app + b"\xff\x01" + filled + b"\xff\xc2\x00\x0b\x08" + struct.pack(">HH", height, width)


def bmp(width: int, height: int) -> bytes:
    return b"BM" + b"\0" * 12 + struct.pack("<Iii", 40, width, -height)


def old_bmp(width: int, height: int) -> bytes:
    return b"BM" + b"\0" * 12 + struct.pack("<IHH", 12, width, height)


def lossy_webp(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)


def lossless_webp(width: int, height: int) -> bytes:
    return b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", width - 1 | height - 1 << 14)


def extended_webp(width: int, height: int) -> bytes:
    sides = b"".join([(side - 1).to_bytes(3, "little") for side in (width, height)])
    return b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + sides


def heif(width: int, height: int) -> bytes:
    tile = b"ispe" + struct.pack(">III", 0, 1, 1)
    return b"\0\0\0\x18ftypheic\0\0\0\0" + tile + b"ispe" + struct.pack(">III", 0, width, height)


IMAGES = {
    png: "image/png",
    gif: "image/gif",
    jpeg: "image/jpeg",
    bmp: "image/bmp",
    old_bmp: "image/bmp",
    lossy_webp: "image/webp",
    lossless_webp: "image/webp",
    extended_webp: "image/webp",
    heif: "image/heic",
}


@pytest.mark.parametrize("make", IMAGES, ids=lambda make: make.__name__)
@given(width=st.integers(1, 16_000), height=st.integers(1, 16_000))
def test_an_image_says_its_size(make: Make, width: int, height: int) -> None:
    assert media_of(make(width, height)) == Media(IMAGES[make], width, height)


@pytest.mark.parametrize("make", IMAGES, ids=lambda make: make.__name__)
def test_an_image_that_is_cut_off_has_its_size_or_none(make: Make):
    whole = make(640, 480)
    sizes = [(media.width_px, media.height_px) for media in (media_of(whole[:end]) for end in range(len(whole)))]
    assert sizes[0] == (None, None)
    assert set(sizes) <= {(None, None), (1, 1), (640, 480)}  # of the HEIF its first tile came whole


@pytest.mark.parametrize(
    "data",
    [
        png(0, 10),
        b"\x89PNG\r\n\x1a\n\0\0\0\rXXXX" + b"\0" * 8,
        b"\xff\xd8\xff\xe0\x00\x02nothing",
        b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 20,
        b"RIFF\0\0\0\0WEBPXXXX" + b"\0" * 20,
        b"\0\0\0\x18ftypavif" + b"\0" * 20,
        b"II*\0" + b"\0" * 20,
    ],
)
def test_an_image_without_its_numbers_in_their_places_has_no_size(data: bytes):
    media = media_of(data)
    assert media.mime.startswith("image/")
    assert (media.width_px, media.height_px) == (None, None)


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (b"GIF87a", "image/gif"),
        (b"MM\0*", "image/tiff"),
        (b"RIFF....WAVEfmt ", "audio/wav"),
        (b"FORM....AIFCCOMM", "audio/aiff"),
        (b"ID3\x04\0\0\0\0\0\0", "audio/mpeg"),
        (b"....ftypM4A ", "audio/mp4"),
        (b"....ftypqt  ", "video/quicktime"),
        (b"....ftypisom", "video/mp4"),
        (b"....ftypmif1", "image/heif"),
        (b"\x1aE\xdf\xa3....", "video/webm"),
        (b"%PDF-1.7", "application/pdf"),
        ("Grüße".encode(), "text/plain"),
        (b"BM is how this text begins", "text/plain"),
        (b"", "text/plain"),
        (b"a\0b", "application/octet-stream"),
        (b"\xff\xfeh\0e\0l\0l\0o\0", "application/octet-stream"),
        ("latin \xe9".encode("latin-1"), "application/octet-stream"),
        (b"\xff\xfb\x90\0" + b"\0" * 1000, "application/octet-stream"),
    ],
)
def test_bytes_say_what_they_are(data: bytes, mime: str):
    assert sniff(data) == mime


# --- recordings


def wav(seconds: float) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8_000)
        file.writeframes(b"\0" * int(seconds * 32_000))
    return held.getvalue()


def aiff(frames: int) -> bytes:
    rate = struct.pack(">HQ", 16_383 + 15, 44_100 << 48)
    return b"FORM\0\0\0\0AIFFCOMM\0\0\0\x12" + struct.pack(">HIH", 1, frames, 16) + rate


def flac(samples: int, rate: int = 44_100) -> bytes:
    return b"fLaC\0\0\0\x22" + b"\0" * 10 + (rate << 44 | 1 << 41 | 15 << 36 | samples).to_bytes(8, "big")


def ogg(head: bytes, end: int) -> bytes:
    first = b"OggS\0\x02" + b"\0" * 8 + b"\0" * 14 + head
    return first + b"OggS\0\x04" + struct.pack("<q", end) + b"\0" * 14


OPUS = b"OpusHead\x01\x02" + struct.pack("<H", 312) + b"\0" * 8
VORBIS = b"\x01vorbis\0\0\0\0\x02" + struct.pack("<I", 48_000) + b"\0" * 16


def mp4(length: int, *, long: bool = False) -> bytes:
    times = struct.pack(">QQIQ", 0, 0, 600, length) if long else struct.pack(">IIII", 0, 0, 600, length)
    return b"\0\0\0\x18ftypisom....moovmvhd" + bytes([long]) + b"\0\0\0" + times


FRAME = b"\xff\xfb\x90\x00" + b"\0" * 413
"""A frame of 128 kbit/s at 44,100 Hz."""
LOW = b"\xff\xf3\x80\xc0" + b"\0" * 100


def counted(frames: int, mark: bytes = b"Xing") -> bytes:
    return b"\xff\xfb\x90\x00" + b"\0" * 32 + mark + b"\0\0\0\x01" + frames.to_bytes(4, "big") + b"\0" * 369


@pytest.mark.parametrize(
    ("data", "mime", "seconds"),
    [
        (wav(1.5), "audio/wav", 1.5),
        (wav(1.5)[:-16_000], "audio/wav", 1.0),
        (aiff(88_200), "audio/aiff", 2.0),
        (flac(22_050), "audio/flac", 0.5),
        (ogg(OPUS, 48_312), "audio/ogg", 1.0),
        (ogg(VORBIS, 96_000), "audio/ogg", 2.0),
        (mp4(1_800), "video/mp4", 3.0),
        (mp4(1_800, long=True), "video/mp4", 3.0),
        (FRAME * 40, "audio/mpeg", 1.042),
        (b"ID3\x04\0\0\0\0\x02\x00" + b"\0" * 256 + FRAME * 40, "audio/mpeg", 1.042),
        (counted(1_000), "audio/mpeg", 26.122),
        (counted(1_000, b"Info"), "audio/mpeg", 26.122),
    ],
)
def test_a_recording_says_how_long_it_lasts(data: bytes, mime: str, seconds: float):
    assert media_of(data) == Media(mime, seconds=seconds)


@pytest.mark.parametrize(
    "data",
    [
        b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd",
        b"FORM\0\0\0\0AIFF",
        b"FORM\0\0\0\0AIFFCOMM" + b"\0" * 24,
        b"FORM\0\0\0\0AIFFCOMM" + b"\x7f" * 24,
        flac(0),
        flac(1)[:20],
        flac(10, rate=0),
        ogg(b"Speex", 5),
        ogg(VORBIS, -1),
        mp4(0xFFFFFFFF),
        b"....ftypisom",
        b"....ftypisommvhd" + b"\0" * 30,
        b"ID3\x04\0\0\0\0\0\0nothing",
        b"ID3",
        b"....ftypisommvhd",
    ],
)
def test_a_recording_without_its_numbers_in_their_places_says_nothing(data: bytes):
    media = media_of(data)
    assert media.mime.split("/")[0] in ("audio", "video")
    assert media.seconds is None


def test_a_frame_of_a_lower_rate_is_shorter():
    assert media_of(LOW + b"\0" * 104 + b"\xff").seconds == pytest.approx(209 / 8_000, abs=0.001)


# --- documents


def packed(objects: bytes) -> bytes:
    return b"<< /Type /ObjStm /N 3 /Filter /FlateDecode >>\nstream\n" + zlib.compress(objects) + b"\nendstream"


@pytest.mark.parametrize(
    ("data", "pages"),
    [
        (b"%PDF-1.4 /Type /Pages /Count 2 /Type /Page /Type/Page", 2),
        (b"%PDF-1.4 /Type /Page /Type /Page", 2),
        (b"%PDF-1.5 " + packed(b"<< /Type /Pages /Count 3 >> /Type /Page /Type /Page /Type /Page"), 3),
        (b"%PDF-1.4 /Type /Pages /Count 1 /Type /Page /Type /Page", 1),
        (b"%PDF-1.5 /Type /Pages /Count 7", 7),
        (b"%PDF-1.5 /ObjStm >> stream\nnot packed", None),
        (b"%PDF-1.5 " + packed(b"")[:-20] + b"\nendstream " + packed(b"/Type /Page"), 1),
        (b"%PDF-1.5 " + packed(b"/Type /Page").removesuffix(b"\nendstream"), 1),
        (b"%PDF-1.5 nothing", None),
        (b"%PDF-1.5 /Pages /Count 0 /Type /Page", 1),
    ],
)
def test_a_document_says_how_many_pages_it_has(data: bytes, pages: int | None):
    assert media_of(data) == Media("application/pdf", pages=pages)


@pytest.mark.parametrize("lock", [b"/Encrypt 12 0 R", b"/Encrypt<</Filter /Standard>>"])
def test_a_locked_document_has_a_type_of_its_own_that_nobody_takes(lock: bytes):
    locked = b"%PDF-1.7 /Type /Page trailer <<" + lock + b">>"
    assert media_of(locked) == Media("application/x-encrypted-pdf")
    assert media_of(b"%PDF-1.7 (about /Encrypt as a word)").mime == "application/pdf"


def test_a_document_that_unpacks_to_much_more_is_read_so_far_and_no_further(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shoal.providers._media_pdf._MOST_UNPACKED", 100)
    bomb = packed(b"/Type /Page " + b" " * 10_000 + b"/Type /Page ")
    assert media_of(b"%PDF-1.5 " + bomb + bomb).pages == 1


def test_a_document_of_parts_that_never_end_is_looked_through_once():
    assert media_of(b"%PDF-1.5 " + b"/ObjStm>>stream\n" * 250_000).pages is None


# --- anything at all


@given(st.binary(max_size=64), st.sampled_from([png(3, 4), jpeg(3, 4), wav(0.1), flac(9), mp4(9), ogg(OPUS, 9), FRAME]))
def test_whatever_bytes_there_are_nothing_breaks(tail: bytes, head: bytes):
    for data in (tail, head + tail, head[:20] + tail, tail + head):
        media = media_of(data)
        assert media.mime == sniff(data)
