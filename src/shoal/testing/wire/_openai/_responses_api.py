"""The endpoints of Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast, final

from shoal.testing.wire._clock import epoch_s
from shoal.testing.wire._delivery import Event, Reply
from shoal.testing.wire._engine import Reading, Refused, Route, World
from shoal.testing.wire._faults import Fault
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._ledger import Row
from shoal.testing.wire._limits import Quota
from shoal.testing.wire._openai import _responses_options, _responses_rules
from shoal.testing.wire._openai._caching import Caching
from shoal.testing.wire._openai._errors import CODES, refused
from shoal.testing.wire._openai._front import Front, quota_headers
from shoal.testing.wire._openai._responses_ask import ask_of
from shoal.testing.wire._openai._responses_diagnosis import diagnosis
from shoal.testing.wire._openai._responses_events import Stream
from shoal.testing.wire._openai._responses_prompt import item_blocks, prompt
from shoal.testing.wire._openai._responses_reply import Output, Writing, outputs, whole
from shoal.testing.wire._openai._responses_request import Item, Known, Memory, Request, Stored, items_of
from shoal.testing.wire._openai._responses_rules import withheld
from shoal.testing.wire._prompt import Prompt
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._turns import Fitted
from shoal.testing.wire._values import Dialect, Failure

TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
SESSION = "session_id"
"""The header by which the transport that keeps nothing sends the requests of one conversation to one machine."""

RULES = (
    _responses_options.codex,
    _responses_options.unsimulated,
    _responses_options.r4,
    _responses_options.r5,
    _responses_options.r6,
    _responses_options.r7,
    _responses_options.r8,
    _responses_options.shared,
    _responses_rules.r3,
    _responses_rules.r1,
    _responses_rules.r2,
)


@final
class Responses:
    """OpenAI's Responses, and the transport of the same shape that keeps nothing.

    Args:
        world: What the server knows.
    """

    name: Dialect = "responses"

    def __init__(self, world: World) -> None:
        self._world = world
        self._front = Front(world)
        self._caching = Caching(self._front.flavour, world.settings.cache)
        self._memory = Memory()
        self._checked: dict[int, tuple[Request, Prompt]] = {}

    def __repr__(self) -> str:
        return f"<Responses {len(self._memory.responses)} kept>"

    def route(self, incoming: Incoming) -> Route | None:
        """Return where *incoming* goes."""
        match incoming.method, incoming.path.removeprefix("/v1"):
            case "POST", "/responses":
                return Route("responses.create")
            case "POST", path if path.endswith("/codex/responses"):
                return Route("responses.codex")
            case "POST", "/responses/input_tokens":
                return Route("responses.input_tokens", self._count)
            case "POST", "/responses/compact":
                return Route("responses.compact", self._compact)
            case "GET", path if path.startswith("/responses/"):
                return Route("responses.get", self._get)
            case _:
                return None

    # --- reading

    def read(self, exchange: Exchange) -> Reading:
        """Check a request for a response."""
        request, seen, ends = self._request(exchange)
        model = request.model
        self._checked[exchange.number] = request, seen
        options = obj(request.body.get("prompt_cache_options"))
        return Reading(
            ask=ask_of(request),
            prompt=seen,
            model=model,
            key=request.key,
            look=partial(self._caching.look, model=model, body=_routed(request, exchange), ends=ends),
            best=self._caching.best(seen, model),
            whole_blocks=self._caching.whole_blocks(seen, model),
            warming=bool(options.get("prewarm")),
        )

    def _request(self, exchange: Exchange, *, counting: bool = False) -> tuple[Request, Prompt, list[int]]:
        """Check everything about a request with a body.

        Raises:
            Refused: A rule is broken.
        """
        key = self._front.admit(exchange)
        body = self._front.body(exchange)
        for found, code in _responses_options.shape_violations(body, counting=counting):
            self._enforce(exchange, [found], code=code)
            if found.rule != "unknown" and code != CODES["unknown"]:
                raise Refused(_refusal(found, code=code))  # even if the rule is skipped: it has no shape to go by
        model = self._front.model(body["model"])
        exchange.model = model.name
        own = [self._memory.resolved(item) for item in items_of(body.get("input"))]
        codex = exchange.endpoint == "responses.codex"
        request = Request(
            body=body,
            model=model,
            flavour=self._front.flavour,
            key=key,
            items=(*self._before(body), *own),
            own=len(own),
            memory=self._memory,
            seals=self._world.seals,
            codex=codex,
            counting=counting,
        )
        for rule in RULES:
            self._enforce(exchange, tuple(rule(request)))
        seen, ends = prompt(request, key)
        if seen.tokens > model.prompt_limit:
            violation = Violation("window", "input", TOO_LONG)
            self._enforce(exchange, [violation], code="context_length_exceeded")
        return request, seen, ends

    def _before(self, body: Json) -> list[Item]:
        known = self._memory.responses.get(str(body.get("previous_response_id")))
        items = known.items if known is not None else ()
        return [Item(f"previous[{number}]", value) for number, value in enumerate(items)]

    def _enforce(self, exchange: Exchange, found: Sequence[Violation], *, code: str | None = None) -> None:
        self._world.enforce(exchange, found, partial(_refusal, code=code))

    # --- answering

    def write(self, exchange: Exchange, reading: Reading, said: Fitted, row: Row, faults: Sequence[Fault]) -> Reply:
        """Return a response, whole or as a stream."""
        request, seen = self._checked.pop(exchange.number)
        world = self._world
        writing = Writing(
            response_id=world.new_id("resp_", exchange),
            request=request,
            seals=world.seals,
            created_s=epoch_s(exchange.received_s),
            delta_chars=world.settings.delta_chars,
            faults=faults,
        )
        made = outputs(said, writing)
        response = whole(said, made, row, writing)
        if (told := diagnosis(request.body, self._memory.responses, seen, row.read)) is not None:
            response["prompt_cache_diagnostics"] = told
        if removed := _removed(request):
            response["input_transformations"] = removed
        self._remember(request, response, made, seen, row)
        replied = [item_blocks(Item("reply", output.item), request) for output in made]
        self._caching.said(seen, [block for blocks in replied for block in blocks])
        headers = self._front.headers(exchange)
        if not request.body.get("stream"):
            return Reply(200, headers, compact(response).encode("utf-8", "surrogatepass"), failed=_failed)
        stream = Stream(response, world.settings.delta_chars)
        return Reply(200, headers, events=tuple(stream.events()), failed=_failed)

    def _remember(self, request: Request, response: Json, made: Sequence[Output], seen: Prompt, row: Row) -> None:
        for output in made:
            item = output.item
            if "id" in item:
                value = {**item, "tokens": output.tokens} if item["type"] == "reasoning" else item
                self._memory.items[item["id"]] = Known(value, response["id"], output.reasoning, request.stores)
        items = (*(item.value for item in request.items), *(output.item for output in made))
        cached = row.read + row.written if request.model.breakpoints else row.input
        self._memory.responses[response["id"]] = Stored(response, items, request.stores, seen, cached, request.body)

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error."""
        if exchange.endpoint == "responses.codex" and failure.kind == "codex":
            detail = compact({"detail": failure.message})
            return Reply(failure.status, self._front.headers(exchange), detail.encode())
        return self._front.fail(failure, exchange)

    def quota_headers(self, quotas: Sequence[Quota], now_s: float) -> Mapping[str, str]:
        """Return what is left of the limits."""
        del now_s
        return quota_headers(quotas)

    # --- beside responses

    def _count(self, exchange: Exchange) -> Reply:
        _, seen, _ = self._request(exchange, counting=True)
        counted = {"object": "response.input_tokens", "input_tokens": seen.tokens}
        return Reply(200, self._front.headers(exchange), compact(counted).encode())

    def _get(self, exchange: Exchange) -> Reply:
        self._front.admit(exchange)
        response_id = exchange.incoming.path.rpartition("/")[2]
        known = self._memory.responses.get(response_id)
        if known is None or not known.stored:
            raise Refused(Failure(404, message=f"Response with id '{response_id}' not found."))
        return Reply(200, self._front.headers(exchange), compact(dict(known.response)).encode("utf-8", "surrogatepass"))

    def _compact(self, exchange: Exchange) -> Reply:
        self._front.admit(exchange)
        violation = Violation("unsimulated", "", "this server does not simulate compaction")
        self._enforce(exchange, [violation])
        return self._front.fail(refused(violation), exchange)


def _routed(request: Request, exchange: Exchange) -> Json:
    """Return the body with the key by which its cache is found."""
    session = exchange.headers.get(SESSION)
    if not request.codex or session is None or request.body.get("prompt_cache_key"):
        return request.body
    return {**request.body, "prompt_cache_key": session}


def _refusal(violation: Violation, *, code: str | None) -> Failure:
    match violation.rule:
        case "codex":
            return Failure(400, "codex", violation.message)
        case "R3" if "not found" in violation.message:
            return Failure(404, "item_not_found", violation.message, details={"param": "input"})
        case "R3" if "could not be verified" in violation.message:
            return refused(violation, code="invalid_encrypted_content")
        case "R4" if "not found" in violation.message:
            return refused(violation, code="previous_response_not_found")
        case "R5":
            return refused(violation, code="integer_below_min_value")
        case "R1" | "R6" | "R7" if "string too long" in violation.message:
            return refused(violation, code="string_above_max_length")
        case "R8":
            formed = violation.path.startswith("text.format")
            return refused(violation, code="invalid_json_schema" if formed else "invalid_function_parameters")
        case _:
            return refused(violation, code=code)


def _removed(request: Request) -> list[dict[str, Any]]:
    """Return the reasoning that the model does not see."""
    found = ((item, withheld(item, request)) for item in request.items if item.kind == "reasoning")
    return [
        {"id": cast("str", item.item_id), "type": "reasoning", "action": "removed", "reason": why}
        for item, why in found
        if why
    ]


def _failed(kind: str | None, what: str) -> Event:
    """Return an error in the middle of a stream."""
    error = {"type": "error", "code": kind or "server_error", "message": what, "param": None, "sequence_number": 0}
    return Event(compact(error), "error")
