"""How long recordings last, in seconds, from where each format keeps it."""

from __future__ import annotations

import struct

_MP3_KBPS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MP3_KBPS_LOW = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MP3_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_OPUS_HZ = 48_000


def wav_seconds(data: bytes) -> float | None:
    """Return how long a WAV lasts: the bytes of its sound over their rate."""
    at, rate = 12, 0
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        if name == b"fmt ":
            (rate,) = struct.unpack_from("<I", data, at + 16)
        elif name == b"data" and rate:
            return min(size, len(data) - at - 8) / rate  # one that was streamed claims to be endless
        at += 8 + size + size % 2
    return None


def aiff_seconds(data: bytes) -> float | None:
    """Return how long an AIFF lasts: its frames over their rate, which is a number of ten bytes."""
    at = data.find(b"COMM")
    if at < 0:
        return None
    (frames,) = struct.unpack_from(">I", data, at + 10)
    exponent, mantissa = struct.unpack_from(">HQ", data, at + 16)
    rate = mantissa * 2.0 ** ((exponent & 0x7FFF) - 16_446)
    return frames / rate if rate else None


def flac_seconds(data: bytes) -> float | None:
    """Return how long a FLAC lasts: its samples over their rate."""
    bits = int.from_bytes(data[18:26], "big")
    if len(data) < 26 or not bits >> 44:
        return None
    return (bits & 0xFFFFFFFFF) / (bits >> 44) or None


def ogg_seconds(data: bytes) -> float | None:
    """Return how long an Ogg with Vorbis or Opus lasts: where its last page ends."""
    opus, vorbis = data.find(b"OpusHead", 0, 256), data.find(b"\x01vorbis", 0, 256)
    if opus >= 0:
        rate, early = _OPUS_HZ, int.from_bytes(data[opus + 10 : opus + 12], "little")
    elif vorbis >= 0:
        (rate,) = struct.unpack_from("<I", data, vorbis + 12)
        early = 0
    else:
        return None
    (end,) = struct.unpack_from("<q", data, data.rfind(b"OggS") + 6)
    return max(0, end - early) / rate if rate and end > 0 else None


def mp4_seconds(data: bytes) -> float | None:
    """Return how long an MP4 or QuickTime lasts, as its header says it."""
    at = data.find(b"mvhd")
    if at < 0:
        return None
    form = ">QQIQ" if data[at + 4] else ">IIII"
    _, _, scale, length = struct.unpack_from(form, data, at + 8)
    endless = length in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # it was streamed, and nobody knew
    return length / scale if scale and not endless else None


def mp3_seconds(data: bytes) -> float | None:
    """Return how long an MP3 lasts: by its count of frames, else by the rate of its first; `None` where it is none."""
    start = 0
    if data[:3] == b"ID3" and len(data) >= 10:
        start = 10 + (data[6] << 21 | data[7] << 14 | data[8] << 7 | data[9])
    header = int.from_bytes(data[start : start + 4], "big")
    version, rate = header >> 19 & 3, header >> 10 & 3
    kbps = (_MP3_KBPS if version == 3 else _MP3_KBPS_LOW)[(header >> 12 & 15) % 15]
    # Eleven bits that are set, and the third layer.
    if header >> 21 != 0x7FF or version == 1 or header >> 17 & 3 != 1 or not kbps or rate == 3:
        return None
    hertz = _MP3_HZ[version][rate]
    samples = 1152 if version == 3 else 576
    behind = start + samples // 8 * kbps * 1000 // hertz + (header >> 9 & 1)
    if data[behind : behind + 1] not in (b"", b"\xff"):
        return None  # no other frame stands where this one ends
    frames = _frames(data[start : start + 200])
    return frames * samples / hertz if frames else (len(data) - start) / (kbps * 125)


def _frames(first: bytes) -> int | None:
    """Return how many frames there are, where the first one says so."""
    for mark in (b"Xing", b"Info"):
        at = first.find(mark)
        if at >= 0 and len(first) >= at + 12 and first[at + 7] & 1:
            return int.from_bytes(first[at + 8 : at + 12], "big")
    return None
