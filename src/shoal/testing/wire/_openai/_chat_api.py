"""The endpoint of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, final

from shoal.testing.wire._clock import epoch_s
from shoal.testing.wire._delivery import Event, Reply
from shoal.testing.wire._engine import Reading, Refused, Route, World
from shoal.testing.wire._faults import Fault
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._limits import Quota
from shoal.testing.wire._models import Model
from shoal.testing.wire._openai import _chat_options, _chat_rules
from shoal.testing.wire._openai._caching import GATEWAY, Caching
from shoal.testing.wire._openai._chat_ask import ask_of
from shoal.testing.wire._openai._chat_prompt import ends, message_blocks, prompt
from shoal.testing.wire._openai._chat_reply import Writing, events, message, whole
from shoal.testing.wire._openai._chat_request import Request
from shoal.testing.wire._openai._errors import CODES, failed, refused
from shoal.testing.wire._openai._front import Front, quota_headers
from shoal.testing.wire._openai._local import LocalServer
from shoal.testing.wire._prompt import Prompt
from shoal.testing.wire._rules import Violation, warning
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted
from shoal.testing.wire._values import Dialect, Failure

PATH = "/chat/completions"
MARKERS = 4

RULES = (
    _chat_rules.o1,
    _chat_rules.o2,
    _chat_rules.o3,
    _chat_rules.o4,
    _chat_rules.o5,
    _chat_rules.o7,
    _chat_options.o8,
    _chat_options.o9,
    _chat_options.o10,
    _chat_options.o11,
    _chat_options.o12,
    _chat_options.o13,
    _chat_options.unsimulated,
)


@final
class Chat:
    """OpenAI's Chat Completions, or those of a compatible server.

    Args:
        world: What the server knows.
    """

    name: Dialect = "chat"

    def __init__(self, world: World) -> None:
        self._world = world
        self._front = Front(world)
        self._local = LocalServer(self._front)
        self._caching = Caching(self._front.flavour, world.settings.cache)

    def __repr__(self) -> str:
        return f"<Chat {self._caching!r}>"

    def route(self, incoming: Incoming) -> Route | None:
        """Return where *incoming* goes."""
        match incoming.method, incoming.path:
            case "POST", path if path.endswith(PATH):
                return Route("chat.completions")
            case "GET", "/v1/models" | "/models":
                return Route("chat.models", self._front.listed)
            case "GET", path if path.startswith(("/v1/models/", "/models/")):
                return Route("chat.model", self._front.one)
            case _:
                return self._local.route(incoming)

    # --- reading

    def read(self, exchange: Exchange) -> Reading:
        """Check a request for a completion."""
        key = self._front.admit(exchange)
        body = self._front.body(exchange)
        self._shape(exchange, body)
        model = self._front.model(body.get("model"))
        exchange.model = model.name
        request = Request(body, model, self._front.flavour)
        self._enforce(exchange, [found for rule in RULES for found in rule(request)])
        self._images(request)
        seen = prompt(request, key)
        self._enforce(exchange, self._gateway(seen))
        seen = self._within_window(exchange, request, seen)
        return Reading(
            ask=ask_of(request),
            prompt=seen,
            model=model,
            key=key,
            look=partial(self._caching.look, model=model, body=body, ends=ends(seen)),
            best=self._caching.best(seen, model),
            whole_blocks=self._caching.whole_blocks(seen, model),
            stops=stops_of(body.get("stop")),
        )

    def _shape(self, exchange: Exchange, body: Any) -> None:
        for found, kind in _chat_rules.shape_violations(body, self._front.flavour.echo):
            code = CODES[kind]
            self._enforce(exchange, [found], code=code)
        if not isinstance(obj(body).get("messages"), list):
            # Even where the server takes a request without them: there is nothing to work on.
            raise Refused(Failure(400, message="'messages' is required"))

    def _enforce(self, exchange: Exchange, found: Sequence[Violation], *, code: str | None = None) -> None:
        tolerated = self._front.flavour.tolerates
        judged = [warning(v.rule, v.path, v.message) if v.rule in tolerated else v for v in found]
        self._world.enforce(exchange, judged, partial(self._refusal, code=code))

    def _refusal(self, violation: Violation, *, code: str | None) -> Failure:
        if violation.rule == "O4":
            return Failure(self._front.flavour.empty_arguments, None, violation.message)
        if violation.rule == "A9":
            raw = compact({"type": "error", "error": {"type": "invalid_request_error", "message": violation.message}})
            metadata = {"raw": raw, "provider_name": "Anthropic"}
            return Failure(400, None, "Provider returned error", details={"metadata": metadata})
        if violation.rule == "O7" and "too long" in violation.message:
            return refused(violation, code="string_above_max_length")
        return refused(violation, code=code or _code(violation))

    def _images(self, request: Request) -> None:
        """Fail as a server without an eye does."""
        if self._front.flavour.images:
            return
        kinds = {part.get("type") for message in request.messages for part in _listed(message)}
        if kinds - {"text", "refusal"}:
            raise Refused(Failure(500, None, "image input is not supported - hint: you may need to provide the mmproj"))

    def _gateway(self, seen: Prompt) -> list[Violation]:
        marked = [block for block in seen.blocks if block.marker]
        if not seen.model.startswith(GATEWAY) or len(marked) <= MARKERS:
            return []
        what = f"A maximum of {MARKERS} blocks with cache_control may be provided. Found {len(marked)}."
        return [Violation("A9", "", what)]

    def _within_window(self, exchange: Exchange, request: Request, seen: Prompt) -> Prompt:
        """Return what of *seen* the model reads, which is all of it unless the server drops the oldest."""
        flavour, model = self._front.flavour, request.model
        if flavour.truncates:
            return _newest(seen, model.window)
        found = _chat_options.too_long_prompt(model, seen.tokens, request.budget)
        if found is not None and flavour.name == "llama.cpp":
            self._world.enforce(exchange, [found], lambda _: _exceeds(model, seen.tokens))
        elif found is not None:
            self._world.enforce(exchange, [found], partial(refused, code="context_length_exceeded"))
        return seen

    # --- answering

    def write(self, exchange: Exchange, reading: Reading, said: Fitted, row: Row, faults: Sequence[Fault]) -> Reply:
        """Return a completion, whole or as a stream."""
        world, flavour = self._world, self._front.flavour
        writing = Writing(
            reply_id=world.new_id("chatcmpl-", exchange),
            model=row.model,
            created_s=epoch_s(exchange.received_s),
            flavour=flavour,
            delta_chars=world.settings.delta_chars,
            faults=faults,
        )
        self._caching.said(reading.prompt, message_blocks(message(said, writing), "reply"))
        headers = self._front.headers(exchange)
        body = obj(exchange.body)
        if not body.get("stream"):
            made = compact(whole(said, row, writing))
            return Reply(200, headers, made.encode("utf-8", "surrogatepass"), failed=self._failed)
        asked = bool(obj(body.get("stream_options")).get("include_usage"))
        return Reply(200, headers, events=tuple(events(said, row, writing, with_usage=asked)), failed=self._failed)

    def _failed(self, kind: str | None, what: str) -> Event:
        """Return an error in the middle of a stream."""
        if self._front.flavour.name != "openrouter":
            return failed(kind, what)
        error = {"code": kind or "server_error", "message": what}
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "error"}
        return Event(compact({"error": error, "choices": [choice]}))

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error."""
        return self._front.fail(failure, exchange)

    def quota_headers(self, quotas: Sequence[Quota], now_s: float) -> Mapping[str, str]:
        """Return what is left of the limits."""
        del now_s
        return quota_headers(quotas)


def _listed(message: Json) -> Sequence[Json]:
    content = message.get("content")
    return () if isinstance(content, str) else arr(content)


def _code(violation: Violation) -> str | None:
    return {"O10": "unsupported_parameter", "O13": "unsupported_parameter", "O11": "invalid_json_schema"}.get(
        violation.rule
    )


def _exceeds(model: Model, tokens: int) -> Failure:
    window = model.prompt_limit
    what = f"the request exceeds the available context size. try increasing the context size ({tokens} > {window})"
    details = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens, "n_ctx": window}
    return Failure(400, None, what, details=details)


def _newest(seen: Prompt, window: int) -> Prompt:
    """Return the newest blocks of *seen* that fit *window*."""
    kept, left = len(seen.blocks), window
    while kept and seen.blocks[kept - 1].tokens <= left:
        kept -= 1
        left -= seen.blocks[kept].tokens
    return Prompt(seen.model, seen.scope, seen.blocks[kept:], seen.tiers)


def stops_of(stop: Any) -> tuple[str, ...]:
    """Return stop sequences, given as one or as a list."""
    return (stop,) if isinstance(stop, str) else tuple(arr(stop))
