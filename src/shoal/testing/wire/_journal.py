"""What the server saw and did, one record for each request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import anyio

from shoal.testing.wire._faults import Fault
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._prompt import Prompt
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._values import Ask, Failure, Turn


@final
@dataclass(slots=True)
class Exchange:
    """One request and what became of it. It fills while the request is served.

    Args:
        number: 1 for the first request of the server.
        incoming: The request as it came.
        received_s: When it was read, by the server's clock.
    """

    number: int
    incoming: Incoming
    received_s: float
    endpoint: str = "unknown"
    """`<dialect>.<what>`, such as `anthropic.messages`; `unknown` if no vendor has it."""
    body: Any = None
    """The JSON that came; `None` if it is none."""
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    """The API key; `None` if none that is taken came."""
    violations: tuple[Violation, ...] = ()
    """What was wrong with it; those that are not enforced as well."""
    ask: Ask | None = None
    turn: Turn | Failure | None = None
    """What the brain said; `None` if it was not asked."""
    prompt: Prompt | None = None
    """What the cache was asked, block by block; `None` if it was not."""
    row: Row | None = None
    """What was counted and billed; `None` if nothing was generated."""
    faults: tuple[Fault, ...] = ()
    status: int | None = None
    """The HTTP status that was sent; `None` if none was."""
    reply: bytes = b""
    """The body that was sent, or would have been; of a stream, its events one after the other."""
    first_byte_s: float | None = None
    ended_s: float | None = None
    whole: bool = False
    """The reply was sent to its end."""
    client_left: bool = False
    """The client closed the connection before the reply ended: what a cancelled call should do."""
    repeats: int | None = None
    """Number of the first exchange with the same path and body: it was sent again, and may be billed again."""
    ended: anyio.Event = field(default_factory=anyio.Event, repr=False)

    @property
    def raw(self) -> bytes:
        """The body of the request, byte for byte."""
        return self.incoming.body

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request; names in lower case."""
        return self.incoming.headers

    @property
    def refused(self) -> bool:
        """Whether a rule kept it from being answered."""
        return any(violation.enforced for violation in self.violations)

    def summary(self) -> dict[str, Any]:
        """Return what `/__journal` shows of it."""
        return {
            "number": self.number,
            "endpoint": self.endpoint,
            "model": self.model,
            "status": self.status,
            "violations": [str(violation) for violation in self.violations],
            "received_s": self.received_s,
            "first_byte_s": self.first_byte_s,
            "ended_s": self.ended_s,
            "whole": self.whole,
            "client_left": self.client_left,
            "repeats": self.repeats,
        }


@final
class Journal:
    """Every request that the server took, in the order they were read."""

    def __init__(self) -> None:
        self._exchanges: list[Exchange] = []
        self._first: dict[bytes, int] = {}

    def __repr__(self) -> str:
        return f"<Journal of {len(self._exchanges)} exchanges>"

    def open(self, incoming: Incoming, now_s: float) -> Exchange:
        """Begin the record of *incoming*, read at *now_s*."""
        exchange = Exchange(len(self._exchanges) + 1, incoming, now_s)
        if incoming.body:
            key = hashlib.sha256(incoming.path.encode() + b"\0" + incoming.body).digest()
            first = self._first.setdefault(key, exchange.number)
            exchange.repeats = first if first != exchange.number else None
        self._exchanges.append(exchange)
        return exchange

    def __len__(self) -> int:
        return len(self._exchanges)

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._exchanges)

    def __getitem__(self, index: int) -> Exchange:
        return self._exchanges[index]

    @property
    def replies(self) -> tuple[Exchange, ...]:
        """Those in which a model was asked."""
        return tuple(exchange for exchange in self._exchanges if exchange.row is not None)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Everything that was wrong with any request, in order."""
        return tuple(violation for exchange in self._exchanges for violation in exchange.violations)

    @property
    def cancelled(self) -> tuple[Exchange, ...]:
        """Those whose client left before the end."""
        return tuple(exchange for exchange in self._exchanges if exchange.client_left)

    @property
    def repeated(self) -> tuple[Exchange, ...]:
        """Those that were sent before, byte for byte."""
        return tuple(exchange for exchange in self._exchanges if exchange.repeats is not None)

    async def wait_ended(self) -> None:
        """Return once no exchange that has begun is under way."""
        for exchange in list(self._exchanges):
            await exchange.ended.wait()
