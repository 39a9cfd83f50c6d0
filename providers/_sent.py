"""What an encoder hands to the transport."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import msgspec

from shoal.providers._wire import Wire


@final
class Sent(msgspec.Struct, frozen=True):
    """An encoded request.

    Args:
        body: The JSON body.
        names: Our name of each tool, by the name that was sent.
        prefixes: 16 bytes for each marked prefix in front of the conversation, shortest first.
        headers: Further headers that the body asks for.
    """

    body: Wire
    names: Mapping[str, str]
    prefixes: tuple[bytes, ...] = ()
    headers: Mapping[str, str] = {}
