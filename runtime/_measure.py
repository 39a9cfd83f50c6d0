"""What a request costs before it is sent: our estimate, corrected, and the provider's own count where it gets close."""

from __future__ import annotations

from typing import final

import anyio.to_thread
import msgspec

from shoal.errors import ContextOverflow, ProviderError
from shoal.providers import Request, counter
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime.context import Prompt
from shoal.runtime.events import TokensMeasured

ESTIMATE = "estimate"


@final
class Size(msgspec.Struct, frozen=True, gc=False):
    """What a request is estimated at.

    Args:
        regions: What regions (of a lane: its material) hold, uncorrected.
        base: What is in none: tool schemas and framing.
    """

    regions: int
    base: int

    def corrected(self, live: Live, serving: Serving) -> int:
        """Return what it costs on that model, as far as its earlier requests tell."""
        return live.state.calibrated(serving.model).corrected(self.regions, self.base)


def size_of(prompt: Prompt) -> Size:
    """Return what *prompt* is estimated at."""
    return Size(prompt.tokens - prompt.tools.tokens, prompt.tools.tokens + prompt.framing_tokens)


async def count_with(live: Live, serving: Serving) -> None:
    """Have what is written from here on counted by the model's own vocabulary, where that is on this machine."""
    name = serving.profile.tokenizer
    known = live.state.view.counter
    if name == ESTIMATE:
        live.state.view.counter = None
    elif known is None or known.name not in (name, ESTIMATE):
        # The first of a vocabulary reads it, which takes a second; the others find it there.
        live.state.view.counter = await anyio.to_thread.run_sync(counter, name, limiter=live.host.threads)


async def measure(live: Live, serving: Serving, request: Request, size: Size, *, job: int = 0, call: int = 0) -> int:
    """Have the provider count *request* where estimate and reply reach half the window; learn from the count.

    Args:
        live: The run.
        serving: Who is to serve it.
        request: The request.
        size: What it is estimated at.
        job: Id of the lane job that asks; 0 for none.
        call: The call of an agentic function that asks, as seq of its `CallOpened`; 0 for none.

    Returns:
        By how many tokens it and its reply pass the window, as counted, or as estimated where nobody counts better; 0
        where it may be sent.
    """
    window = serving.profile.window_tokens
    estimated = size.corrected(live, serving) + request.max_tokens
    if estimated < window // 2:
        return 0
    try:
        counted = await serving.provider.count_tokens(request)
    except ContextOverflow as error:
        tokens = error.prompt_tokens or size.corrected(live, serving)
        return max(1, tokens + request.max_tokens - window)
    except ProviderError:
        # Whatever is wrong with the provider, the request itself will meet it, with retries and a fallback.
        return max(0, estimated - window)
    if counted.how == ESTIMATE or live.over:
        return max(0, estimated - window)
    live.emit(TokensMeasured(request.model, counted.tokens, counted.how, size.regions, size.base, job, call))
    return max(0, counted.tokens + request.max_tokens - window)
