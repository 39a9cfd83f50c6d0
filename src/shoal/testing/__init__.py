"""What our own tests use and yours can: a virtual clock, a scripted provider, a blueprint's own tests, a pytest plugin.

Nothing in Shoal imports this package but `shoal test`.
"""

from shoal.testing._cases import Case, CaseResult, cases_of, run_case
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
    "Case",
    "CaseResult",
    "IllegalTranscript",
    "Say",
    "Script",
    "ScriptEnded",
    "Scripted",
    "ScriptedProvider",
    "VirtualLoop",
    "call",
    "cases_of",
    "check_legal",
    "request_bytes",
    "request_json",
    "run_case",
    "threads_busy",
    "virtual_backend",
]
