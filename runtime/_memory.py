"""Memory that many runs took at once and nobody needs any more.

CPython frees it, and the C library keeps it for later: after a burst of runs a process can hold many times what it
uses, for good. glibc gives it back when asked, which takes milliseconds and holds everybody else up meanwhile; so it is
asked seldom, and in a thread.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

MANY = 100
"""So many runs have to leave memory before it is worth asking."""


@cache
def _trim() -> Any:
    """Return the C library's function for it; `None` for a library that has none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another system, or another C library: it gives memory back by itself
        return None


def give_back() -> bool:
    """Have the C library give the system what it keeps for later, and say whether there was anything.

    It takes a while; call it in a thread.
    """
    trim = _trim()
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
