"""Opaque state: what a vendor hands out and wants back unchanged.

A seal carries what it was made for and a keyed digest of that, so the server needs no memory to notice that a block was
edited, moved, or stands behind another prefix than the one it was written for.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, cast, final

from shoal.testing.wire._tokens import compact, utf8

_MAC_BYTES = 16


@final
class Seals:
    """Makes and reads the opaque strings of one server.

    Args:
        secret: Two servers with the same secret read each other's seals.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def stamp(self, facts: Mapping[str, Any]) -> str:
        """Return *facts* (JSON values) as base64 that `read` takes back."""
        body = utf8(compact(facts))
        return base64.b64encode(self._mac(body) + body).decode("ascii")

    def read(self, seal: str) -> dict[str, Any] | None:
        """Return the facts in *seal*; `None` if this server did not make it."""
        try:
            raw = base64.b64decode(seal, validate=True)
        except (binascii.Error, ValueError):
            return None
        mac, body = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        # Base64 has spare bits at its end: changing those changes no byte, but it is a change.
        if base64.b64encode(raw).decode("ascii") != seal or not hmac.compare_digest(mac, self._mac(body)):
            return None
        return cast("dict[str, Any]", json.loads(body))

    def _mac(self, body: bytes) -> bytes:
        return hmac.digest(self._secret, body, "sha256")[:_MAC_BYTES]


def digest(*parts: str) -> str:
    """Return a short digest of *parts*; where one ends and the next begins matters."""
    running = hashlib.sha256()
    for part in parts:
        data = utf8(part)
        running.update(len(data).to_bytes(8, "big") + data)
    return running.hexdigest()[:24]
