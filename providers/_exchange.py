"""One request, asked until it is answered or its budget is spent."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, cast, final

import anyio

from shoal.errors import ConfigInvalid, PartialReply, ProviderBusy, ProviderError, ProviderUnavailable
from shoal.providers._values import Completed, Provider, ReasoningDelta, Request, TextDelta, Usage

OnRetry: TypeAlias = Callable[[int, ProviderError, float], None]
OnDelta: TypeAlias = Callable[[TextDelta | ReasoningDelta], None]


class Pace(Protocol):
    """Holds requests back, as `RateLimit` does."""

    async def admit(self, tokens: int) -> int:
        """Wait until a request of about *tokens* may go out, and return what it counts for."""
        ...

    def settle(self, charged: int, usage: Usage | None) -> None:
        """Correct what was counted, once it is known what came of it."""
        ...


class Paced(Protocol):
    """A provider whose vendor takes so many requests and tokens a minute."""

    def rate_limit(self, model: str) -> Pace:
        """Return what paces requests to *model*."""
        ...


def _no_jitter() -> float:
    return 0.0


@final
@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a request is asked again, and after how long.

    Args:
        attempts: The most attempts, the first included, 1 or more.
        blip_s: Seconds before the second attempt after a blip (network, server error); doubles with each further one.
        capacity_s: Seconds before each further attempt where the vendor is busy; the last one repeats.
        vendor_cap_s: The longest wait that a vendor may ask for; its word wins over ours up to here.
        budget_s: The most seconds that one request waits between its attempts, all waits together.
        jitter: Share of a wait that is added to it, drawn anew for each wait, 0 or more.
    """

    attempts: int = 4
    blip_s: float = 1.0
    capacity_s: tuple[float, ...] = (15.0, 30.0, 60.0)
    vendor_cap_s: float = 60.0
    budget_s: float = 300.0
    jitter: Callable[[], float] = _no_jitter

    def __post_init__(self) -> None:
        if self.attempts < 1 or not self.capacity_s:
            raise ConfigInvalid(
                f"{self!r} allows no attempt; set `attempts` to 1 or more, and one wait in `capacity_s`"
            )

    def delay_s(self, attempt: int, error: ProviderError, waited_s: float) -> float | None:
        """Return how long to wait before the next attempt; `None` where there is to be none.

        Args:
            attempt: The attempt that failed, 1 or more.
            error: How it failed.
            waited_s: What this request has waited so far.
        """
        if not error.retryable or attempt >= self.attempts:
            return None
        asked_s = error.retry_after_s if isinstance(error, ProviderBusy) else None
        if asked_s is not None:
            wait_s = min(asked_s, self.vendor_cap_s)
        elif isinstance(error, ProviderBusy):
            wait_s = self.capacity_s[min(attempt, len(self.capacity_s)) - 1]
        else:
            wait_s = self.blip_s * 2 ** (attempt - 1)
        wait_s *= 1 + self.jitter()
        return wait_s if waited_s + wait_s <= self.budget_s else None


@final
class _Attempt:
    """What arrived of one attempt."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning_bytes = 0

    def take(self, delta: TextDelta | ReasoningDelta) -> None:
        if isinstance(delta, TextDelta):
            self.text.append(delta.text)
        else:
            self.reasoning_bytes += len(delta.text.encode("utf-8", "replace"))

    @property
    def arrived(self) -> bool:
        return bool(self.text or self.reasoning_bytes)

    def output_tokens(self) -> int:
        """Return about how many tokens had been written."""
        return math.ceil((len("".join(self.text).encode("utf-8", "replace")) + self.reasoning_bytes) / 4)


async def exchange(
    provider: Provider,
    request: Request,
    *,
    policy: RetryPolicy | None = None,
    clock: Callable[[], float] = anyio.current_time,
    on_retry: OnRetry | None = None,
    on_delta: OnDelta | None = None,
) -> Completed:
    """Ask *provider* for the reply to *request*, again where that may help, no faster than its rate limit lets us.

    A reply is what `Completed` holds. Deltas are progress: those of an attempt that was cut are void once *on_retry*
    was called, and its tool calls never run. Each attempt that reached the vendor may have been billed.

    Args:
        provider: Who is asked.
        request: What is asked; the same for each attempt.
        policy: How often, and after how long.
        clock: Monotonic seconds.
        on_retry: Called with the number of each failed attempt that is repeated, its error, and the wait in seconds.
            The error is a `PartialReply` where something had arrived: it knows what that may have cost.
        on_delta: Called with each delta as it arrives.

    Raises:
        PartialReply: Something had arrived, and the policy gives no further attempt.
        ProviderError: Nothing had arrived; the leaf says what went wrong. `attempt` is the number of attempts made.
    """
    policy = policy or RetryPolicy()
    waited_s = 0.0
    number = 1
    partial: _Attempt | None = None
    # Asked for by its name: a check against the protocol would cost more than the rest of this function.
    limits = cast("Paced | None", provider if hasattr(provider, "rate_limit") else None)
    pace = None if limits is None else limits.rate_limit(request.model)
    while True:
        attempt = _Attempt()
        try:
            if pace is None:
                return await _ask(provider, request, attempt, on_delta)
            return await _paced(pace, provider, request, attempt, on_delta)
        except ProviderError as error:
            error.attempt = number
            partial = attempt if attempt.arrived else partial
            delay_s = policy.delay_s(number, error, waited_s)
            if delay_s is None and error.retryable and partial is not None:
                # What an earlier attempt may have cost was told when it was repeated.
                raise _partial(provider, request, partial, error, billed=attempt is partial) from error
            if delay_s is None:
                raise
            if on_retry is not None:
                on_retry(number, _partial(provider, request, attempt, error) if attempt.arrived else error, delay_s)
        began = clock()
        await anyio.sleep(delay_s)
        waited_s += max(clock() - began, delay_s)
        number += 1


async def _paced(
    pace: Pace, provider: Provider, request: Request, attempt: _Attempt, on_delta: OnDelta | None
) -> Completed:
    charged = await pace.admit(_sent_tokens(request))
    try:
        completed = await _ask(provider, request, attempt, on_delta)
    except ProviderError:
        if not attempt.arrived:
            pace.settle(charged, None)
        raise
    pace.settle(charged, completed.usage)
    return completed


def _sent_tokens(request: Request) -> int:
    """Return about how many tokens *request* shows."""
    sent = request.tools.tokens + sum([block.tokens for block in request.system])
    return sent + sum([segment.tokens for segment in request.messages])


async def _ask(provider: Provider, request: Request, attempt: _Attempt, on_delta: OnDelta | None) -> Completed:
    with anyio.move_on_after(request.timeout_s):
        events = provider.stream(request)
        try:
            async for event in events:
                if isinstance(event, Completed):
                    return event
                attempt.take(event)
                if on_delta is not None:
                    on_delta(event)
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()  # which lets go of its connection
        raise _unavailable(provider, request, "the stream ended without a reply; try again")
    raise _unavailable(provider, request, f"no complete reply within {request.timeout_s!r} s; raise `timeout_s`")


def _unavailable(provider: Provider, request: Request, what: str) -> ProviderUnavailable:
    return ProviderUnavailable(f"{provider.name}: {what}", provider=provider.name, model=request.model)


def _partial(
    provider: Provider, request: Request, partial: _Attempt, error: ProviderError, *, billed: bool = True
) -> PartialReply:
    """Return what is left of an attempt that was cut, with what it may have cost."""
    price = provider.profile(request.model).price
    usage = Usage(uncached=_sent_tokens(request), output=partial.output_tokens())
    return PartialReply(
        f"{provider.name}: the reply was cut, and attempt {error.attempt!r} ended so: {error}; resume later, "
        "or allow more attempts",
        text="".join(partial.text),
        cost_usd=price.cost(usage) if billed and price is not None else None,
        provider=provider.name,
        model=request.model,
        request_id=error.request_id,
        status=error.status,
        attempt=error.attempt,
    )
