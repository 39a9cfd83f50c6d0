"""Events of a stream, decoded as their vendor's JSON."""

from __future__ import annotations

import base64
from typing import Any, TypeVar

import msgspec

from shoal.errors import ProviderUnavailable
from shoal.providers._json import mended
from shoal.providers._refusals import Asked

T = TypeVar("T")

_LOOKED_AT = 2000
_QUOTED = 200
_object = msgspec.json.Decoder(dict[str, Any])


def decoded(decoder: msgspec.json.Decoder[T], data: bytes, asked: Asked, **context: Any) -> T:
    """Return *data* as what *decoder* reads.

    Args:
        decoder: Reads the event.
        data: The data of one event.
        asked: Who was asked, for errors.
        **context: What an error carries.

    Raises:
        ProviderUnavailable: It is something else.
    """
    try:
        return decoder.decode(data)
    except (RecursionError, msgspec.MsgspecError):
        pass  # below: it may only be damaged
    try:
        return decoder.decode(mended(data.decode("utf-8", "replace")))
    except (ValueError, RecursionError, msgspec.MsgspecError) as exc:
        # Struck out before it is cut: half a secret is none that could be found.
        start = asked.clean(data[:_LOOKED_AT].decode("utf-8", "replace"))[:_QUOTED]
        raise ProviderUnavailable(
            f"{asked.provider}: an event is none of its API: {start!r}; check that the base URL is right", **context
        ) from exc


def part_of(raw: msgspec.Raw, asked: Asked, **context: Any) -> tuple[bytes, dict[str, Any]]:
    """Return *raw*, an object within an event, and what it says; where its texts are damaged, both are mended.

    Raises:
        ProviderUnavailable: It is no object.
    """
    data = bytes(raw)
    try:
        return data, _object.decode(data)
    except (RecursionError, msgspec.MsgspecError):
        said = decoded(_object, data, asked, **context)
        return msgspec.json.encode(said), said


def cut(asked: Asked, **context: Any) -> ProviderUnavailable:
    """Return the error of a stream that ended without its end."""
    return ProviderUnavailable(
        f"{asked.provider}: the stream ended without its end mark; try again", **asked.context(status=200, **context)
    )


def made(data: str, asked: Asked, **context: Any) -> bytes:
    """Return the bytes of a part that a model made, from their base64.

    Raises:
        ProviderUnavailable: They are none.
    """
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as exc:
        why = f"{asked.provider}: the reply holds a part that is no base64; try again"
        raise ProviderUnavailable(why, **context) from exc
