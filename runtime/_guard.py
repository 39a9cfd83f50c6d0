"""The guard that every request of a stage passes: it is sent only where prompt and reply fit the model's window.

What does not fit is made to fit, once by what the estimate says and once more by what the provider counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import msgspec

from shoal.errors import HardCapExceeded
from shoal.providers import Message, Request, Segment, Text
from shoal.runtime._ask import Standing, overflow
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._measure import Size, measure, size_of
from shoal.runtime._scripting import frees, kept_renders, render
from shoal.runtime._side import order_summaries, wait_for_summaries
from shoal.runtime.context import (
    CONVERSATION,
    Order,
    Part,
    Prompt,
    PromptChange,
    PromptEpoch,
    View,
    Ways,
    assemble,
    estimate,
    plan_prompt,
    planned_tokens,
)

PRESSURE = 0.9
"""Share of the window, less the reserved reply, at which the cascade runs and to which it makes room."""
_ROUTING_REPLY = 256
"""Longest answer to a routing question, in tokens."""
_MOST_ROUNDS = 8
"""How often making room may order summaries for one request."""
ROUTING = "routing"
"""Owner of a routing question in an attribution."""


@final
class Sending(msgspec.Struct, frozen=True, eq=False):
    """A request that may be sent: who serves it, the prompt it shows, its reply budget, and its estimated cost.

    Args:
        serving: Who serves it.
        prompt: What it shows.
        request: The request.
        size: What it is estimated at.
        tokens: The same, corrected.
        framing: What of it frames the messages.
        wanted: The reply budget that was asked for; the request has less where the window leaves less.
    """

    serving: Serving
    prompt: Prompt
    request: Request
    size: Size
    tokens: int
    framing: int
    wanted: int


@final
class Question(msgspec.Struct, frozen=True):
    """A question that stands behind the conversation in one request only, and the stages that may answer it."""

    text: Text
    choices: Mapping[str, str]


async def fitting(live: Live, serving: Serving, question: Question | None) -> Sending:
    """Return a request that fits the window, after making room where that is needed.

    Raises:
        ContextOverflow: It does not fit, whatever goes.
    """
    await render(live)
    await relieve(live, serving)
    await keep_caps(live)
    for last in (False, True):
        sending = _prepared(live, serving, question)
        over = await measure(live, serving, sending.request, sending.size)
        if not over and sending.request.max_tokens < sending.wanted:
            return _prepared(live, serving, question)  # what was counted may leave the reply more than the estimate did
        if not over:
            return sending
        if not last:
            await relieve(live, serving, over_tokens=over)
    raise overflow(serving, sending.size.corrected(live, serving), sending.wanted)


def wanted_reply(live: Live, serving: Serving) -> int:
    """Return the reply that the stage asks for, in tokens: its own budget, never above the model's maximum."""
    model = live.state.stage.model
    return serving.reply_tokens(None if model is None else model.max_tokens)


# --- making room


async def keep_caps(live: Live) -> None:
    """Compact old turns where the request has more characters than the stage's soft cap.

    Raises:
        HardCapExceeded: It has more than the hard cap, whatever went.
    """
    view = live.state.view
    knobs, conversation = view.layout.knobs, view.states[CONVERSATION]
    if knobs is None or conversation.view is None:
        return
    seen: View = conversation.view
    if live.state.prompt().chars > knobs.soft_cap:
        old = seen.compactable(conversation)
        in_vain = live.state.in_vain >= 0 and seen.edges(conversation).turns < live.state.in_vain + max(1, knobs.tail)
        if old and not in_vain:
            order_summaries(live, [Order(CONVERSATION, old)])
            await wait_for_summaries(live, [CONVERSATION])
    chars = live.state.prompt().chars
    if chars > knobs.hard_cap:
        raise HardCapExceeded(
            f"the request of stage {live.state.stage.name!r} has {chars} characters and `hard_cap_chars` is "
            f"{knobs.hard_cap}; raise it, or have the stage do less"
        )


async def relieve(live: Live, serving: Serving, *, over_tokens: int = 0) -> None:
    """Make room where the window is under pressure, or where a measured request was *over_tokens* too big."""
    waited: list[Order] = []
    for _ in range(_MOST_ROUNDS):
        need = max(_pressure(live, serving), over_tokens)
        if need <= 0:
            return
        estimated = max(1, round(need / live.state.now_calibration.ratio))
        freed = await frees(live, live.state.view.pressure_calls(estimated))
        changes, orders = live.state.view.plan_pressure(estimated, waited=waited, frees=freed)
        live.change((change, None) for change in changes)
        await render(live)
        if not orders:
            return
        over_tokens = 0
        order_summaries(live, orders)
        waited.extend(orders)
        await wait_for_summaries(live, [order.region for order in orders])


def mark(live: Live, serving: Serving) -> int:
    """Return the corrected tokens that a prompt may have before the window counts as nearly full."""
    window = serving.profile.window_tokens
    reserved = min(wanted_reply(live, serving), window // 4)
    return int((window - reserved) * PRESSURE)


def _pressure(live: Live, serving: Serving) -> int:
    """Return by how many tokens the prompt passes the mark at which the cascade runs; 0 or less below it."""
    state = live.state
    most = mark(live, serving)
    said = 0 if state.epoch is None else state.epoch.amended
    # The cheap sum first: most turns are far from the mark, and a prompt is made later in any case. What a script shows
    # may be more than its region holds.
    if (
        not state.view.scripted
        and round((state.view_tokens + said) * state.now_calibration.ratio) + state.stage.offered.tokens < most // 2
    ):
        return 0
    tokens = planned_tokens(state.epoch, state.view, state.stage.offered, outgoing(live, serving))
    base = size_of(state.prompt()).base
    return Size(tokens - state.stage.offered.tokens, base).corrected(live, serving) - most + 1


# --- the prompt


def outgoing(live: Live, serving: Serving) -> tuple[PromptChange, ...]:
    """Return what has to be journaled before the stage's next request: nothing, for a model that forgets what it saw.

    Where the window is nearly full, what was said again at the end gives way first: a new epoch says it once.
    """
    profile, state = serving.profile, live.state
    if not in_epochs(live, serving):
        return ()
    offered = state.stage.offered
    base = size_of(state.prompt()).base
    most = max(0, round((mark(live, serving) - base) / state.now_calibration.ratio)) + offered.tokens
    ways = Ways(serving.provider.name, serving.model, profile.mid_system, profile.turn_system)
    return plan_prompt(state.epoch, state.view, offered, ways, first=not state.epochs, most_tokens=most)


def prompt_of(live: Live, serving: Serving) -> Prompt:
    """Return what the stage's next request shows, after journaling how it goes on from the one before."""
    if not in_epochs(live, serving):
        return assemble(live.state.view, live.state.stage.offered)
    for change in outgoing(live, serving):
        starts = isinstance(change, PromptEpoch)
        live.emit(msgspec.structs.replace(change, renders=kept_renders(live)) if starts else change)
    return live.state.prompt()


def in_epochs(live: Live, serving: Serving) -> bool:
    """Say whether what was sent must not change: a script that shows the conversation brings no thinking back."""
    return serving.profile.append_only and live.state.view.layout.regions[CONVERSATION].kind == "sliding_window"


def _prepared(live: Live, serving: Serving, question: Question | None) -> Sending:
    state = live.state
    stage = state.stage
    prompt = prompt_of(live, serving)
    if question is not None:
        prompt = _with_question(prompt, question)
    size = size_of(prompt)
    tokens = size.corrected(live, serving)
    # A prompt that is estimated to fill the window is still counted: the estimate may be too high.
    room = max(1, serving.profile.window_tokens - tokens)
    wanted = wanted_reply(live, serving)
    model = stage.model
    temperature = None if model is None else model.temperature
    if question is not None:
        temperature, wanted = 0.0, min(wanted, _ROUTING_REPLY)
    request = Request(
        serving.model,
        prompt.system,
        prompt.messages,
        prompt.tail,
        prompt.tools,
        min(wanted, room),
        temperature if serving.profile.temperature else None,
        "stage" if question is None else "routing",
        live.run_id,
        Standing(live, None if question is None else question.choices),
        {} if model is None else model.parameters,
        live.host.limits.request_timeout_s if model is None or model.timeout_s is None else model.timeout_s,
        stages_ahead=stage.stages_ahead,
        allowed_tools=stage.allowed,
    )
    return Sending(serving, prompt, request, size, tokens, size.base - prompt.tools.tokens, wanted)


def _with_question(prompt: Prompt, question: Question) -> Prompt:
    message = Message("user", (question.text,))
    segment = Segment(ROUTING, (message,), max(1, estimate(message)), closed=True)
    return msgspec.structs.replace(
        prompt,
        messages=(*prompt.messages, segment),
        tokens=prompt.tokens + segment.tokens,
        parts=(*prompt.parts, Part(ROUTING, segment.tokens, "messages")),
    )
