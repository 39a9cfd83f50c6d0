"""One request to a provider, whatever it is for: sent through pool and breaker, with retries, and its bill split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import final

import msgspec

from shoal.errors import ContextOverflow, PartialReply, ProviderError, ProviderSetup, ProviderUnavailable
from shoal.providers import Completed, Purpose, Request, Situation, exchange
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._words import is_own_word
from shoal.runtime.context import Part, attribute, cost_of, rates_of
from shoal.runtime.events import CallMade, InferenceCompleted, InferenceFailed, InferenceRetried
from shoal.runtime.tools import SUBMIT_OUTPUT


async def exchanged(live: Live, serving: Serving, request: Request, purpose: Purpose, started: int) -> Completed:
    """Send *request* through the pools of its model and provider, and the provider's breaker, with retries.

    Raises:
        ProviderError: Its leaf says what went wrong.
    """
    host = live.host
    if host.traced is not None:
        trace = host.traced(live.run_id, live.state.made_by.root, started, serving.model)
        request = msgspec.structs.replace(request, trace=trace)
    breaker = host.breaker(serving.provider.name)
    if not breaker.allow():
        raise _left_alone(serving, breaker.why)
    try:
        async with host.pools.way(serving.provider.name, serving.model, live.run_id):
            completed = await exchange(
                serving.provider,
                request,
                policy=host.retry,
                on_retry=partial(_retried, live, purpose, started),
                on_delta=partial(host.delta, live.run_id) if purpose == "stage" else None,
            )
    except ProviderError as error:
        breaker.record(error)
        raise
    except BaseException:
        breaker.give_back()  # cancelled, or a bug: either says nothing about the provider
        raise
    breaker.record(None)
    return host.secrets.in_reply(completed)


def _retried(live: Live, purpose: Purpose, started: int, attempt: int, error: ProviderError, delay_s: float) -> None:
    if not live.over:  # a lane still asks for a run that has ended
        name, said = type(error).__name__, str(error)
        live.emit(InferenceRetried(purpose, started, attempt, name, said, delay_s, _cost(error)))


def _left_alone(serving: Serving, why: ProviderError | None) -> ProviderError:
    """Return what keeps a request back while its provider is left alone: what has to be set up, or that it is down."""
    name, model = serving.provider.name, serving.model
    if isinstance(why, ProviderSetup):
        message = f"not asked again, since it would be refused as before: {why}"
        return ProviderSetup(message, remedy=why.remedy, provider=name, model=model)
    return ProviderUnavailable(
        f"{name}: it failed repeatedly and is left alone for a while; resume the run later, or name another provider",
        provider=name,
        model=model,
    )


def failed(purpose: Purpose, started: int, error: ProviderError) -> InferenceFailed:
    """Return *error* as the run's event."""
    remedy = error.remedy if isinstance(error, ProviderSetup) else ""
    return InferenceFailed(purpose, started, type(error).__name__, str(error), error.retryable, remedy, _cost(error))


def _cost(error: ProviderError) -> Decimal | None:
    return error.cost_usd if isinstance(error, PartialReply) else None


def completion(
    completed: Completed,
    purpose: Purpose,
    started: int,
    serving: Serving,
    parts: Sequence[Part],
    overhead_tokens: int,
    made: tuple[int, ...] = (),
) -> InferenceCompleted:
    """Return *completed* as the run's event, with its bill split over the prompt's owners."""
    usage = completed.usage
    tokens: tuple[int, ...] = msgspec.structs.astuple(usage)
    reply = completed.reply
    price = serving.profile.price
    return InferenceCompleted(
        purpose,
        started,
        reply.text,
        tuple(CallMade(call.name, call.arguments, call.vendor_id or call.call_id) for call in reply.calls),
        tokens,
        None if price is None else cost_of(rates_of(price, usage.input), tokens[:5]),
        attribute(parts, usage, price, overhead_tokens=overhead_tokens),
        completed.finish,
        "" if completed.model in ("", serving.model) else completed.model,
        reply.reasoning,
        None if reply.state is None else reply.state.data,
        completed.request_id,
        completed.simulated,
        made,
        completed.estimated,
    )


def overflow(serving: Serving, tokens: int, reply: int) -> ContextOverflow:
    profile = serving.profile
    key = profile.window_key or f'[models."{serving.model}"] context'
    return ContextOverflow(
        f"the prompt of {tokens} tokens and a reply of {reply} do not fit the window of {profile.window_tokens} tokens "
        f"({profile.window_source}); give the regions smaller budgets, lower the stage's `max_tokens`, "
        f"or set `{key}` where the window is declared too small",
        prompt_tokens=tokens,
        reply_tokens=reply,
        window_tokens=profile.window_tokens,
        provider=serving.provider.name,
        model=serving.model,
    )


# --- for providers that follow a policy


@final
class Standing:
    """Says where in its blueprint a request stands, when a provider asks.

    Args:
        live: The run.
        choices: Of a routing question: the stages that may be named, with their hints.
        material: Of a summary: what is to be summarised, without the runtime's own words.
    """

    __slots__ = ("_choices", "_live", "_material")

    def __init__(self, live: Live, choices: Mapping[str, str] | None = None, material: str | None = None) -> None:
        self._live = live
        self._material = material
        self._choices = choices or {}

    def __call__(self) -> Situation:
        state = self._live.state
        stage, visit = state.stage, state.visit
        assert visit is not None  # a request comes from inside a visit
        view = state.view
        held = {
            name: "\n\n".join(said)
            for name in stage.layout.regions
            if (said := [entry.text for entry in view.states[name].all_entries() if not is_own_word(entry)])
        }
        owed = stage.stage.require_output and not visit.output_submitted
        task = state.made_by.task
        return Situation(
            state.program.blueprint.name,
            stage.name,
            visit.iterations,
            stage.policy,
            held,
            "" if task is None else str(task),
            SUBMIT_OUTPUT if owed and SUBMIT_OUTPUT in stage.tools else None,
            self._choices,
            self._material,
        )
