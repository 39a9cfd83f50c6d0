"""Any server that speaks Chat Completions: a model of your own, a gateway, or a vendor that follows the format."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, final

import httpx
import msgspec

from shoal.errors import ConfigInvalid, ProviderError, ProviderUnavailable
from shoal.providers._chat import chat_encoder
from shoal.providers._chat_reply import ChatReply, is_done
from shoal.providers._json import as_count, as_list, as_object
from shoal.providers._profiles import shipped_profile
from shoal.providers._refusals import Asked, body_of, refusal
from shoal.providers._servers import Capabilities, capabilities_of
from shoal.providers._transport import Answer, Timeouts, Transport
from shoal.providers._values import ModelProfile, Request, StreamEvent, TokenCount
from shoal.providers._wire import Wire

_COUNT_TIMEOUT_S = 60.0
_SECRET_LENGTH = 8  # taking out shorter texts would destroy messages
_NO_SUCH_PATH = frozenset({404, 405, 501})


def compatible(
    base_url: str,
    *,
    api_key: str | None = None,
    model: str | None = None,
    name: str | None = None,
    capabilities: Capabilities | str = "generic",
    profiles: Mapping[str, ModelProfile] | None = None,
    headers: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    http: httpx.AsyncBaseTransport | None = None,
) -> CompatibleProvider:
    """Return a provider for the OpenAI-compatible server at *base_url*.

    Args:
        base_url: Where `/chat/completions` is appended; most servers want a `/v1` at its end.
        api_key: The key; `None` sends none.
        model: The model where a blueprint names none.
        name: Name under which blueprints and spans know it; `None` takes that of the capabilities' server.
        capabilities: What the server takes and gives: the name of a shipped record, or a record.
        profiles: What is known of its models, by model; the shipped table answers for others where a vendor hosts them.
        headers: Further headers of each request.
        timeouts: How long to wait.
        http: What sends the requests, for proxies and tests; `None` uses the network.

    Raises:
        ConfigInvalid: The URL is no http URL, or no shipped record has that name.
    """
    url = httpx.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host or url.query:
        # The URL itself is not repeated: it may hold a password.
        raise ConfigInvalid(
            f"`base_url` leads to {url.scheme!r} at {url.host!r}; "
            "write a whole URL without a query, such as `http://127.0.0.1:8080/v1`"
        )
    record = capabilities_of(capabilities)
    secrets = [secret for secret in (api_key, url.password, *(headers or {}).values()) if secret]
    keys = {} if api_key is None else _key_header(record, api_key)
    return CompatibleProvider(
        name or record.server,
        Transport(base_url, headers={**keys, **(headers or {})}, timeouts=timeouts, http=http),
        record,
        default_model=model,
        profiles=profiles or {},
        secrets=tuple([secret for secret in secrets if len(secret) >= _SECRET_LENGTH]),
    )


def _key_header(record: Capabilities, api_key: str) -> dict[str, str]:
    return {"api-key": api_key} if record.auth == "api-key" else {"Authorization": f"Bearer {api_key}"}


@final
class CompatibleProvider:
    """Streams Chat Completions from one server; build it with `compatible`.

    Args:
        name: Name under which blueprints and spans know it.
        transport: The way to the server.
        capabilities: What the server takes and gives.
        default_model: The model where a blueprint names none.
        profiles: What is known of its models, by model.
        secrets: Texts that no error may repeat.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        capabilities: Capabilities,
        *,
        default_model: str | None,
        profiles: Mapping[str, ModelProfile],
        secrets: tuple[str, ...],
    ) -> None:
        self.capabilities = capabilities
        self.default_model = default_model
        self._name = name
        self._transport = transport
        self._profiles = dict(profiles)
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"<CompatibleProvider {self._name} ({self.capabilities.server}), {self._transport!r}>"

    @property
    def name(self) -> str:
        """Name under which blueprints and spans know it."""
        return self._name

    def profile(self, model: str) -> ModelProfile:
        """Return what is known of *model*: the given profile, else, of a vendor's own models, the shipped one."""
        given = self._profiles.get(model)
        if given is not None:
            return given
        return shipped_profile(model) if self.capabilities.hosted else _unknown(model)

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Send *request* once; pacing and repeating are others' work.

        Yields:
            Deltas as they come, then one `Completed`.

        Raises:
            ProviderBusy: The server asked us to wait `retry_after_s` seconds.
            ProviderUnavailable: No complete reply arrived.
            ProviderRefused: It would be refused again unchanged.
            ProviderSetup: Key, credits or permission are missing.
            ContextOverflow: Prompt and reply do not fit the window.
        """
        asked = self._asked(request)
        encoder = chat_encoder(self.capabilities, self._name, request.model)
        body = encoder.encode(request, provider=self._name, temperature=self.profile(request.model).temperature)
        async with self._transport.post("/chat/completions", body, asked, timeout_s=request.timeout_s) as answer:
            if answer.status != 200:
                raise await _refused(answer, asked)
            reply = ChatReply(
                asked,
                headers=answer.headers,
                names=encoder.tools(request.tools).names,
                reasoning_field=self.capabilities.reasoning_field,
            )
            async with aclosing(self._data(answer, asked, reply)) as chunks:
                async for data in chunks:
                    for delta in reply.feed(data):
                        yield delta
        yield reply.completed(prompt_bytes=body.size)

    async def _data(self, answer: Answer, asked: Asked, reply: ChatReply) -> AsyncGenerator[bytes]:
        """Yield the data of each chunk, up to the end of the stream; a stream without its end is an error."""
        if answer.headers.get("content-type", "").startswith("application/json"):
            yield await answer.read()  # the server does not stream: the whole completion is one chunk
            return
        async with aclosing(answer.events()) as events:
            async for event in events:
                if is_done(event.data):
                    await answer.drain()
                    return
                yield event.data
        if self.capabilities.ends_with == "done" or reply.finish_reason is None:
            raise ProviderUnavailable(
                f"{asked.provider}: the stream ended without its end mark; try again",
                **asked.context(status=answer.status),
            )

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return what *request* costs: by the server's own tokenizer where it has one, else about bytes / 4.

        Raises:
            ProviderError: The server has a tokenizer and could not be asked.
        """
        encoder = chat_encoder(self.capabilities, self._name, request.model)
        body = encoder.encode(request, provider=self._name, temperature=False, stream=False)
        asked = self._asked(request)
        match self.capabilities.counts:
            case "template":
                counted = await self._count_rendered(body, asked)
            case "messages":
                counted = await self._count_messages(body, asked)
            case _:
                counted = None
        if counted is None:
            return TokenCount(math.ceil(body.size / 4), "estimate")
        return TokenCount(counted, "server", exact=True)

    async def _count_rendered(self, body: Wire, asked: Asked) -> int | None:
        """Count as llama.cpp does: render the chat template, then tokenize the prompt that it gives."""
        rendered = await self._ask("/apply-template", body, asked)
        if rendered is None:
            return None
        prompt = msgspec.json.encode(
            {"content": rendered.get("prompt", ""), "add_special": True, "parse_special": True}
        )
        tokenized = await self._ask("/tokenize", Wire.of(prompt), asked)
        return None if tokenized is None else len(as_list(tokenized.get("tokens")))

    async def _count_messages(self, body: Wire, asked: Asked) -> int | None:
        """Count as vLLM does: it takes the messages themselves."""
        tokenized = await self._ask("/tokenize", body, asked)
        return None if tokenized is None else as_count(tokenized.get("count"))

    async def _ask(self, path: str, body: Wire, asked: Asked) -> Mapping[str, Any] | None:
        """Return the JSON answer of *path*, which stands beside `/v1`; `None` where the server has no such path."""
        url = self._transport.base_url.removesuffix("/v1") + path
        async with self._transport.post(url, body, asked, timeout_s=_COUNT_TIMEOUT_S) as answer:
            if answer.status in _NO_SUCH_PATH:
                return None
            if answer.status != 200:
                raise await _refused(answer, asked)
            return as_object(body_of(await answer.read()))

    async def aclose(self) -> None:
        """Close all connections. Closing twice is fine."""
        await self._transport.aclose()

    def _asked(self, request: Request) -> Asked:
        return Asked(self._name, request.model, self._secrets)


def _unknown(model: str) -> ModelProfile:
    return ModelProfile(model, window_key=f'[models."{model}"] context')


async def _refused(answer: Answer, asked: Asked) -> ProviderError:
    body = body_of(await answer.read_error())
    return refusal(asked, body, status=answer.status, headers=answer.headers)
