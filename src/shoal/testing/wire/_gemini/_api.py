"""The endpoints of Gemini: replies, counting, models."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

from shoal.testing.wire._delivery import Reply
from shoal.testing.wire._engine import Reading, Route, World
from shoal.testing.wire._faults import Fault
from shoal.testing.wire._gemini import _contents, _media, _options, _schemas, _signatures
from shoal.testing.wire._gemini._ask import ask_of
from shoal.testing.wire._gemini._cached import CACHED, Cached
from shoal.testing.wire._gemini._caches import ImplicitCache
from shoal.testing.wire._gemini._errors import failed
from shoal.testing.wire._gemini._front import HEADERS, Front, encoded, key_of
from shoal.testing.wire._gemini._prompt import prompt
from shoal.testing.wire._gemini._reply import Writing, events, whole
from shoal.testing.wire._gemini._request import Request, turns_of
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._json import NOTHING, arr
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._limits import Quota
from shoal.testing.wire._models import Model
from shoal.testing.wire._prompt import Lookup, Prompt
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._turns import Fitted
from shoal.testing.wire._values import Dialect, Failure

RULES = (
    _contents.g1,
    _options.unsimulated,
    _contents.g2,
    _contents.g3,
    _options.g6,
    _schemas.g7,
    _options.g8,
    _options.g9,
    _media.g10,
    _signatures.g5,
    _signatures.g4,
    _options.continuation,
)
VERSION = re.compile(r"/v1(?:beta|alpha)?/(.*)")
REPLY = re.compile(r"models/([^/]+):(generateContent|streamGenerateContent|countTokens)")


@final
class Gemini:
    """Google's API for Gemini.

    Args:
        world: What the server knows.
    """

    name: Dialect = "gemini"

    def __init__(self, world: World) -> None:
        self._world = world
        self._front = Front(world)
        self._implicit = ImplicitCache(world.settings.cache)
        self._cached = Cached(self._front)
        self._checked: dict[int, Request] = {}

    def __repr__(self) -> str:
        return f"<Gemini {self._implicit!r} {self._cached!r}>"

    def route(self, incoming: Incoming) -> Route | None:
        """Return where *incoming* goes. Paths that other vendors have too are told apart by how the key is sent."""
        found = VERSION.fullmatch(incoming.path)
        path = found[1] if found else ""
        if (asked := REPLY.fullmatch(path)) and incoming.method == "POST":
            return Route(f"gemini.{asked[2]}", self._count if asked[2] == "countTokens" else None)
        if path.split("/")[0] == CACHED:
            return self._cached.route(incoming.method, path)
        if incoming.method != "GET" or key_of(incoming) is None:
            return None
        if path == "models":
            return Route("gemini.models", self._models)
        return Route("gemini.model", self._model) if path.startswith("models/") else None

    # --- reading

    def read(self, exchange: Exchange) -> Reading:
        """Check a request for a reply."""
        key = self._front.admit(exchange)
        request, seen, look = self._request(exchange, self._front.body(exchange), key)
        self._checked[exchange.number] = request
        least = request.model.cache_min
        return Reading(
            ask=replace(ask_of(request), body=exchange.body),
            prompt=seen,
            model=request.model,
            key=key,
            look=look,
            best=lambda tokens: tokens if tokens >= least else 0,
            stops=tuple(arr(request.generation.get("stopSequences"))),
        )

    def _request(
        self, exchange: Exchange, given: Any, key: str
    ) -> tuple[Request, Prompt, Callable[[Prompt, float], Lookup]]:
        """Check everything about a request with a body.

        Raises:
            Refused: A rule is broken.
        """
        body = self._front.shaped(exchange, given)
        model = self._front.model(named_in(exchange.incoming.path))
        exchange.model = model.name
        kept = self._cached.named(exchange, body, model, key)
        cached = NOTHING if kept is None else kept.body
        contents = (*turns_of(arr(cached.get("contents")), CACHED), *turns_of(arr(body.get("contents")), "contents"))
        request = Request(body, model, self._world.seals, len(exchange.raw), cached, contents)
        for rule in RULES:
            self._front.enforce(exchange, tuple(rule(request)))
        seen = prompt(request, key)
        if seen.tokens > model.prompt_limit:
            most = f"exceeds the maximum number of tokens allowed ({model.prompt_limit})."
            what = f"The input token count ({seen.tokens}) {most}"
            self._front.enforce(exchange, [Violation("window", "", what)])
        if kept is None:
            return request, seen, partial(self._implicit.look, least=model.cache_min)
        tokens = kept.tokens
        return request, seen, lambda _seen, _now_s: Lookup(tokens, {}, lambda _ready_s: None)

    # --- answering

    def write(self, exchange: Exchange, reading: Reading, said: Fitted, row: Row, faults: Sequence[Fault]) -> Reply:
        """Return a reply: whole, as a stream of events, or, where these are not asked for, as a list."""
        request = self._checked.pop(exchange.number)
        world = self._world
        writing = Writing(
            response_id=world.new_id("", exchange),
            model=request.model,
            seals=world.seals,
            thoughts=bool(request.thinking.get("includeThoughts")),
            delta_chars=world.settings.delta_chars,
            faults=faults,
        )
        if exchange.endpoint == "gemini.generateContent":
            return Reply(200, HEADERS, encoded(whole(said, row, writing)), failed=failed)
        made = tuple(events(said, row, writing))
        if exchange.incoming.query.get("alt") == "sse":
            return Reply(200, HEADERS, events=made, newline="\r\n", failed=failed)
        listed = ",\r\n".join(event.data for event in made)
        return Reply(200, HEADERS, f"[{listed}\r\n]".encode("utf-8", "surrogatepass"), failed=failed)

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error."""
        return self._front.fail(failure, exchange)

    def quota_headers(self, quotas: Sequence[Quota], now_s: float) -> Mapping[str, str]:
        """Return nothing: the vendor does not tell what is left of its limits."""
        del quotas, now_s
        return {}

    # --- beside replies

    def _count(self, exchange: Exchange) -> Reply:
        key = self._front.admit(exchange)
        _, seen, _ = self._request(exchange, counted_in(self._front.body(exchange)), key)
        return self._front.reply({"totalTokens": seen.tokens})

    def _models(self, exchange: Exchange) -> Reply:
        self._front.admit(exchange)
        known = [model for model in self._world.models.values() if model.vendor == "gemini"]
        return self._front.reply({"models": [shown(model) for model in known]})

    def _model(self, exchange: Exchange) -> Reply:
        self._front.admit(exchange)
        return self._front.reply(shown(self._front.model(named_in(exchange.incoming.path))))


def counted_in(body: Any) -> Any:
    """Return the request for a reply that *body* asks to count: itself, or what it holds."""
    match body:
        case {"generateContentRequest": inner} | {"generate_content_request": inner}:
            return inner
        case _:
            return body


def named_in(path: str) -> str:
    """Return the model that *path* names."""
    return path.rpartition("models/")[2].partition(":")[0]


def shown(model: Model) -> dict[str, Any]:
    """Return what the API says of *model*."""
    return {
        "name": f"models/{model.name}",
        "version": "001",
        "displayName": model.name,
        "inputTokenLimit": model.prompt_limit,
        "outputTokenLimit": model.max_output,
        "supportedGenerationMethods": ["generateContent", "countTokens", "createCachedContent"],
        "thinking": True,
    }
