"""A server on loopback that speaks the protocols of language-model vendors.

It refuses what they would refuse, caches as they cache, counts as it goes, and fails on demand. It shares no code with
Shoal's own providers, so that it can be used to judge them; it is as good for any other client.
"""

from shoal.testing.wire._brains import Cast, Script, ScriptEnded, call, think, turn
from shoal.testing.wire._clock import Clock, ManualClock
from shoal.testing.wire._engine import Refused
from shoal.testing.wire._faults import (
    Bom,
    CallIds,
    CallIndexes,
    Chunks,
    Comments,
    ContentType,
    Cut,
    DuplicateDone,
    ErrorEvent,
    Fault,
    FaultPolicy,
    Gzip,
    HangUp,
    Html,
    Inject,
    Newlines,
    Pings,
    Reset,
    Slow,
    SplitCharacters,
    SplitNewlines,
    Stall,
    WholeCalls,
    first,
    on,
)
from shoal.testing.wire._fuzz import Fuzz
from shoal.testing.wire._in_process import InProcess
from shoal.testing.wire._journal import Exchange, Journal
from shoal.testing.wire._ledger import Counted, Ledger, Row
from shoal.testing.wire._limits import Limits
from shoal.testing.wire._models import Model, Price
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._server import Server, serve, serve_in_thread
from shoal.testing.wire._settings import CacheSwitches, Settings
from shoal.testing.wire._tokens import count
from shoal.testing.wire._values import (
    Ask,
    Brain,
    Call,
    Dialect,
    Failure,
    Offered,
    Part,
    Raw,
    Result,
    Said,
    Text,
    Thinking,
    Turn,
)

__all__ = [
    "Ask",
    "Bom",
    "Brain",
    "CacheSwitches",
    "Call",
    "CallIds",
    "CallIndexes",
    "Cast",
    "Chunks",
    "Clock",
    "Comments",
    "ContentType",
    "Counted",
    "Cut",
    "Dialect",
    "DuplicateDone",
    "ErrorEvent",
    "Exchange",
    "Failure",
    "Fault",
    "FaultPolicy",
    "Fuzz",
    "Gzip",
    "HangUp",
    "Html",
    "InProcess",
    "Inject",
    "Journal",
    "Ledger",
    "Limits",
    "ManualClock",
    "Model",
    "Newlines",
    "Offered",
    "Part",
    "Pings",
    "Price",
    "Raw",
    "Refused",
    "Reset",
    "Result",
    "Row",
    "Said",
    "Script",
    "ScriptEnded",
    "Server",
    "Settings",
    "Slow",
    "SplitCharacters",
    "SplitNewlines",
    "Stall",
    "Text",
    "Thinking",
    "Turn",
    "Violation",
    "WholeCalls",
    "call",
    "count",
    "first",
    "on",
    "serve",
    "serve_in_thread",
    "think",
    "turn",
]
