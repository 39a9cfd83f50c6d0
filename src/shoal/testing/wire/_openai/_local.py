"""Endpoints that only servers of one's own have: tokenizers, templates, health."""

from __future__ import annotations

from typing import Any, final

from shoal.testing.wire._delivery import Reply
from shoal.testing.wire._engine import Refused, Route
from shoal.testing.wire._http import Incoming
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._json import Json, obj
from shoal.testing.wire._openai._chat_prompt import prompt, rendered
from shoal.testing.wire._openai._chat_request import Request
from shoal.testing.wire._openai._front import Front
from shoal.testing.wire._prompt import Prompt
from shoal.testing.wire._tokens import compact, count
from shoal.testing.wire._values import Failure


@final
class LocalServer:
    """What llama.cpp and vLLM serve beside the API.

    Args:
        front: What all endpoints share.
    """

    def __init__(self, front: Front) -> None:
        self._front = front

    def __repr__(self) -> str:
        return f"<LocalServer {self._front!r}>"

    def route(self, incoming: Incoming) -> Route | None:
        """Return where *incoming* goes; `None` if this server has no such path."""
        name = self._front.flavour.name
        match name, incoming.method, incoming.path:
            case "llama.cpp" | "vllm", "POST", "/tokenize":
                return Route("chat.tokenize", self._tokenize)
            case "llama.cpp", "POST", "/apply-template":
                return Route("chat.template", self._template)
            case "llama.cpp" | "vllm", "GET", "/health":
                return Route("chat.health", self._health)
            case "llama.cpp", "GET", "/props":
                return Route("chat.props", self._props)
            case _:
                return None

    def _body(self, exchange: Exchange, field: str, kind: type) -> Json:
        """Return the body, which has *field*.

        Raises:
            Refused: It has not.
        """
        self._front.admit(exchange)
        body = obj(self._front.body(exchange))
        if not isinstance(body.get(field), kind):
            raise Refused(Failure(400, message=f"'{field}' is missing or of the wrong type"))
        return body

    def _tokenize(self, exchange: Exchange) -> Reply:
        if self._front.flavour.name == "llama.cpp":
            body = self._body(exchange, "content", str)
            return self._reply(exchange, {"tokens": list(range(count(body["content"])))})
        body = self._body(exchange, "messages", list)
        tokens = self._prompt(body).tokens
        window = self._front.model(body.get("model")).window
        return self._reply(exchange, {"count": tokens, "max_model_len": window, "tokens": list(range(tokens))})

    def _template(self, exchange: Exchange) -> Reply:
        body = self._body(exchange, "messages", list)
        return self._reply(exchange, {"prompt": rendered(self._prompt(body).blocks)})

    def _prompt(self, body: Json) -> Prompt:
        return prompt(Request(body, self._front.model(body.get("model")), self._front.flavour), "")

    def _health(self, exchange: Exchange) -> Reply:
        return self._reply(exchange, {"status": "ok"})

    def _props(self, exchange: Exchange) -> Reply:
        self._front.admit(exchange)
        slots = self._front.world.settings.cache.slots
        window = self._front.model(None).window
        return self._reply(exchange, {"total_slots": slots, "default_generation_settings": {"n_ctx": window}})

    def _reply(self, exchange: Exchange, value: Any) -> Reply:
        return Reply(200, self._front.headers(exchange), compact(value).encode("utf-8", "surrogatepass"))
