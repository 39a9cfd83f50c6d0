"""The embedded provider: deterministic, without network and without a language model.

A newcomer's first command runs the real runtime on it from end to end.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from typing import TypeAlias, final

import anyio
import msgspec

from shoal.errors import ContextOverflow
from shoal.providers._cache_rows import BYTES_PER_TOKEN
from shoal.providers._loops import LoopWatch
from shoal.providers._policy import Decision, decide
from shoal.providers._text import Text
from shoal.providers._values import (
    Completed,
    ModelProfile,
    Price,
    Reply,
    Request,
    Situation,
    StreamEvent,
    TextDelta,
    TokenCount,
    ToolCall,
    Usage,
)
from shoal.providers.cache_model import PrefixCache, prefixes_of

WINDOW_TOKENS = 200_000
MAX_OUTPUT_TOKENS = 8_192

_DELTA_CHARS = 120
_FREE = Price(
    Decimal(0), Decimal(0), Decimal(0), Decimal(0), Decimal(0), source="the offline provider, which bills nothing"
)

Policy: TypeAlias = Callable[[Request, Situation], Reply | None]


def offline(*, latency_s: float = 0.0, policy: Policy | None = None) -> OfflineProvider:
    """Return the embedded provider, which follows policies instead of a model.

    Args:
        latency_s: Seconds before each answer begins, 0 or more.
        policy: Asked first, with the request and where it stands; what it returns `None` for follows the blueprint.
    """
    return OfflineProvider(latency_s=latency_s, policy=policy)


@final
class OfflineProvider:
    """Answers by the stage's policy; build it with `offline`.

    It serves any model name. Its replies depend on the request alone; its usage depends on what came before, as a
    cache's does.

    Args:
        latency_s: Seconds before each answer begins, 0 or more.
        policy: Asked first; `None` follows the blueprint alone.
    """

    stands_in = True
    """It may serve stages that name a provider which is not there: it says so in every reply."""

    def __init__(self, *, latency_s: float = 0.0, policy: Policy | None = None) -> None:
        self.default_model = "offline"
        self._latency_s = latency_s
        self._policy = policy
        self._cache = PrefixCache()
        self._loop = LoopWatch()

    def __repr__(self) -> str:
        return f"<OfflineProvider, {self._cache!r}>"

    @property
    def name(self) -> str:
        """Name under which blueprints and spans know it."""
        return "offline"

    def profile(self, model: str) -> ModelProfile:
        """Return the profile that every model has here."""
        return ModelProfile(
            model,
            window_tokens=WINDOW_TOKENS,
            max_output_tokens=MAX_OUTPUT_TOKENS,
            price=_FREE,
            min_cacheable_tokens=self._cache.min_tokens,
            cache="prefix",
            window_source="the offline provider",
            window_key=f'[models."{model}"] context',
        )

    async def count_tokens(self, request: Request) -> TokenCount:
        """Return what *request* is billed at here: its encoded bytes / 4."""
        _, tokens = prefixes_of(request)
        return TokenCount(tokens, "estimate")

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        """Answer *request*; `Completed.simulated` is true.

        Yields:
            Deltas of the text, then one `Completed`.

        Raises:
            OfflinePolicyMissing: The stage's policy, or the default where there is none, cannot go on.
            ContextOverflow: Prompt and reply do not fit the window.
        """
        if self._loop.moved():  # times are those of a loop's clock
            self._cache = PrefixCache()
        start_s = anyio.current_time()
        prefixes, prompt_tokens = prefixes_of(request)
        if prompt_tokens + request.max_tokens > WINDOW_TOKENS:
            raise ContextOverflow(
                f"the prompt of {prompt_tokens!r} tokens and a reply of {request.max_tokens!r} do not fit the window "
                f"of {WINDOW_TOKENS!r} tokens; shorten the prompt, or lower `max_tokens`",
                prompt_tokens=prompt_tokens,
                reply_tokens=request.max_tokens,
                window_tokens=WINDOW_TOKENS,
                provider=self.name,
                model=request.model,
            )
        reply = self._reply(request)
        await anyio.sleep(self._latency_s)
        used = self._cache.use(prefixes, prompt_tokens, start_s=start_s, first_byte_s=anyio.current_time())
        for piece in _pieces(str(reply.text)):
            yield TextDelta(piece)
        yield Completed(
            reply,
            Usage(used.uncached, used.read, used.write, output=_output_tokens(reply)),
            "tool_calls" if reply.calls else "stop",
            request.model,
            simulated=True,
        )

    def _reply(self, request: Request) -> Reply:
        situation = _standing(request) if request.situation is None else request.situation()
        given = None if self._policy is None else self._policy(request, situation)
        return _reply(decide(request, situation)) if given is None else given

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def _standing(request: Request) -> Situation:
    """Return where a request stands that says nothing of it: behind the answers since a user spoke last."""
    answered = 0
    for segment in request.messages:
        for message in segment.messages:
            answered = answered + (message.role == "assistant") if message.role != "user" else 0
    return Situation(blueprint="", stage="", iteration=answered, policy=None, regions={})


def _reply(decision: Decision) -> Reply:
    encoder = msgspec.json.Encoder(order="sorted")
    calls = [
        ToolCall(f"call_{number}", name, Text.of(encoder.encode(arguments).decode()))
        for number, (name, arguments) in enumerate(decision.calls)
    ]
    return Reply(Text.of(decision.text), tuple(calls))


def _output_tokens(reply: Reply) -> int:
    written = len(reply.text) + sum([len(call.name) + len(call.arguments) for call in reply.calls])
    return math.ceil(written / BYTES_PER_TOKEN)


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _DELTA_CHARS):
        yield text[start : start + _DELTA_CHARS]
