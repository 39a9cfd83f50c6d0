"""What can go wrong on the way, as values: list them in `Settings.faults`, in a policy, or in one `Turn`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, final

from shoal.testing.wire._values import Failure

if TYPE_CHECKING:
    from shoal.testing.wire._journal import Exchange

At: TypeAlias = Literal["request", "headers"] | int
"""When: once the request is read, once the headers are out, or in front of the event of that number, 0 the first and -1
the last. A reply that does not stream has two events: the halves of its body."""


# --- how the bytes travel


@final
@dataclass(frozen=True, slots=True)
class Chunks:
    """The body comes in pieces of *size* bytes, each sent by itself."""

    size: int


@final
@dataclass(frozen=True, slots=True)
class SplitCharacters:
    """Every character of several bytes is cut in its middle."""


@final
@dataclass(frozen=True, slots=True)
class SplitNewlines:
    r"""Every CRLF is cut in its middle; sets the line ends to CRLF."""


@final
@dataclass(frozen=True, slots=True)
class Newlines:
    r"""Lines of the stream end in *kind*: ``\n``, ``\r\n`` or ``\r``."""

    kind: Literal["\n", "\r\n", "\r"]


@final
@dataclass(frozen=True, slots=True)
class Bom:
    """The stream begins with a byte order mark."""


@final
@dataclass(frozen=True, slots=True)
class Comments:
    """A comment line stands in front of every *every*-th event."""

    text: str = "PROCESSING"
    every: int = 1


@final
@dataclass(frozen=True, slots=True)
class Pings:
    """A ping stands in front of every *every*-th event: an event at Anthropic, an empty comment elsewhere."""

    every: int = 1


@final
@dataclass(frozen=True, slots=True)
class Gzip:
    """The body is compressed, flushed after each event."""


@final
@dataclass(frozen=True, slots=True)
class ContentType:
    """The body claims to be *value*."""

    value: str


@final
@dataclass(frozen=True, slots=True)
class Slow:
    """Each event takes *seconds*."""

    seconds: float


# --- where it breaks


@final
@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing comes for *seconds*; then it goes on."""

    seconds: float
    at: At = "headers"


@final
@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset."""

    at: At = "request"


@final
@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection ends in the middle of the HTTP body."""

    at: At = "headers"


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """The HTTP body ends properly, but what it carries does not: no terminator, half a JSON."""

    at: At = -1


@final
@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """An error after status 200. *kind* is the vendor's type or code; `None` is what it says when overloaded."""

    at: At = -1
    kind: str | None = None
    message: str = "Overloaded"


@final
@dataclass(frozen=True, slots=True)
class Inject:
    """An event that no one expects: *data* as it is, under *name*."""

    data: str
    at: At = 0
    name: str | None = None


@final
@dataclass(frozen=True, slots=True)
class DuplicateDone:
    """The terminator comes twice: `[DONE]`, `message_stop`, or the last event of the stream."""


# --- what stands in it


@final
@dataclass(frozen=True, slots=True)
class CallIds:
    """Ids of tool calls: all the `same`, or left out (`missing`)."""

    kind: Literal["same", "missing"]


@final
@dataclass(frozen=True, slots=True)
class CallIndexes:
    """Numbers of streamed tool calls at Chat Completions: all `zero`, `missing`, or `null`."""

    kind: Literal["zero", "missing", "null"]


@final
@dataclass(frozen=True, slots=True)
class WholeCalls:
    """Each tool call comes in one piece at Chat Completions."""


# --- instead of a reply


@final
@dataclass(frozen=True, slots=True)
class Html:
    """A page of a proxy that stands in front of the vendor."""

    status: int = 502
    body: str = "<html><head><title>502 Bad Gateway</title></head><body><center><h1>502</h1></center></body></html>"


Fault: TypeAlias = (
    Chunks
    | SplitCharacters
    | SplitNewlines
    | Newlines
    | Bom
    | Comments
    | Pings
    | Gzip
    | ContentType
    | Slow
    | Stall
    | Reset
    | HangUp
    | Cut
    | ErrorEvent
    | Inject
    | DuplicateDone
    | CallIds
    | CallIndexes
    | WholeCalls
    | Html
    | Failure
)

FaultPolicy: TypeAlias = "Callable[[Exchange], Sequence[Fault]]"
"""Says what goes wrong with a request. A function of yours will do."""

F = TypeVar("F")


def on(requests: Mapping[int, Sequence[Fault]]) -> FaultPolicy:
    """Return a policy for requests by number: 1 is the first of the server. All others go well."""
    return lambda exchange: requests.get(exchange.number, ())


def first(count: int, *faults: Fault) -> FaultPolicy:
    """Return a policy for the first *count* requests. All later ones go well."""
    return lambda exchange: faults if exchange.number <= count else ()


def found(faults: Sequence[object], kind: type[F]) -> F | None:
    """Return the last of *faults* that is a *kind*: what is said later counts."""
    return next((fault for fault in reversed(faults) if isinstance(fault, kind)), None)


def breaks(faults: Sequence[Fault]) -> bool:
    """Say whether *faults* keep the reply from arriving whole."""
    return any(isinstance(fault, Reset | HangUp | Cut | ErrorEvent) for fault in faults)
