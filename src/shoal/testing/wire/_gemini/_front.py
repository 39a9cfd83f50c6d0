"""What all of Gemini's endpoints share: keys, models, bodies, errors, headers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast, final

from shoal.testing.wire._delivery import Reply
from shoal.testing.wire._engine import Refused, World
from shoal.testing.wire._gemini._errors import bad_key, error_object, refused
from shoal.testing.wire._gemini._shape import camelled, shape_violations
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._json import Json
from shoal.testing.wire._models import Model
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Failure


@final
class Front:
    """Answers what does not depend on the endpoint.

    Args:
        world: What the server knows.
    """

    def __init__(self, world: World) -> None:
        self.world = world

    def __repr__(self) -> str:
        return f"<Front of {self.world!r}>"

    def admit(self, exchange: Exchange) -> str:
        """Check who asks; return the key.

        Raises:
            Refused: No key came, or one that is not taken.
        """
        key = key_of(exchange.incoming)
        if key is None:
            what = "Method doesn't allow unregistered callers (callers without established identity)."
            raise Refused(Failure(403, message=f"{what} Please use API Key or other form of API consumer identity."))
        if not self.world.check_key(key):
            message = "API key not valid. Please pass a valid API key."
            raise Refused(Failure(400, message=message, details=bad_key("API_KEY_INVALID")))
        exchange.key = key
        return key

    def body(self, exchange: Exchange) -> Any:
        """Return the JSON of a request.

        Raises:
            Refused: It is none.
        """
        try:
            exchange.body = json.loads(exchange.raw)
        except ValueError as exc:
            raise Refused(Failure(400, message=f"Invalid JSON payload received. {exc}")) from exc
        return exchange.body

    def shaped(self, exchange: Exchange, given: Any, *, caching: bool = False) -> Json:
        """Return *given*, for a reply or, with *caching*, for a cached content, with its fields in camel case.

        Raises:
            Refused: It has not its shape, even if that is to be let pass: nothing could be made of it.
        """
        body = camelled(given, caching=caching)
        for found, usable in shape_violations(body, caching=caching):
            self.enforce(exchange, [found])
            if not usable:
                raise Refused(refused(found))
        return cast("Json", body)

    def model(self, name: str) -> Model:
        """Return the model *name*, with `models/` in front or without.

        Raises:
            Refused: There is none of that name.
        """
        bare = name.removeprefix("models/")
        model = self.world.models.get(bare)
        if model is None or model.vendor != "gemini":
            what = f"models/{bare} is not found for API version v1beta, or is not supported for generateContent."
            raise Refused(Failure(404, message=f"{what} Call ListModels to see the list of available models."))
        return model

    def enforce(self, exchange: Exchange, found: Sequence[Violation]) -> None:
        """Record *found*; refuse the request for the first that is enforced.

        Raises:
            Refused: With the vendor's words.
        """
        self.world.enforce(exchange, found, refused)

    def reply(self, value: Any) -> Reply:
        """Return a reply of JSON."""
        return Reply(200, HEADERS, encoded(value))

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error; of a stream that is no stream of events it is the only one of a list."""
        headers = {**dict(HEADERS), **failure.headers}
        if failure.retry_after is not None and not failure.retry_after.isdecimal():
            headers["retry-after"] = failure.retry_after
        error: Any = {"error": error_object(failure)}
        streamed = exchange.endpoint == "gemini.streamGenerateContent"
        listed = streamed and exchange.incoming.query.get("alt") != "sse"
        return Reply(failure.status, tuple(headers.items()), encoded([error] if listed else error))


HEADERS = (("content-type", "application/json; charset=UTF-8"), ("server", "scaffolding on HTTPServer2"))


def key_of(incoming: Incoming) -> str | None:
    """Return the API key in the vendor's own header or query; `None` if there is none."""
    return incoming.headers.get("x-goog-api-key") or incoming.query.get("key") or None


def encoded(value: Any) -> bytes:
    """Return *value* as the bytes of a body."""
    return compact(value).encode("utf-8", "surrogatepass")
