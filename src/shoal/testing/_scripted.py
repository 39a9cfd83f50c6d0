"""A provider that plays listed replies, and refuses a transcript that a vendor would refuse."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias, cast, final

import anyio

from shoal.errors import ProviderUnavailable
from shoal.providers import (
    SERVERS,
    Completed,
    Finish,
    Message,
    ModelProfile,
    Price,
    ProviderState,
    Purpose,
    ReasoningDelta,
    Reply,
    Request,
    StreamEvent,
    Text,
    TextDelta,
    TokenCount,
    ToolCall,
    Usage,
    chat_encoder,
)

PRICE = Price(Decimal(1), Decimal(5), Decimal("0.1"), Decimal("1.25"), source="the script")


class IllegalTranscript(AssertionError):
    """The provider was sent what a vendor would refuse."""


class ScriptEnded(AssertionError):
    """The provider was asked more often than the test expected."""


@final
@dataclass(frozen=True, slots=True)
class Say:
    """One reply of a script.

    Args:
        text: What is said.
        calls: The tools that are asked for, in order; see `call`.
        reasoning: Visible reasoning.
        usage: What is billed; `None` counts bytes / 4.
        finish: Why it stops; `None` follows from *calls*.
        state: What has to come back byte for byte.
        delay_s: Seconds before it begins.
        cut_after: Ends the stream after this many characters of the text, without a `Completed`; `None` for never.
        parts: What it makes beside text, such as pictures: the bytes of each.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage | None = None
    finish: Finish | None = None
    state: ProviderState | None = None
    delay_s: float = 0.0
    cut_after: int | None = None
    parts: tuple[bytes, ...] = ()


Scripted: TypeAlias = str | ToolCall | Say | Exception
Script: TypeAlias = Callable[[Request], Scripted]


def call(name: str, /, call_id: str = "", **arguments: object) -> ToolCall:
    """Return a call of the tool *name* with *arguments*; an empty *call_id* is numbered when the reply is played."""
    return ToolCall(call_id, name, Text.of(json.dumps(arguments, sort_keys=True)))


@final
@dataclass(slots=True)
class _Played:
    """What a provider has been asked so far."""

    requests: list[Request] = field(default_factory=list[Request])
    replies: int = 0
    calls: int = 0


@final
class ScriptedProvider:
    """Plays *replies* in order, each for one request, and keeps what it was sent.

    A string is said, a call is made, an error is raised, `Say` does all that a vendor can. An error that is no
    `ProviderError` is a defect of the provider, and crashes the run. No language model is used, and every reply says so
    (`Completed.simulated`).

    Args:
        *replies: What to answer, in order. Leave it out to answer with *script*.
        script: Gives the reply to a request, for tests in which the order of requests is open.
        purposes: Fixed answers to requests that are no stage's; they use up none of *replies*.
        name: Name under which blueprints and spans know it.
        window_tokens: Window of every model.
        max_output_tokens: Longest reply of every model.
        price: Price of every model; `None` leaves it unknown.
        lenient: Take transcripts that a vendor would refuse.
        profile: What is known of every model, but for its name, in place of window, longest reply and price.
        count: Counts a request, in place of the estimate.
    """

    def __init__(
        self,
        *replies: Scripted,
        script: Script | None = None,
        purposes: Mapping[Purpose, str] | None = None,
        name: str = "scripted",
        window_tokens: int = 200_000,
        max_output_tokens: int = 8_192,
        price: Price | None = PRICE,
        lenient: bool = False,
        profile: ModelProfile | None = None,
        count: Callable[[Request], TokenCount] | None = None,
    ) -> None:
        self.default_model = "scripted-model"
        self._replies = replies
        self._script = script
        self._purposes = dict(purposes or {})
        self._name = name
        self._window_tokens = window_tokens
        self._max_output_tokens = max_output_tokens
        self._price = price
        self._lenient = lenient
        self._profile = profile
        self._count = count
        self._played = _Played()
        self.closed = False

    def __repr__(self) -> str:
        return f"<ScriptedProvider {self._name}, {self._played.replies} of {len(self._replies)} replies played>"

    @property
    def name(self) -> str:
        """Name under which blueprints and spans know it."""
        return self._name

    @property
    def requests(self) -> Sequence[Request]:
        """What it was sent, in order; every attempt counts."""
        return tuple(self._played.requests)

    def profile(self, model: str) -> ModelProfile:
        """Return the profile that every model has here."""
        if self._profile is not None:
            return replace(self._profile, model=model)
        return ModelProfile(
            model,
            window_tokens=self._window_tokens,
            max_output_tokens=self._max_output_tokens,
            price=self._price,
            window_source="the script",
            window_key=f'[models."{model}"] context',
        )

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return what the given counter says of *request*, or else its encoded bytes / 4."""
        return TokenCount(_tokens(request), "estimate") if self._count is None else self._count(request)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Play the next reply.

        Yields:
            Deltas of the text, then one `Completed`.

        Raises:
            IllegalTranscript: A vendor would refuse the request.
            ScriptEnded: The script has no further reply.
            Exception: The script says so.
        """
        self._played.requests.append(request)
        if not self._lenient:
            check_legal(request)
        reply = self._next(request)
        if isinstance(reply, Exception):
            raise reply
        await anyio.sleep(reply.delay_s)
        if reply.reasoning:
            yield ReasoningDelta(reply.reasoning)
        text = reply.text[: reply.cut_after]
        for piece in text.splitlines(keepends=True):
            yield TextDelta(piece)
        if reply.cut_after is not None:
            raise ProviderUnavailable(
                f"{self._name}: the script cuts the stream here", provider=self._name, model=request.model
            )
        yield self._completed(request, reply)

    def _next(self, request: Request) -> Say | Exception:
        if request.purpose in self._purposes:
            return Say(self._purposes[request.purpose])
        if self._script is not None:
            played = self._script(request)
        elif self._played.replies < len(self._replies):
            played = self._replies[self._played.replies]
        else:
            raise ScriptEnded(
                f"{self!r} was sent one request more, for {request.purpose!r}; add a reply, or find out who asks again"
            )
        self._played.replies += 1
        if isinstance(played, str):
            return Say(played)
        return Say(calls=(played,)) if isinstance(played, ToolCall) else played

    def _completed(self, request: Request, reply: Say) -> Completed:
        calls: list[ToolCall] = []
        for asked in reply.calls:
            self._played.calls += 1
            calls.append(ToolCall(asked.call_id or f"call_{self._played.calls}", asked.name, asked.arguments))
        written = len(reply.text) + len(reply.reasoning) + sum([len(made.arguments) for made in calls])
        return Completed(
            Reply(Text.of(reply.text), tuple(calls), reply.reasoning, reply.state, reply.parts),
            reply.usage or Usage(uncached=_tokens(request), output=math.ceil(written / 4)),
            reply.finish or ("tool_calls" if calls else "stop"),
            request.model,
            f"request-{len(self._played.requests)}",
            simulated=True,
        )

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed = True


# --- what was sent


def request_bytes(request: Request, *, server: str = "generic") -> bytes:
    """Return the Chat Completions body that *request* is to *server*, for golden tests."""
    return bytes(chat_encoder(SERVERS[server], "scripted", request.model).encode(request))


def request_json(request: Request, *, server: str = "generic") -> dict[str, Any]:
    """Return the Chat Completions body that *request* is to *server*, decoded."""
    return cast("dict[str, Any]", json.loads(request_bytes(request, server=server)))


def _tokens(request: Request) -> int:
    return math.ceil(chat_encoder(SERVERS["generic"]).encode(request).size / 4)


# --- legality: written against the vendors' rules and not with our own encoder's code, or it would prove nothing


def check_legal(request: Request) -> None:
    """Check the transcript of *request* as vendors do.

    Raises:
        IllegalTranscript: With the place and the rule.
    """
    if not request.messages and not request.system:
        _illegal("the request says nothing", "a request holds at least one message")
    if request.max_tokens < 1:
        _illegal(f"`max_tokens` is {request.max_tokens!r}", "a reply has room for at least one token")
    names = [spec.name for spec in request.tools.specs]
    for name in names:
        if names.count(name) > 1:
            _illegal(f"two tools are called {name!r}", "names of tools are unique")
    known: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(message for segment in request.messages for message in segment.messages):
        where = f"message {index} ({message.role})"
        if message.role == "tool":
            waiting = _take_result(waiting, message, where)
            continue
        if waiting:
            _illegal(f"{where} stands before the results of {waiting!r}", "results stand directly behind their calls")
        _check_said(message, where)
        waiting = _take_calls(message, known, where)
    if waiting:
        _illegal(f"the calls {waiting!r} at the end have no result", "each call has one result before the next request")


def _take_result(waiting: list[str], message: Message, where: str) -> list[str]:
    if message.call_id not in waiting:
        _illegal(f"{where} answers {message.call_id!r}, which nobody asked for", "each result answers the turn before")
    if message.call_id != waiting[0]:
        _illegal(f"{where} answers {message.call_id!r} before {waiting[0]!r}", "results stand in call order")
    return waiting[1:]


def _take_calls(message: Message, known: set[str], where: str) -> list[str]:
    if message.calls and message.role != "assistant":
        _illegal(f"{where} calls tools", "only an assistant does")
    for made in message.calls:
        if not made.call_id or made.call_id in known:
            _illegal(f"{where} uses the call id {made.call_id!r} again", "call ids are unique in a conversation")
        known.add(made.call_id)
    return [made.call_id for made in message.calls]


def _check_said(message: Message, where: str) -> None:
    if not message.calls and not message.blobs and not any(message.texts):
        _illegal(f"{where} says nothing", "a message has text, parts or calls")


def _illegal(what: str, rule: str) -> NoReturn:
    raise IllegalTranscript(f"{what}; {rule}")
