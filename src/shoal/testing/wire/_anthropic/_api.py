"""The endpoints of Anthropic: messages, counting, models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast, final

from shoal.testing.wire._anthropic import _binding, _content, _markers, _options, _pairs
from shoal.testing.wire._anthropic._ask import ask_of
from shoal.testing.wire._anthropic._cache import MarkerCache
from shoal.testing.wire._anthropic._diagnosis import Fingerprint, diagnosis
from shoal.testing.wire._anthropic._models import listed, shown
from shoal.testing.wire._anthropic._prompt import prompt
from shoal.testing.wire._anthropic._reply import PING, Writing, content, events, message, remembered
from shoal.testing.wire._anthropic._request import VERSIONS, Memory, Request, runs_of
from shoal.testing.wire._anthropic._shape import shape_violations
from shoal.testing.wire._clock import rfc3339
from shoal.testing.wire._delivery import Event, Reply
from shoal.testing.wire._engine import Reading, Refused, Route, World
from shoal.testing.wire._faults import Fault
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._limits import Quota
from shoal.testing.wire._models import Model
from shoal.testing.wire._prompt import Prompt
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._seal import digest
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted
from shoal.testing.wire._values import Dialect, Failure

ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
MAX_BYTES = 32 * 1024 * 1024
BINDING_BETA = "thinking-binding-controls-2026-08-01"
QUOTAS = {"requests": "requests", "input": "input-tokens", "output": "output-tokens"}

RULES = (
    _options.a1,
    _pairs.a2,
    _pairs.a12,
    _pairs.a3,
    _pairs.a4,
    _pairs.a5,
    _pairs.a6,
    _pairs.a13,
    _content.a7,
    _content.a8,
    _markers.a9,
    _options.a14,
    _options.a15,
    _options.a16,
    _options.a17,
    _content.a18,
    _content.a19,
    _options.a21,
)
BINDING_RULES = (_binding.a10, _binding.a11)


@final
class Anthropic:
    """Anthropic's API.

    Args:
        world: What the server knows.
    """

    name: Dialect = "anthropic"

    def __init__(self, world: World) -> None:
        self._world = world
        self._cache = MarkerCache(world.settings.cache)
        self._memory = Memory()
        self._sent: dict[str, Fingerprint] = {}
        self._checked: dict[int, tuple[Request, _binding.Bindings]] = {}

    def __repr__(self) -> str:
        return f"<Anthropic {self._cache!r}>"

    def route(self, incoming: Incoming) -> Route | None:
        """Return where *incoming* goes."""
        match incoming.method, incoming.path:
            case "POST", "/v1/messages":
                return Route("anthropic.messages")
            case "POST", "/v1/messages/count_tokens":
                return Route("anthropic.count_tokens", self._count)
            case "GET", "/v1/models" if "anthropic-version" in incoming.headers:
                return Route("anthropic.models", self._models)
            case "GET", path if path.startswith("/v1/models/") and "anthropic-version" in incoming.headers:
                return Route("anthropic.model", self._model)
            case _:
                return None

    # --- reading

    def read(self, exchange: Exchange) -> Reading:
        """Check a request for a message."""
        request, made, seen = self._request(exchange, counting=False)
        model = request.model
        self._checked[exchange.number] = request, made
        limit = cast("int", request.body["max_tokens"])
        return Reading(
            ask=ask_of(request),
            prompt=seen,
            model=model,
            key=cast("str", exchange.key),
            look=partial(self._cache.look, least=model.cache_min),
            best=lambda tokens: tokens if tokens >= model.cache_min else 0,
            whole_blocks=True,
            stops=tuple(request.body.get("stop_sequences") or ()),
            counts_reads=False,
            warming=limit == 0,
        )

    def _request(self, exchange: Exchange, *, counting: bool) -> tuple[Request, _binding.Bindings, Prompt]:
        """Check everything about a request with a body.

        Raises:
            Refused: A rule is broken.
        """
        world = self._world
        version = self._headers(exchange)
        betas = betas_of(exchange.headers)
        body = exchange.body = self._json(exchange)
        enforce = partial(world.enforce, exchange, refuse=refused)
        enforce(tuple(shape_violations(body, betas, counting=counting)))
        model = self._known_model(body["model"])
        exchange.model = model.name
        request = Request(
            body=body,
            model=model,
            version=version,
            betas=betas,
            seals=world.seals,
            memory=self._memory,
            counting=counting,
            binding=world.settings.binding,
            runs=runs_of(body["messages"]),
        )
        if not request.messages:
            enforce(tuple(_options.a1(request)))
            raise Refused(Failure(400, message="messages: at least one message is required"))  # even if A1 is skipped
        enforce(tuple(found for rule in RULES for found in rule(request)))
        made = _binding.bindings(request)
        enforce(tuple(found for rule in BINDING_RULES for found in rule(request, made)))
        seen = prompt(request, made, cast("str", exchange.key), world.settings.cache)
        enforce(tuple(_options.a20(request, seen.tokens)))
        return request, made, seen

    def _headers(self, exchange: Exchange) -> str:
        """Check who asks and in which version; return the version.

        Raises:
            Refused: One of them is missing or unknown.
        """
        headers = exchange.headers
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        key = headers.get("x-api-key") or bearer
        if not self._world.check_key(key):
            message = "invalid x-api-key" if key else "x-api-key header is required"
            raise Refused(Failure(401, message=message))
        exchange.key = key
        version = headers.get("anthropic-version")
        if version not in VERSIONS:
            what = "header is required" if version is None else f'"{version}" is not a valid version'
            violation = Violation("A21", "anthropic-version", f"anthropic-version: {what}")
            self._world.enforce(exchange, [violation], refused)
        return version or VERSIONS[0]

    def _json(self, exchange: Exchange) -> Any:
        if len(exchange.raw) > MAX_BYTES:
            what = "Request exceeds the maximum allowed number of bytes."
            violation = Violation("A18", "", what)
            self._world.enforce(exchange, [violation], lambda _: Failure(413, message=what))
        try:
            return json.loads(exchange.raw)
        except ValueError as exc:
            what = f"The request body is not valid JSON: {exc}"
            raise Refused(Failure(400, message=what)) from exc

    def _known_model(self, name: str) -> Model:
        model = self._world.models.get(name)
        if model is None or model.vendor != "anthropic":
            raise Refused(Failure(404, message=f"model: {name}"))
        return model

    # --- answering

    def write(self, exchange: Exchange, reading: Reading, said: Fitted, row: Row, faults: Sequence[Fault]) -> Reply:
        """Return a message, whole or as a stream."""
        request, made = self._checked.pop(exchange.number)
        body = request.body
        thinking = cast("Mapping[str, Any]", body.get("thinking") or {})
        writing = Writing(
            message_id=self._world.new_id("msg_", exchange),
            model=row.model,
            seals=self._world.seals,
            prefix=made.prefix,
            thinks=request.thinking != "disabled",
            hidden=thinking.get("display") == "omitted",
            delta_chars=self._world.settings.delta_chars,
            faults=faults,
        )
        blocks = content(said, writing)
        whole = message(said, blocks, row, writing)
        whole["diagnostics"] = diagnosis(body.get("diagnostics"), self._sent, reading.prompt, row.read)
        if BINDING_BETA in request.betas and (changed := transformations(made)):
            whole["input_transformations"] = changed
        self._remember(writing.message_id, blocks, said, reading.prompt, row)
        headers = self._told(exchange)
        if not body.get("stream"):
            return Reply(200, headers, compact(whole).encode("utf-8", "surrogatepass"), failed=failed)
        return Reply(200, headers, events=tuple(events(said, blocks, whole, writing)), ping=PING, failed=failed)

    def _remember(
        self, message_id: str, blocks: Sequence[Mapping[str, Any]], said: Fitted, seen: Prompt, row: Row
    ) -> None:
        thoughts = sum(block["type"] in ("thinking", "redacted_thinking") for block in blocks)
        for block in blocks:
            if block["type"] == "tool_use" and "id" in block:
                self._memory.thoughts[block["id"]] = thoughts
        if said.stop == "pause":
            self._memory.paused.add(remembered(blocks))
        self._sent[message_id] = Fingerprint(seen, row.read + row.written)

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error."""
        kind = failure.kind or ERRORS.get(failure.status, "api_error")
        error = {"type": kind, "message": failure.message or kind.replace("_", " "), **failure.details}
        headers = dict(self._told(exchange))
        request_id = headers["request-id"]
        if failure.retry_after is not None:
            headers["retry-after"] = failure.retry_after
        body = compact({"type": "error", "error": error, "request_id": request_id})
        headers |= failure.headers
        return Reply(failure.status, tuple(headers.items()), body.encode("utf-8", "surrogatepass"))

    def quota_headers(self, quotas: Sequence[Quota], now_s: float) -> Mapping[str, str]:
        """Return what is left of the limits."""
        told: dict[str, str] = {}
        for quota in quotas:
            name = f"anthropic-ratelimit-{QUOTAS[quota.kind]}"
            told |= {
                f"{name}-limit": str(quota.limit),
                f"{name}-remaining": str(quota.remaining),
                f"{name}-reset": rfc3339(now_s + quota.reset_s),
            }
        return told

    def _told(self, exchange: Exchange) -> tuple[tuple[str, str], ...]:
        return (
            ("content-type", "application/json"),
            ("request-id", self._world.new_id("req_", exchange)),
            ("anthropic-organization-id", "00000000-0000-4000-8000-" + digest(exchange.key or "")[:12]),
        )

    # --- beside messages

    def _count(self, exchange: Exchange) -> Reply:
        _, _, seen = self._request(exchange, counting=True)
        return Reply(200, self._told(exchange), compact({"input_tokens": seen.tokens}).encode())

    def _models(self, exchange: Exchange) -> Reply:
        self._headers(exchange)
        known = [model for model in self._world.models.values() if model.vendor == "anthropic"]
        return Reply(200, self._told(exchange), compact(listed(known)).encode())

    def _model(self, exchange: Exchange) -> Reply:
        self._headers(exchange)
        model = self._known_model(exchange.incoming.path.rpartition("/")[2])
        return Reply(200, self._told(exchange), compact(shown(model)).encode())


def betas_of(headers: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the betas that a request asks for."""
    return frozenset(name.strip() for name in headers.get("anthropic-beta", "").split(",") if name.strip())


def refused(violation: Violation) -> Failure:
    """Return the error for *violation*."""
    status = 501 if violation.rule == "unsimulated" else 400
    return Failure(status, "invalid_request_error", violation.message)


def failed(kind: str | None, what: str) -> Event:
    """Return an error in the middle of a stream."""
    error = {"type": kind or "overloaded_error", "message": what}
    return Event(compact({"type": "error", "error": error}), "error")


def transformations(made: _binding.Bindings) -> list[dict[str, str]]:
    """Return what became of thinking that failed a check."""
    dropped = [{"type": "thinking_dropped", "path": path, "reason": why} for path, why in made.dropped.items()]
    shown_anyway = [
        {"type": "thinking_mismatch_allowed", "path": path, "reason": why} for path, why in made.allowed.items()
    ]
    return [*dropped, *shown_anyway]
