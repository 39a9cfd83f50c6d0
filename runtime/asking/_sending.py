"""The requests of a call: each is measured, sent, and its reply journaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from shoal.errors import ContextOverflow, HardCapExceeded, ProviderError, ProviderSetup
from shoal.providers import Request
from shoal.runtime._ask import completion, exchanged, failed, overflow
from shoal.runtime._budget import Account, Worst
from shoal.runtime._call_prompt import call_prompt
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._measure import Size, measure, size_of
from shoal.runtime._parts import made_by_model
from shoal.runtime.asking._asking import Asking, candidates
from shoal.runtime.context import Prompt
from shoal.runtime.events import InferenceStarted, RunPaused
from shoal.runtime.state import Call


async def send(asking: Asking, call: Call) -> None:
    await asking.running.ready()
    live, asked = asking.live, asking.asked
    serving = candidates(asking)[0]
    prompt = call_prompt(live.state, call, asked.tools.offered)
    _keep_hard_cap(live, prompt)
    size = size_of(prompt)
    tokens = size.corrected(live, serving)
    wanted = serving.reply_tokens(asked.max_tokens)
    request = Request(
        serving.model,
        prompt.system,
        prompt.messages,
        prompt.tail,
        prompt.tools,
        min(wanted, max(1, serving.profile.window_tokens - tokens)),
        None,
        "stage",
        live.run_id,
        timeout_s=live.host.limits.request_timeout_s,
    )
    over = await measure(live, serving, request, size, call=call.seq)
    if over:
        raise overflow(serving, tokens, wanted)
    sending = _Sending(serving, prompt, request, size, tokens, wanted)
    worst = Worst.of(serving, tokens, request.max_tokens)
    async with live.host.home.purses.aside(live, worst) as accounts:
        if accounts is not None:  # else the run is paused, or over
            await _exchange(asking, call, sending, accounts)


@final
@dataclass(frozen=True, slots=True)
class _Sending:
    """A request that may be sent."""

    serving: Serving
    prompt: Prompt
    request: Request
    size: Size
    tokens: int
    wanted: int


def _keep_hard_cap(live: Live, prompt: Prompt) -> None:
    knobs = live.state.stage.layout.knobs
    if knobs is not None and prompt.chars > knobs.hard_cap:
        raise HardCapExceeded(
            f"the request has {prompt.chars} characters and the most is {knobs.hard_cap}; have the function see less "
            "with `render_range`, or ask for less"
        )


async def _exchange(asking: Asking, call: Call, sending: _Sending, accounts: Sequence[Account]) -> None:
    """Send a request and journal what comes of it."""
    live, serving, request = asking.live, sending.serving, sending.request
    started = live.emit(
        InferenceStarted(
            "stage",
            serving.provider.name,
            serving.model,
            sending.prompt.chars,
            sending.tokens,
            request.digest.hex(),
            request.max_tokens,
            0,
            sending.size.regions,
            sending.size.base,
            (),
            sending.wanted if sending.wanted > request.max_tokens else 0,
            call.seq,
        )
    )
    try:
        completed = await exchanged(live, serving, request, "stage", started)
    except ProviderError as error:
        live.emit(failed("stage", started, error))
        if not _goes_on(asking, serving, error):
            raise
        return
    made = completed.reply.parts
    seqs = tuple([live.keep(part) for part in await made_by_model(live, made)]) if made else ()
    framing = sending.prompt.framing_tokens
    payload = completion(completed, "stage", started, serving, sending.prompt.parts, framing, seqs)
    for account in accounts:
        account.spend(payload)
    asking.running.emit(payload)


def _goes_on(asking: Asking, serving: Serving, error: ProviderError) -> bool:
    """Say whether the call goes on though *serving* failed it: with the next who may serve, or once a person helps."""
    if isinstance(error, ContextOverflow):
        return False
    asking.tried.append(serving.label)
    if candidates(asking):
        return True
    if not isinstance(error, ProviderSetup):
        return False
    asking.tried.clear()
    asking.live.emit(RunPaused("needs setup", f"{str(error).rstrip('.')}. {error.remedy}".strip()))
    asking.live.host.home.moved(asking.live)
    return True
