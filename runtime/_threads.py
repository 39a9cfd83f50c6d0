"""The limiters of our own worker threads, in one place so that a virtual clock can see them at work."""

from __future__ import annotations

import weakref

import anyio

_limiters: weakref.WeakSet[anyio.CapacityLimiter] = weakref.WeakSet()


def limiter(threads: int) -> anyio.CapacityLimiter:
    """Return a new limiter of *threads* worker threads; call it inside a running event loop."""
    made = anyio.CapacityLimiter(threads)
    _limiters.add(made)
    return made


def busy() -> bool:
    """Say whether a thread of any of our limiters is at work."""
    return any(made.borrowed_tokens for made in list(_limiters))
