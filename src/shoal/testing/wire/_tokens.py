"""How the emulator counts: one token for every four bytes, block by block, so that a test can do the sum by hand."""

from __future__ import annotations

import json
from typing import Any

BYTES_PER_TOKEN = 4


def count(text: str) -> int:
    """Return the tokens of *text*: a quarter of its UTF-8 bytes, rounded up; each block is rounded alone."""
    return -(-len(utf8(text)) // BYTES_PER_TOKEN)


def utf8(text: str) -> bytes:
    """Return the bytes of *text*; a lone surrogate, which JSON may carry, counts as three."""
    return text.encode("utf-8", "surrogatepass")


def compact(value: Any) -> str:
    """Return *value* as JSON without blanks, its keys in the order they came in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cut(text: str, tokens: int) -> str:
    """Return the longest start of *text* that counts at most *tokens*, 0 or more."""
    kept = utf8(text)[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")
    return kept if count(text) > tokens else text
