"""The endpoints of cached contents, and requests that name one."""

from __future__ import annotations

from typing import final

from shoal.testing.wire._delivery import Reply
from shoal.testing.wire._engine import Refused, Route
from shoal.testing.wire._gemini._caches import CachedContents, Kept, end_s
from shoal.testing.wire._gemini._errors import NOT_CACHED
from shoal.testing.wire._gemini._front import Front
from shoal.testing.wire._gemini._prompt import prompt
from shoal.testing.wire._gemini._request import Request, turns_of
from shoal.testing.wire._journal import Exchange
from shoal.testing.wire._json import Json, arr, obj
from shoal.testing.wire._models import Model
from shoal.testing.wire._rules import Violation
from shoal.testing.wire._values import Failure

CACHED = "cachedContents"
RULE = "cachedContent"
EXCLUSIVE = ("systemInstruction", "tools", "toolConfig")


@final
class Cached:
    """What clients put into a cache by name.

    Args:
        front: What all endpoints share.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._contents = CachedContents()

    def __repr__(self) -> str:
        return f"<Cached {self._contents!r}>"

    def route(self, method: str, path: str) -> Route | None:
        """Return where a request for *path*, which begins with `cachedContents`, goes."""
        match method, path == CACHED:
            case "POST", True:
                return Route("gemini.cache.create", self._create)
            case "GET", True:
                return Route("gemini.cache.list", self._list)
            case "GET", False:
                return Route("gemini.cache.get", self._get)
            case "PATCH", False:
                return Route("gemini.cache.update", self._update)
            case "DELETE", False:
                return Route("gemini.cache.delete", self._delete)
            case _:
                return None

    def named(self, exchange: Exchange, body: Json, model: Model, key: str) -> Kept | None:
        """Return the cached content that *body* names; `None` if it names none.

        Raises:
            Refused: It cannot be used, or not with this request.
        """
        name = body.get("cachedContent")
        if name is None:
            return None
        kept = self._contents.find(name, key, exchange.received_s)
        if kept is None:
            self._front.enforce(exchange, [Violation(RULE, "cached_content", NOT_CACHED)])
            return None
        if kept.model != model.name:
            what = f"GenerateContent request (models/{model.name}) and CachedContent (models/{kept.model})"
            what = f"Model used by {what} has to be the same."
            self._front.enforce(exchange, [Violation(RULE, "cached_content", what)])
        if any(body.get(field) for field in EXCLUSIVE):
            what = (
                "CachedContent can not be used with GenerateContent request setting system_instruction, tools or "
                "tool_config.\n\nProposed fix: move those values to CachedContent from GenerateContent request."
            )
            self._front.enforce(exchange, [Violation(RULE, "cached_content", what)])
        return kept

    def _create(self, exchange: Exchange) -> Reply:
        key = self._front.admit(exchange)
        body = self._front.shaped(exchange, self._front.body(exchange), caching=True)
        model = self._front.model(body["model"])
        now_s = exchange.received_s
        until_s = end_s(body, now_s)
        request = Request({}, model, self._front.world.seals, 0, body, turns_of(arr(body.get("contents")), "contents"))
        tokens = prompt(request, key).tokens
        self._front.enforce(exchange, _unfit(request, tokens, until_s))
        name = self._front.world.new_id(f"{CACHED}/", exchange)
        kept = Kept(name, key, model.name, body, tokens, now_s, now_s, now_s if until_s is None else until_s)
        self._contents.add(kept)
        return self._front.reply(kept.shown())

    def _one(self, exchange: Exchange) -> Kept:
        """Return the cached content that a path names.

        Raises:
            Refused: There is none of that name.
        """
        name = f"{CACHED}/{exchange.incoming.path.rpartition('/')[2]}"
        kept = self._contents.find(name, self._front.admit(exchange), exchange.received_s)
        if kept is None:
            raise Refused(Failure(403, message=NOT_CACHED))
        return kept

    def _get(self, exchange: Exchange) -> Reply:
        return self._front.reply(self._one(exchange).shown())

    def _list(self, exchange: Exchange) -> Reply:
        kept = self._contents.of(self._front.admit(exchange), exchange.received_s)
        return self._front.reply({CACHED: [one.shown() for one in kept]} if kept else {})

    def _update(self, exchange: Exchange) -> Reply:
        kept = self._one(exchange)
        until_s = end_s(obj(self._front.body(exchange)), exchange.received_s)
        if until_s is None:
            raise Refused(Failure(400, message=UNTIMED))
        kept.until_s, kept.updated_s = until_s, exchange.received_s
        return self._front.reply(kept.shown())

    def _delete(self, exchange: Exchange) -> Reply:
        self._contents.remove(self._one(exchange).name)
        return self._front.reply({})


UNTIMED = "Invalid value at 'cached_content.expiration'"


def _unfit(request: Request, tokens: int, until_s: float | None) -> list[Violation]:
    """Return why contents cannot be cached."""
    found: list[Violation] = []
    if until_s is None:
        found.append(Violation(RULE, "expiration", UNTIMED))
    if request.contents and request.contents[-1].role == "model":
        what = "CachedContent.contents: the last content must not be of the model."
        found.append(Violation(RULE, "contents", what))
    if tokens < request.model.cache_min:
        what = f"total_token_count={tokens}, min_total_token_count={request.model.cache_min}"
        found.append(Violation(RULE, "", f"Cached content is too small. {what}"))
    return found
