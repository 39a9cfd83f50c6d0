"""A provider over HTTP: one transport, one dialect. What vendors differ in is the dialect's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol, final
from urllib.parse import quote

import httpx
import msgspec

from shoal.errors import ConfigInvalid, ProviderBusy, ProviderError, ProviderUnavailable
from shoal.providers._calls import told_apart
from shoal.providers._json import as_count, as_object
from shoal.providers._leaders import PrefixLeaders
from shoal.providers._profiles import reported, shipped_profile
from shoal.providers._rates import NO_RATES, RateLimit, Rates
from shoal.providers._refusals import HTML, MAX_ID, Asked, body_of, refusal
from shoal.providers._sent import Sent
from shoal.providers._sse import Event
from shoal.providers._transport import Answer, Transport, apart
from shoal.providers._values import (
    Completed,
    ModelProfile,
    ReasoningDelta,
    Request,
    StreamEvent,
    TextDelta,
    TokenCount,
)
from shoal.providers._wire import Wire

SECRET_LENGTH = 8  # taking out shorter texts would destroy messages
ASK_TIMEOUT_S = 60.0
_MAX_PORT = 65_535
_SCHEMES = frozenset({"api-key", "apikey", "basic", "bearer", "key", "negotiate", "token"})
_NO_LIST = frozenset({404, 405, 501})


class Decoder(Protocol):
    """Reads one reply, event by event."""

    @property
    def ended(self) -> bool:
        """Nothing more is to be read."""
        ...

    def feed(self, event: Event) -> Iterator[TextDelta | ReasoningDelta]:
        """Take one event and yield what it says."""
        ...

    def completed(self, *, prompt_bytes: int) -> Completed:
        """Return the whole reply; *prompt_bytes* is the size of the request.

        Raises:
            ProviderUnavailable: It is not whole.
        """
        ...


class Dialect(Protocol):
    """What one vendor's API is like."""

    greeting: str | None
    """A path that answers for nothing to whoever may ask it: the list of models; `None` where there is none."""

    def encode(self, request: Request, profile: ModelProfile) -> tuple[str, Sent]:
        """Return where *request* goes, and what goes there."""
        ...

    def decoder(self, request: Request, sent: Sent, asked: Asked, headers: Mapping[str, str]) -> Decoder:
        """Return what reads the answer to *request*."""
        ...

    async def count(self, request: Request, profile: ModelProfile, line: Line) -> TokenCount:
        """Return what *request* costs."""
        ...

    async def describe(self, profile: ModelProfile, line: Line) -> ModelProfile | None:
        """Return *profile* with what the API itself says of the model; `None` where it says nothing."""
        ...


@final
class Line:
    """The way to one vendor for one question: posts and gets, with errors in the tree."""

    def __init__(self, transport: Transport, asked: Asked) -> None:
        self.asked = asked
        self._transport = transport

    def __repr__(self) -> str:
        return f"<Line to {self.asked.provider}>"

    @property
    def base_url(self) -> str:
        """Where paths are appended."""
        return self._transport.base_url

    async def ask(
        self,
        path: str,
        body: Wire | None,
        *,
        headers: Mapping[str, str] | None = None,
        absent: frozenset[int] = frozenset(),
    ) -> Mapping[str, Any] | None:
        """Return the JSON answer of *path*; `None` where its status is one of *absent*.

        Raises:
            ProviderError: It could not be had.
        """
        async with self._transport.post(path, body, self.asked, timeout_s=ASK_TIMEOUT_S, headers=headers) as answer:
            if answer.status in absent:
                return None
            if answer.status != 200:
                raise await refused(answer, self.asked)
            content = await answer.read()
        try:
            return as_object(json.loads(content))
        except (ValueError, RecursionError):
            what = HTML if content.lstrip()[:1] == b"<" else "no JSON"
            raise ProviderUnavailable(
                f"{self.asked.provider}: the answer to {path!r} is {what}; check that the base URL is right",
                **self.asked.context(status=200),
            ) from None


@final
class VendorProvider:
    """Streams replies from one vendor; build it with the vendor's function, such as `anthropic`.

    Args:
        name: Name under which blueprints and spans know it.
        transport: The way to the vendor.
        dialect: What its API is like.
        default_model: The model where a blueprint names none.
        profiles: What is known of its models, by model; wins over what ships and what the API reports.
        secrets: Texts that no error may repeat.
        shipped: What is known of a model that nobody gave a profile for.
        leaders: Has requests wait for a prefix that another one is writing; `None` has none wait.
        rates: What one model takes a minute, until the vendor says.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        dialect: Dialect,
        *,
        default_model: str | None,
        profiles: Mapping[str, ModelProfile],
        secrets: tuple[str, ...],
        shipped: Callable[[str], ModelProfile] = shipped_profile,
        leaders: PrefixLeaders | None = None,
        rates: Rates = NO_RATES,
    ) -> None:
        self.default_model = default_model
        self._shipped = shipped
        self._name = name
        self._transport = transport
        self._dialect = dialect
        self._profiles = dict(profiles)
        self._known: dict[str, ModelProfile] = {}  # of models that nobody gave a profile for
        self._secrets = secrets
        self._leaders = leaders
        self._rates = rates
        self._limits: dict[str, RateLimit] = {}

    def __repr__(self) -> str:
        return f"<VendorProvider {self._name}, {self._dialect!r}, {self._transport!r}>"

    @property
    def name(self) -> str:
        """Name under which blueprints and spans know it."""
        return self._name

    def profile(self, model: str) -> ModelProfile:
        """Return what is known of *model*: the given profile, else what the API reported, else what ships."""
        known = self._profiles.get(model) or self._known.get(model)
        if known is None:
            known = self._known[model] = self._shipped(model)
        return known

    def rate_limit(self, model: str) -> RateLimit:
        """Return what paces requests to *model*; it learns from each answer."""
        limit = self._limits.get(model)
        if limit is None:
            limit = self._limits[model] = RateLimit(
                requests_per_minute=self._rates.requests_per_minute, tokens_per_minute=self._rates.tokens_per_minute
            )
        return limit

    async def discover(self, model: str) -> ModelProfile:
        """Ask the API what it knows of *model*, keep that, and return the profile which holds from now on.

        Raises:
            ProviderError: The API has an answer and it could not be had.
        """
        shipped = self._shipped(model)
        described = await self._dialect.describe(shipped, self._line(model))
        if described is not None:
            self._known[model] = reported(shipped, described)
        return self.profile(model)

    async def check(self) -> bool:
        """Ask the vendor for something that costs nothing, and return true; false where there is nothing of the kind.

        Raises:
            ProviderError: It cannot be asked: no network, no key, no permission.
        """
        if self._dialect.greeting is None:
            return False
        await self._line("").ask(self._dialect.greeting, None, absent=_NO_LIST)
        return True

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Send *request* once; pacing and repeating are others' work.

        Yields:
            Deltas as they come, then one `Completed`.

        Raises:
            ProviderBusy: The vendor asked us to wait `retry_after_s` seconds.
            ProviderUnavailable: No complete reply arrived.
            ProviderRefused: It would be refused again unchanged.
            ProviderSetup: Key, credits or permission are missing.
            ContextOverflow: Prompt and reply do not fit the window.
        """
        asked = self._asked(request.model)
        path, sent = self._dialect.encode(request, self.profile(request.model))
        limit = self.rate_limit(request.model)
        async with (
            self._turn(sent) as begun,
            self._transport.post(
                path, sent.body, asked, timeout_s=request.timeout_s, headers=sent.headers, trace=request.trace
            ) as answer,
        ):
            limit.observe(answer.headers)
            if answer.status != 200:
                error = await refused(answer, asked)
                if isinstance(error, ProviderBusy) and error.retry_after_s is not None:
                    limit.hold(error.retry_after_s)
                raise error
            reply = self._dialect.decoder(request, sent, asked, answer.headers)
            async with aclosing(_events(answer, asked)) as events:
                async for event in events:
                    begun()
                    for delta in reply.feed(event):
                        yield delta
                    if reply.ended:
                        await answer.drain()
                        break
        yield _named(told_apart(reply.completed(prompt_bytes=sent.body.size), request))

    @asynccontextmanager
    async def _turn(self, sent: Sent) -> AsyncGenerator[Callable[[], None]]:
        if self._leaders is None or not sent.prefixes:
            yield _nothing
            return
        async with self._leaders.turn(sent.prefixes) as begun:
            yield begun

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return what *request* costs, counted as exactly as this vendor lets us.

        Raises:
            ProviderError: The vendor counts and could not be asked.
        """
        return await self._dialect.count(request, self.profile(request.model), self._line(request.model))

    async def aclose(self) -> None:
        """Close all connections. Closing twice is fine."""
        await self._transport.aclose()

    def _asked(self, model: str) -> Asked:
        return Asked(self._name, model, self._secrets)

    def _line(self, model: str) -> Line:
        return Line(self._transport, self._asked(model))


def _named(completed: Completed) -> Completed:
    """Return *completed* with the names that its vendor gave no longer than names are: they go into every span."""
    if len(completed.model) <= MAX_ID and len(completed.request_id or "") <= MAX_ID:
        return completed
    request_id = completed.request_id and completed.request_id[:MAX_ID]
    return msgspec.structs.replace(completed, model=completed.model[:MAX_ID], request_id=request_id)


def _nothing() -> None:
    """Nobody waits."""


async def _events(answer: Answer, asked: Asked) -> AsyncGenerator[Event]:
    """Yield the events of *answer* that say something.

    Raises:
        ProviderError: One of them is an error by its name, whatever its shape.
    """
    async with aclosing(answer.events()) as events:
        async for event in events:
            if event.name == "error":
                raise refusal(asked, body_of(event.data), status=200, headers=answer.headers)
            if event.data and not event.data.isspace():
                yield event


async def refused(answer: Answer, asked: Asked) -> ProviderError:
    """Return the error that *answer*, which is no reply, stands for."""
    body = body_of(await answer.read_error())
    return refusal(asked, body, status=answer.status, headers=answer.headers)


def counted(tokens: object, line: Line) -> TokenCount:
    """Return what a vendor says that a request costs.

    Raises:
        ProviderUnavailable: It says nothing of the kind.
    """
    if not as_count(tokens):
        raise ProviderUnavailable(
            f"{line.asked.provider}: the count of tokens is {tokens!r}; check that the base URL is right",
            **line.asked.context(status=200),
        )
    return TokenCount(as_count(tokens), "vendor", exact=True)


def checked_url(base_url: str, example: str) -> httpx.URL:
    """Return *base_url*, if it is one.

    Raises:
        ConfigInvalid: It is no http URL, or has a query or a fragment.
    """
    # The URL itself, or a part of it that is no part of a URL, is not repeated: it may hold a password.
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL:
        raise ConfigInvalid(f"`base_url` is no URL; write a whole one, such as `{example}`") from None
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > _MAX_PORT or url.query or url.fragment:
        raise ConfigInvalid(
            f"`base_url` leads to {url.scheme!r} at {url.host!r}; "
            f"write a whole URL without a query or a fragment, such as `{example}`"
        )
    return url


def secrets_in(url: httpx.URL, *texts: str | None) -> tuple[str, ...]:
    """Return what no message may repeat of *texts* and of what stands in *url*, in each form in which it may come back.

    What stands behind a scheme, as in `Bearer KEY`, stands for itself, too. A user without a password is a key. The
    longest stands first: one may begin with another, and what is left of it would be repeated.
    """
    login = [value.removeprefix("Basic ") for value in apart(url)[1].values()]
    given = [text for text in (*texts, url.password, url.username if not url.password else "", *login) if text]
    words = [text.split() for text in given]
    bare = [word[1] for word in words if len(word) == 2 and word[0].lower() in _SCHEMES]
    forms = [form for word in (*given, *bare) for form in (word, json.dumps(word)[1:-1], quote(word, safe=""))]
    return tuple(sorted({form for form in forms if len(form) >= SECRET_LENGTH}, key=lambda form: (-len(form), form)))
