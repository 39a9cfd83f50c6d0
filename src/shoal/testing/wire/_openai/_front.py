"""What all of OpenAI's endpoints share: keys, models, errors, headers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

from shoal.testing.wire._clock import epoch_s
from shoal.testing.wire._delivery import Reply
from shoal.testing.wire._engine import Refused, World
from shoal.testing.wire._flavours import FLAVOURS, Flavour
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._limits import Quota
from shoal.testing.wire._models import Model
from shoal.testing.wire._openai._errors import error_object
from shoal.testing.wire._tokens import compact
from shoal.testing.wire._values import Failure

ANYONE = "anyone"
"""The key of who needs none."""

QUOTAS = {"requests": "requests", "input": "tokens"}
UNKNOWN = "local"
"""The row that stands for a model of which nothing is known."""


@final
class Front:
    """Answers for one server what does not depend on the endpoint.

    Args:
        world: What the server knows.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.flavour: Flavour = FLAVOURS[world.settings.server]

    def __repr__(self) -> str:
        return f"<Front of {self.flavour.name}>"

    def admit(self, exchange: Exchange) -> str:
        """Check who asks; return the key.

        Raises:
            Refused: No key came, or one that is not taken.
        """
        bearer = exchange.headers.get("authorization", "").removeprefix("Bearer ")
        key = bearer or exchange.headers.get("api-key") or (ANYONE if self.flavour.any_key else "")
        if not (self.world.check_key(key) or (key == ANYONE and self.world.settings.keys is None)):
            message = f"Incorrect API key provided: {key[:4]}…" if key else "You didn't provide an API key."
            raise Refused(Failure(401, message=message))
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
            message = "We could not parse the JSON body of your request."
            raise Refused(Failure(400, message=message)) from exc
        return exchange.body

    def model(self, name: Any, *, vendors: Sequence[str] = ("openai",)) -> Model:
        """Return the facts of a model.

        Raises:
            Refused: The server does not have it.
        """
        known = self.world.models.get(str(name))
        if self.flavour.any_model:
            return known or replace(self.world.models[UNKNOWN], name=str(name or UNKNOWN))
        if known is None or known.vendor not in vendors:
            message = f"The model `{name}` does not exist or you do not have access to it."
            raise Refused(Failure(404, message=message))
        return known

    def headers(self, exchange: Exchange) -> tuple[tuple[str, str], ...]:
        """Return the headers of every reply."""
        return (
            ("content-type", "application/json"),
            ("x-request-id", self.world.new_id("req_", exchange)),
            ("openai-version", "2020-10-01"),
        )

    def fail(self, failure: Failure, exchange: Exchange) -> Reply:
        """Return an error in the shape of the server."""
        headers = dict(self.headers(exchange))
        if failure.retry_after is not None:
            headers["retry-after"] = failure.retry_after
        headers |= failure.headers
        error = error_object(failure)
        if self.flavour.name in ("llama.cpp", "openrouter", "vllm"):
            error["code"] = error["code"] if failure.kind else failure.status
        return Reply(failure.status, tuple(headers.items()), compact({"error": error}).encode("utf-8", "surrogatepass"))

    def listed(self, exchange: Exchange) -> Reply:
        """Return the models of the server."""
        self.admit(exchange)
        if self.flavour.any_model:
            names = sorted({UNKNOWN, *self.world.settings.models})
        else:
            names = [model.name for model in self.world.models.values() if model.vendor == "openai"]
        models = [self.shown(self.world.models[name]) for name in names]
        return Reply(200, self.headers(exchange), compact({"object": "list", "data": models}).encode())

    def one(self, exchange: Exchange) -> Reply:
        """Return one model."""
        self.admit(exchange)
        model = self.model(exchange.incoming.path.rpartition("/")[2])
        return Reply(200, self.headers(exchange), compact(self.shown(model)).encode())

    def shown(self, model: Model) -> Mapping[str, Any]:
        """Return what the server says of *model*."""
        made: dict[str, Any] = {
            "id": model.name, "object": "model", "created": epoch_s(0), "owned_by": self.flavour.name
        }  # fmt: skip
        if self.flavour.name == "vllm":
            made["max_model_len"] = model.window
        if self.flavour.name == "llama.cpp":
            made["meta"] = {"n_ctx_train": model.window, "n_vocab": 256}
        return made


def quota_headers(quotas: Sequence[Quota]) -> Mapping[str, str]:
    """Return what is left of the limits. OpenAI tells nothing of a limit on output."""
    made: dict[str, str] = {}
    for quota in quotas:
        if name := QUOTAS.get(quota.kind):
            made |= {
                f"x-ratelimit-limit-{name}": str(quota.limit),
                f"x-ratelimit-remaining-{name}": str(quota.remaining),
                f"x-ratelimit-reset-{name}": duration(quota.reset_s),
            }
    return made


def duration(seconds: float) -> str:
    """Return *seconds* as the vendor writes them: `350ms`, `1s`, `6m0s`."""
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
