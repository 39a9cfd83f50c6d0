"""Where a provider puts its cache markers, read from the request that it would send: for people, not for sending."""

from __future__ import annotations

from typing import final

import msgspec

from shoal.providers._cache_rows import Api, row_of
from shoal.providers._messages import MessagesEncoder
from shoal.providers._responses import ResponsesEncoder
from shoal.providers._values import ModelProfile, Request

_APIS: dict[str, Api] = {"anthropic": "messages", "openai": "responses"}
"""Built-in providers that set markers, each with the API that it speaks."""


_SYSTEM = (b"system ", b"developer ")
"""How the frames begin of what an API without a system section puts in front of the conversation."""


@final
class Breakpoint(msgspec.Struct, frozen=True, gc=False):
    """A cache marker in a request.

    Args:
        section: `tools`, `system` or `messages`.
        index: The block of that section that it stands on, from 0; in `messages` the vendor's content blocks count.
        tokens: Estimate of everything up to it.
        lifetime: What it asks for, such as `5m`.
        last: It stands on the last block of the request.
    """

    section: str
    index: int
    tokens: int
    lifetime: str
    last: bool = False


@final
class Marking:
    """The markers of one run, request by request: where they go depends on what was sent before.

    Args:
        provider: Name of a built-in provider.
        profile: What is known of the model.
    """

    def __init__(self, provider: str, profile: ModelProfile) -> None:
        self._api: Api | None = _APIS.get(provider) if profile.cache == "markers" else None
        self._encoder = (
            ResponsesEncoder(provider, profile) if self._api == "responses" else MessagesEncoder(provider, profile)
        )

    def __repr__(self) -> str:
        return f"<Marking for {self._encoder.profile.model}>"

    @property
    def marks(self) -> bool:
        """The provider is known to set markers for this model."""
        return self._api is not None

    def see(self, request: Request) -> tuple[Breakpoint, ...]:
        """Return where the markers of *request* go, first to last; show it every request of the run, in order.

        Raises:
            ProviderRefused: The request could only be refused.
        """
        if self._api is None:
            return ()
        row = row_of(self._api, bytes(self._encoder.encode(request).body))
        counts: dict[str, int] = {}
        found: list[Breakpoint] = []
        for at, (piece, tokens) in enumerate(zip(row.pieces, row.upto(), strict=True)):
            section = "system" if piece.frame.startswith(_SYSTEM) else piece.section
            index = counts[section] = counts.get(section, -1) + 1
            if piece.marker:
                found.append(Breakpoint(section, index, tokens, piece.marker, at == len(row.pieces) - 1))
        return tuple(found)
