"""Text that is held once, in the form in which every vendor takes it.

All wire formats here are JSON, and the JSON form of a concatenation is the concatenation of the JSON forms. So a
text is kept as the body of a JSON string (escaped UTF-8, no quotes), encoded when it is made and never again: a
window, its rendered blocks and each encoder's fragments share the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final, final

import msgspec

_SURROGATE = re.compile("[\ud800-\udfff]")
_encode = msgspec.json.Encoder().encode
_decode_string = msgspec.json.Decoder(str).decode


@final
class Text:
    """An immutable text, held as the body of a JSON string.

    Args:
        body: Escaped UTF-8 without the quotes around it. Use `Text.of` for ordinary strings.
    """

    __slots__ = ("_digest", "body")

    def __init__(self, body: bytes) -> None:
        self.body: Final = body
        self._digest = b""

    @classmethod
    def of(cls, text: str) -> Text:
        """Return *text* as a `Text`. A lone surrogate, which no vendor takes, becomes U+FFFD."""
        try:
            return cls(_encode(text)[1:-1])
        except UnicodeEncodeError:
            return cls(_encode(_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text))[1:-1])

    @property
    def digest(self) -> bytes:
        """16 bytes that stand for this text; equal texts made by `Text.of` have equal digests."""
        if not self._digest:
            self._digest = hashlib.blake2b(self.body, digest_size=16).digest()
        return self._digest

    @property
    def quoted(self) -> bytes:
        """The whole JSON string, quotes included."""
        return b'"' + self.body + b'"'

    @property
    def size(self) -> int:
        """Its length in bytes of UTF-8, unescaped."""
        return self.measured[1]

    @property
    def measured(self) -> tuple[int, int]:
        """Its length in characters, and in bytes of UTF-8, unescaped."""
        body = self.body
        if b"\\u" in body:
            plain = str(self)
            return len(plain), len(plain) if plain.isascii() else len(plain.encode())
        size = len(body)
        if b"\\" in body:  # each escape is two bytes that stand for one
            size -= body.count(b"\\") - body.count(rb"\\")
        return (size, size) if body.isascii() else (size - len(body) + len(body.decode()), size)

    def __str__(self) -> str:
        return _decode(self.body)

    def __len__(self) -> int:
        """Return the length in bytes of the escaped form, which is what a request sends."""
        return len(self.body)

    def __bool__(self) -> bool:
        return bool(self.body)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.body == other.body

    def __hash__(self) -> int:
        return hash(self.body)

    def __repr__(self) -> str:
        return f"Text({str(self)!r})"


def _decode(body: bytes) -> str:
    if b"\\" not in body:
        return body.decode()
    quoted = b'"' + body + b'"'
    # A body that a vendor wrote may hold half a character, which only the lenient reader takes.
    return str(json.loads(quoted)) if b"\\u" in body else _decode_string(quoted)


def join(pieces: tuple[Text, ...]) -> str:
    """Return the text that *pieces* are, one behind the other."""
    return _decode(b"".join([piece.body for piece in pieces]))


EMPTY = Text(b"")
