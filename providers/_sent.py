"""What an encoder hands to the transport."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar, final

import msgspec

from shoal.providers._values import Request
from shoal.providers._wire import Wire

MAX_HEADS = 1024
T = TypeVar("T")
M = TypeVar("M", bound=Hashable)
_json = msgspec.json.Encoder(order="sorted").encode


NO_HEADERS: Mapping[str, str] = {}


@final
class Sent(msgspec.Struct, frozen=True, gc=False):
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
    headers: Mapping[str, str] = NO_HEADERS


@final
class Heads:
    """The settings of requests as bytes, made once for all that ask the same.

    Args:
        most: How many are kept.
    """

    def __init__(self, *, most: int = MAX_HEADS) -> None:
        self._most = most
        self._made: dict[Hashable, tuple[bytes, object]] = {}

    def __repr__(self) -> str:
        return f"<Heads, {len(self._made)} of them>"

    def of(self, request: Request, tools: T, more: M, make: Callable[[Request, T, M], bytes]) -> bytes:
        """Return the settings of *request*.

        Args:
            request: The request.
            tools: Its encoded tools: the same object for the same tools.
            more: What else they depend on.
            make: Makes them of these three.
        """
        options = _json(request.options) if request.options else b""
        wanted = request.output, request.allowed_tools
        key = (request.model, request.max_tokens, request.temperature, *wanted, id(tools), options, more)
        made = self._made.get(key)
        if made is None:
            if len(self._made) >= self._most:
                self._made.clear()
            # The tools are kept with it, so that no other ones get their id.
            made = self._made[key] = (make(request, tools, more), tools)
        return made[0]
