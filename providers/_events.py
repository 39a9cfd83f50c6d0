"""Events of a stream, decoded as their vendor's JSON."""

from __future__ import annotations

import base64
import json
from typing import Any, TypeVar

import msgspec

from shoal.errors import ProviderUnavailable
from shoal.providers._refusals import Asked

T = TypeVar("T")


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
    except msgspec.MsgspecError:
        pass  # below: it may only be damaged
    try:
        # Small models and naive servers cut a text inside a character. The way through UTF-16 joins the halves of one
        # where both are there, and replaces the others.
        text = json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)
        return decoder.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError, msgspec.MsgspecError) as exc:
        start = asked.clean(data[:200].decode("utf-8", "replace"))
        raise ProviderUnavailable(
            f"{asked.provider}: an event is none of its API: {start!r}; check that the base URL is right", **context
        ) from exc


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
