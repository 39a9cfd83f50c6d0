"""What an event needs of the journal beside itself: the definitions and stored parts that it names by their digests."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.runtime.context import PartStored
from shoal.runtime.events import (
    NUMBERS,
    BlueprintChanged,
    CallOpened,
    FactsRecorded,
    MemoryLoaded,
    Payload,
    RunSpawned,
    ToolsFound,
)

_MADE_OF = (RunSpawned, BlueprintChanged)
RENDERING = tuple(kind for kind in NUMBERS if "renders" in kind.__struct_fields__)
"""Kinds that name what scripts had rendered."""
REFERRING = (*_MADE_OF, *RENDERING, FactsRecorded, MemoryLoaded, ToolsFound, CallOpened)
"""Kinds that name definitions: these, those that say what a run is made of, and what it was given and offered."""


def definitions_of(payload: Payload) -> Iterator[str]:
    """Yield the digests of the definitions that *payload* names."""
    if isinstance(payload, _MADE_OF):
        yield payload.definition
        yield from (digest for _, digest in payload.scripts)
    elif isinstance(payload, FactsRecorded | MemoryLoaded):
        yield payload.digest
    elif isinstance(payload, CallOpened):
        if payload.tools:
            yield payload.tools
    elif isinstance(payload, ToolsFound):
        yield from (digest for _, digest in payload.files)
    elif isinstance(payload, RENDERING):
        renders: tuple[tuple[str, str], ...] = getattr(payload, "renders")  # noqa: B009 - each of these kinds has it
        yield from (digest for _, digest in renders)


def parts_of(payload: Payload) -> Iterator[str]:
    """Yield the digests of the stored parts that *payload* names."""
    if isinstance(payload, PartStored):
        yield payload.digest
