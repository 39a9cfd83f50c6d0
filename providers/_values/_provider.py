"""The seam: who turns a request into a reply."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from shoal.providers._values._profile import ModelProfile, TokenCount
from shoal.providers._values._reply import StreamEvent
from shoal.providers._values._request import Request


class Provider(Protocol):
    """Turns one request into a stream that ends in one reply. Pacing and retries are others' work."""

    @property
    def name(self) -> str:
        """Name under which blueprints and spans know it."""
        ...

    @property
    def default_model(self) -> str | None:
        """The model of a stage that names none; `None` where it has no default."""
        ...

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Send *request* once and yield deltas, then one `Completed`.

        Raises:
            ProviderError: Its leaf says what went wrong and whether the same request may succeed later.
        """
        ...

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return what *request* costs, counted as exactly as this provider can."""
        ...

    def profile(self, model: str) -> ModelProfile:
        """Return what is known of *model*; never asks the network."""
        ...

    async def aclose(self) -> None:
        """Close what is open. Closing twice is fine."""
        ...
