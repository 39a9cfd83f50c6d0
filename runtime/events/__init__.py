"""Events: what a run is made of. Everything else about a run is computed from them.

Each kind is a frozen value with a number and a name; both are part of the journal's public format and never change.
Payloads are positional arrays: fields are only ever appended, each with a default, so that old rows stay readable.
Content stands once: where a field is a seq (and an index), the text stands in that event.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Any, TypeAlias, cast, final

import msgspec

from shoal.providers import Text
from shoal.runtime.context import (
    ContextCompacted,
    EntriesEvicted,
    EntriesReleased,
    EntryWritten,
    ItemChanged,
    LayoutChanged,
    PartStored,
    PromptAmended,
    PromptEpoch,
    RegionReset,
    SeedRefreshed,
    SeedResolved,
)
from shoal.runtime.events._code import (
    CallOpened,
    Expose,
    FrameEntered,
    FrameLeft,
    FrameStatus,
    StepKind,
    StepRecorded,
)
from shoal.runtime.events._lanes import Lane, LaneCompleted, LaneDegraded, LaneStarted
from shoal.runtime.events._models import (
    CallMade,
    HookRan,
    InferenceCompleted,
    InferenceFailed,
    InferenceRetried,
    InferenceStarted,
    TokensMeasured,
    VolatilityBroken,
)
from shoal.runtime.events._runs import (
    ENDED_WELL,
    BlueprintChanged,
    BudgetGiven,
    BudgetReached,
    ChildEnded,
    ChildSpawned,
    ItemRefused,
    OutputSubmitted,
    RestartRule,
    RunEnded,
    RunPassivated,
    RunPaused,
    RunRestarted,
    RunResumed,
    RunSpawned,
    RunTitled,
    Status,
    ToolSource,
)
from shoal.runtime.events._stages import (
    FactsRecorded,
    GateBlocked,
    GateForced,
    MemoryLoaded,
    ModelChanged,
    Nudged,
    ScriptFailed,
    StageEntered,
    StageLeft,
    TimerFired,
    TimerSet,
    TransitionChosen,
)
from shoal.runtime.events._tools import (
    GrantGiven,
    MessageReceived,
    QuestionAnswered,
    QuestionAsked,
    ToolCallCompleted,
    ToolCallStarted,
    ToolsFound,
)

__all__ = [
    "ENDED_WELL",
    "KINDS",
    "NUMBERS",
    "BlueprintChanged",
    "BudgetGiven",
    "BudgetReached",
    "CallMade",
    "CallOpened",
    "ChildEnded",
    "ChildSpawned",
    "ContextCompacted",
    "EntriesEvicted",
    "EntriesReleased",
    "EntryWritten",
    "Event",
    "Expose",
    "FactsRecorded",
    "FrameEntered",
    "FrameLeft",
    "FrameStatus",
    "GateBlocked",
    "GateForced",
    "GrantGiven",
    "HookRan",
    "InferenceCompleted",
    "InferenceFailed",
    "InferenceRetried",
    "InferenceStarted",
    "ItemChanged",
    "ItemRefused",
    "Lane",
    "LaneCompleted",
    "LaneDegraded",
    "LaneStarted",
    "LayoutChanged",
    "MemoryLoaded",
    "MessageReceived",
    "ModelChanged",
    "Nudged",
    "OutputSubmitted",
    "PartStored",
    "Payload",
    "PromptAmended",
    "PromptEpoch",
    "QuestionAnswered",
    "QuestionAsked",
    "RegionReset",
    "RestartRule",
    "RunEnded",
    "RunPassivated",
    "RunPaused",
    "RunRestarted",
    "RunResumed",
    "RunSpawned",
    "RunTitled",
    "ScriptFailed",
    "SeedRefreshed",
    "SeedResolved",
    "StageEntered",
    "StageLeft",
    "Status",
    "StepKind",
    "StepRecorded",
    "TimerFired",
    "TimerSet",
    "TokensMeasured",
    "ToolCallCompleted",
    "ToolCallStarted",
    "ToolSource",
    "ToolsFound",
    "TransitionChosen",
    "VolatilityBroken",
    "decode",
    "encode",
]

Payload: TypeAlias = (
    RunSpawned
    | RunTitled
    | RunPaused
    | RunResumed
    | RunPassivated
    | RunRestarted
    | RunEnded
    | BlueprintChanged
    | BudgetReached
    | ChildSpawned
    | ChildEnded
    | ItemRefused
    | OutputSubmitted
    | TimerSet
    | TimerFired
    | FactsRecorded
    | MemoryLoaded
    | StageEntered
    | StageLeft
    | TransitionChosen
    | GateBlocked
    | GateForced
    | Nudged
    | ModelChanged
    | SeedResolved
    | SeedRefreshed
    | EntryWritten
    | EntriesEvicted
    | EntriesReleased
    | RegionReset
    | PartStored
    | ItemChanged
    | ContextCompacted
    | LayoutChanged
    | ScriptFailed
    | HookRan
    | InferenceStarted
    | InferenceCompleted
    | InferenceRetried
    | InferenceFailed
    | TokensMeasured
    | PromptEpoch
    | PromptAmended
    | VolatilityBroken
    | ToolCallStarted
    | ToolCallCompleted
    | MessageReceived
    | QuestionAsked
    | QuestionAnswered
    | GrantGiven
    | ToolsFound
    | FrameEntered
    | FrameLeft
    | StepRecorded
    | CallOpened
    | LaneStarted
    | LaneCompleted
    | LaneDegraded
)

NUMBERS: Mapping[type[Payload], int] = {
    RunSpawned: 1,
    RunTitled: 2,
    RunPaused: 3,
    RunResumed: 4,
    RunPassivated: 5,
    RunRestarted: 6,
    RunEnded: 7,
    BlueprintChanged: 8,
    BudgetReached: 9,
    ChildSpawned: 10,
    ChildEnded: 11,
    OutputSubmitted: 12,
    TimerSet: 13,
    TimerFired: 14,
    FactsRecorded: 15,
    MemoryLoaded: 16,
    ItemRefused: 17,
    StageEntered: 20,
    StageLeft: 21,
    TransitionChosen: 22,
    GateBlocked: 23,
    GateForced: 24,
    Nudged: 25,
    ModelChanged: 26,
    LayoutChanged: 27,
    HookRan: 28,
    SeedResolved: 30,
    SeedRefreshed: 31,
    EntryWritten: 32,
    EntriesEvicted: 33,
    EntriesReleased: 34,
    RegionReset: 35,
    PartStored: 36,
    ScriptFailed: 37,
    ItemChanged: 38,
    ContextCompacted: 39,
    InferenceStarted: 40,
    InferenceCompleted: 41,
    InferenceRetried: 42,
    InferenceFailed: 43,
    TokensMeasured: 44,
    PromptEpoch: 45,
    PromptAmended: 46,
    VolatilityBroken: 47,
    ToolCallStarted: 50,
    ToolCallCompleted: 51,
    MessageReceived: 52,
    QuestionAsked: 53,
    QuestionAnswered: 54,
    GrantGiven: 55,
    ToolsFound: 56,
    FrameEntered: 60,
    FrameLeft: 61,
    StepRecorded: 62,
    CallOpened: 63,
    LaneStarted: 70,
    LaneCompleted: 71,
    LaneDegraded: 72,
}
"""The number of each kind in the journal. A number is never given twice."""

KINDS: Mapping[int, type[Payload]] = {number: kind for kind, number in NUMBERS.items()}


@final
class Event(msgspec.Struct, frozen=True, gc=False):
    """One change of one run.

    Args:
        run_id: The run.
        seq: Its place in the run, counting up from 1 without a gap.
        at: When it happened, unix seconds.
        payload: What happened.
    """

    run_id: str
    seq: int
    at: float
    payload: Payload

    @property
    def kind(self) -> str:
        """Name of its kind, such as `EntryWritten`."""
        return type(self.payload).__name__

    @property
    def time(self) -> dt.datetime:
        """When it happened, in UTC."""
        return dt.datetime.fromtimestamp(self.at, dt.UTC)

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON values with named fields, for people and other programs."""
        return {
            "run_id": self.run_id,
            "seq": self.seq,
            "at": self.time.isoformat(),
            "kind": self.kind,
            "payload": _plain(self.payload),
        }


def _plain(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in cast("dict[object, object]", value).items()}
    if isinstance(value, Text | Decimal):
        return str(value)
    return value.hex() if isinstance(value, bytes) else value


# --- bytes


def _to_json(value: object) -> object:
    if isinstance(value, Text):
        return msgspec.Raw(value.quoted)
    raise TypeError(f"{type(value).__name__} has no place in an event")


def _from_json(_kind: type, value: object) -> object:
    """Return the one type that JSON has no form for, a `Text`; msgspec makes a `ValidationError` of what is raised."""
    if isinstance(value, str):
        return Text.of(value)
    raise ValueError(f"expected text, got {value!r:.40}")


_encoder = msgspec.json.Encoder(enc_hook=_to_json)
_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def encode(payload: Payload) -> bytes:
    """Return *payload* as the journal keeps it: fields at its end that have their default are left out."""
    data = _encoder.encode(payload)
    end = last = len(data) - 1
    for default in _defaults(type(payload)):
        if not data.endswith(default, 0, end):
            break
        end -= len(default)
    return data if end == last else data[:end] + b"]"


@cache
def _defaults(kind: type[Payload]) -> tuple[bytes, ...]:
    """Return what the defaults of *kind* are in a row, each with its comma, from the last field on.

    Whatever ends like one of these is one: an array, an object or a text in its place would end in its own bracket or
    quote, and a quote in a text has a backslash in front of it.
    """
    made: list[bytes] = []
    for field in reversed(msgspec.structs.fields(kind)):
        if field.default_factory is not msgspec.NODEFAULT:
            made.append(b"," + _encoder.encode(field.default_factory()))
        elif field.default is not msgspec.NODEFAULT:
            made.append(b"," + _encoder.encode(field.default))
        else:
            break
    return tuple(made)


def decode(number: int, data: bytes) -> Payload | None:
    """Return the payload that *data* is; `None` for a kind that this version does not know.

    Raises:
        msgspec.ValidationError, msgspec.DecodeError: *data* is torn or corrupted.
    """
    kind = KINDS.get(number)
    if kind is None:
        return None
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind, dec_hook=_from_json)
    return cast("Payload", decoder.decode(data))
