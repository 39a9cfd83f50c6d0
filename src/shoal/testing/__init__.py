"""What our own tests use and yours can: a virtual clock, a scripted provider, and a pytest plugin.

Nothing in Shoal imports this package.
"""

from shoal.testing._clock import BUSY, LIMITERS, VirtualLoop, threads_busy, virtual_backend
from shoal.testing._scripted import (
    IllegalTranscript,
    Say,
    Script,
    Scripted,
    ScriptedProvider,
    ScriptEnded,
    call,
    check_legal,
    request_bytes,
    request_json,
)

__all__ = [
    "BUSY",
    "LIMITERS",
    "IllegalTranscript",
    "Say",
    "Script",
    "ScriptEnded",
    "Scripted",
    "ScriptedProvider",
    "VirtualLoop",
    "call",
    "check_legal",
    "request_bytes",
    "request_json",
    "threads_busy",
    "virtual_backend",
]
