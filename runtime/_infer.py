"""Asking a model: the prompt is made, measured, sent, and its reply journaled.

Every request passes the same guard, whatever it is for: it is sent only where prompt and reply fit the model's window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import msgspec

from shoal.blueprints import Edge
from shoal.errors import ContextOverflow, ProviderError, SpawnRefused
from shoal.providers import Completed, Message, ProviderState, Purpose, Request, Segment, Text, TokenCount
from shoal.runtime._ask import Standing, completion, exchanged, failed, overflow
from shoal.runtime._hooks import before_inference, seen
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._parts import made_by_model
from shoal.runtime._routed_parts import route_parts, vetted_parts
from shoal.runtime._scripting import draft_of, frees, kept_renders, render, vetted
from shoal.runtime._side import order_summaries, wait_for_summaries, write
from shoal.runtime._state import calls_of
from shoal.runtime.context import CONVERSATION, Draft, Order, Part, Prompt, assemble, estimate
from shoal.runtime.events import InferenceCompleted, InferenceStarted, ModelChanged, TokensMeasured

PRESSURE = 0.9
"""Share of the window, less the reserved reply, at which the cascade runs and to which it makes room."""
_FRAMING_TOKENS = 3
"""Estimate of what frames one message."""
_ROUTING_REPLY = 256
"""Longest answer to a routing question, in tokens."""
_MOST_ROUNDS = 8
"""How often making room may order summaries for one request."""
ROUTING = "routing"
"""Owner of a routing question in an attribution."""


@final
class Sending(msgspec.Struct, frozen=True, eq=False):
    """A request that may be sent: who serves it, the prompt it shows, its reply budget, and its estimated cost."""

    serving: Serving
    prompt: Prompt
    request: Request
    tokens: int


async def infer(live: Live) -> None:
    """Ask the model for the stage's next turn, and journal what comes of it."""
    await deliver_mail(live)
    if not await before_inference(live):
        return
    answered = await _answer(live, None)
    if answered is None:
        return
    payload, completed = answered
    reply = await seen(live, payload)
    state = completed.reply.state if reply.payload is payload else None
    routed = await vetted_parts(live, payload.parts)
    said = await vetted(live, CONVERSATION, _turn(live, reply.payload, state, 0, routed.staying))
    seq = live.emit(payload)
    for ran in reply.decided:
        live.emit(msgspec.structs.replace(ran, source=seq))
    staying = route_parts(live, seq, payload.parts, routed)
    if reply.payload.text or reply.payload.calls or staying:
        write(live, CONVERSATION, _turn(live, reply.payload, state, seq, staying), said=said)


def _turn(
    live: Live, payload: InferenceCompleted, state: ProviderState | None, seq: int, parts: tuple[int, ...]
) -> Draft:
    texts = (payload.text,) if payload.text else ()
    blobs = live.state.shelf.blobs(parts)
    message = Message("assistant", texts, calls_of(seq, payload), state=state, blobs=blobs)
    return draft_of(message, "assistant_turn", seq, parts=parts, intake=live.state.view.intake)


async def route(live: Live, edges: Sequence[Edge]) -> None:
    """Ask the model which of *edges* to take, and journal its answer; the question does not stay in the window."""
    stage = live.state.stage.stage
    lines = [f"- {edge.target}: {edge.hint}" if edge.hint else f"- {edge.target}" for edge in edges]
    if stage.allow_complete:
        lines.append("- DONE: the work is finished and nothing else has to follow")
    asked = stage.transition_prompt or "This stage is done. Which of these comes next?"
    text = f"{asked}\n" + "\n".join(lines) + "\nAnswer with one name from this list and nothing else."
    choices = {edge.target: edge.hint or "" for edge in edges}
    answered = await _answer(live, Question(Text.of(text), choices))
    if answered is not None:
        live.emit(answered[0])


@final
class Question(msgspec.Struct, frozen=True):
    """A question that stands behind the conversation in one request only, and the stages that may answer it."""

    text: Text
    choices: Mapping[str, str]


async def _answer(live: Live, question: Question | None) -> tuple[InferenceCompleted, Completed] | None:
    """Send the stage's request, with *question* behind it, and return the reply; `None` where there is none."""
    serving = live.serving()
    purpose: Purpose = "stage" if question is None else "routing"
    try:
        sending = await _fitting(live, serving, question)
    except ContextOverflow as error:
        live.emit(failed(purpose, 0, error))
        return None
    completed, started = await _asked(live, sending, purpose)
    if completed is None:
        return None
    made = await made_by_model(live, completed.reply.parts)
    seqs = tuple([live.keep(part) for part in made])
    payload = completion(completed, purpose, started, serving, sending.prompt.parts, _framing(sending.prompt), seqs)
    return payload, completed


async def deliver_mail(live: Live) -> None:
    """Put mail that waits into the window, where the stage takes it."""
    if not live.state.inbox or not live.state.stage.stage.accepts_messages:
        return
    for seq, mail in tuple(live.state.inbox):
        region = mail.region if mail.region in live.state.view.states else None
        message = Message("user", (mail.text,), blobs=live.state.shelf.blobs(mail.parts))
        draft = draft_of(message, "user_message", seq, parts=mail.parts, intake=live.state.view.intake)
        said = await vetted(live, region or CONVERSATION, draft)
        write(live, region or CONVERSATION, draft, said=said)


# --- the guard


async def _fitting(live: Live, serving: Serving, question: Question | None) -> Sending:
    """Return a request that fits the window, after making room where that is needed.

    Raises:
        ContextOverflow: It does not fit, whatever goes.
    """
    await render(live)
    await relieve(live, serving)
    sending = _prepared(live, serving, question)
    for last in (False, True):
        measured = await _measure(live, sending)
        if measured is None:
            return sending
        await relieve(live, serving, over_tokens=measured + sending.request.max_tokens - serving.profile.window_tokens)
        sending = _prepared(live, serving, question)
        if last:
            break
    raise overflow(serving, sending.tokens, wanted_reply(live, serving))


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


def _pressure(live: Live, serving: Serving) -> int:
    """Return by how many tokens the prompt passes the mark at which the cascade runs; 0 or less below it."""
    reserved = min(wanted_reply(live, serving), serving.profile.window_tokens // 4)
    mark = int((serving.profile.window_tokens - reserved) * PRESSURE)
    tokens = live.state.view_tokens
    offered = live.state.stage.offered.tokens
    # The cheap sum first: most turns are far from the mark, and a prompt is made later in any case. What a script shows
    # may be more than its region holds.
    if not live.state.view.scripted and round(tokens * live.state.now_calibration.ratio) + offered < mark // 2:
        return 0
    return corrected(live, assemble(live.state.view, live.state.stage.offered)) - mark + 1


def wanted_reply(live: Live, serving: Serving) -> int:
    """Return the reply that the stage asks for, in tokens: its own budget, never above the model's maximum."""
    model = live.state.stage.model
    asked = None if model is None else model.max_tokens
    return serving.profile.max_output_tokens if asked is None else min(asked, serving.profile.max_output_tokens)


def corrected(live: Live, prompt: Prompt) -> int:
    """Return what *prompt* costs: its regions' estimate corrected, with schemas and framing."""
    return live.state.now_calibration.corrected(prompt.tokens - prompt.tools.tokens, _base(prompt))


def _base(prompt: Prompt) -> int:
    """Return the estimate of what is in no region."""
    return prompt.tools.tokens + _framing(prompt)


def _framing(prompt: Prompt) -> int:
    return _FRAMING_TOKENS * sum(len(segment.messages) for segment in prompt.messages)


def _prepared(live: Live, serving: Serving, question: Question | None) -> Sending:
    state = live.state
    stage = state.stage
    prompt = assemble(state.view, stage.offered)
    if question is not None:
        prompt = _with_question(prompt, question)
    tokens = corrected(live, prompt)
    room = serving.profile.window_tokens - tokens
    if room < 1:
        raise overflow(serving, tokens, wanted_reply(live, serving))
    model = stage.model
    temperature = None if model is None else model.temperature
    if question is not None:
        temperature = 0.0
    wanted = wanted_reply(live, serving)
    request = Request(
        serving.model,
        prompt.system,
        prompt.messages,
        prompt.tail,
        prompt.tools,
        min(wanted if question is None else min(wanted, _ROUTING_REPLY), room),
        temperature if serving.profile.temperature else None,
        "stage" if question is None else "routing",
        live.run_id,
        Standing(live, None if question is None else question.choices),
        {} if model is None else model.parameters,
        live.host.limits.request_timeout_s if model is None or model.timeout_s is None else model.timeout_s,
        stages_ahead=stage.stages_ahead,
    )
    return Sending(serving, prompt, request, tokens)


def _with_question(prompt: Prompt, question: Question) -> Prompt:
    message = Message("user", (question.text,))
    segment = Segment(ROUTING, (message,), max(1, estimate(message)), closed=True)
    return msgspec.structs.replace(
        prompt,
        messages=(*prompt.messages, segment),
        tokens=prompt.tokens + segment.tokens,
        parts=(*prompt.parts, Part(ROUTING, segment.tokens, "messages")),
    )


async def _measure(live: Live, sending: Sending) -> int | None:
    """Return what the provider counts, where that shows that the request does not fit; `None` where it may be sent."""
    window = sending.serving.profile.window_tokens
    if sending.tokens + sending.request.max_tokens < window // 2:
        return None
    try:
        counted = await sending.serving.provider.count_tokens(sending.request)
    except ContextOverflow as error:
        return error.prompt_tokens or max(sending.tokens, window - sending.request.max_tokens + 1)
    except ProviderError:
        return None  # the request itself will say what is wrong, with retries and another candidate behind it
    if not counted.exact:
        return None
    _learn(live, sending, counted)
    return None if counted.tokens + sending.request.max_tokens <= window else counted.tokens


def _learn(live: Live, sending: Sending, counted: TokenCount) -> None:
    prompt = sending.prompt
    regions = prompt.tokens - prompt.tools.tokens
    live.emit(TokensMeasured(sending.request.model, counted.tokens, counted.how, regions, _base(prompt)))


# --- sending


async def _asked(live: Live, sending: Sending, purpose: Purpose) -> tuple[Completed | None, int]:
    """Send a request and return the reply with the seq of its start; journals what went wrong and returns `None`.

    Where the provider cannot serve at all, the stage goes on with its next candidate.
    """
    serving = sending.serving
    started = live.emit(
        InferenceStarted(
            purpose,
            serving.provider.name,
            serving.model,
            sending.prompt.chars,
            sending.tokens,
            sending.request.digest.hex(),
            sending.request.max_tokens,
            0,
            sending.prompt.tokens - sending.prompt.tools.tokens,
            _base(sending.prompt),
            kept_renders(live),
        )
    )
    try:
        return await exchanged(live, serving, sending.request, purpose, started), started
    except ProviderError as error:
        if live.over:
            raise
        await _failed(live, serving, purpose, started, error)
        return None, started


async def _failed(live: Live, serving: Serving, purpose: Purpose, started: int, error: ProviderError) -> None:
    name = type(error).__name__
    live.emit(failed(purpose, started, error))
    if name == "ContextOverflow":
        return  # another provider's window is another stage's business: the stage's own edge decides
    following = _next_candidate(live, serving)
    if following is not None:
        window = following.profile.window_tokens
        layout = live.state.stage.layout
        freed = await frees(live, live.state.view.layout_calls(layout, window))
        changes = live.state.view.plan_layout(layout, following.model, window, frees=freed)
        live.change((change, None) for change in changes)
        intake = following.profile.intake
        named = (following.provider.name, following.model, window, name)
        live.emit(ModelChanged(*named, intake.types, intake.counting))


def _next_candidate(live: Live, serving: Serving) -> Serving | None:
    try:
        candidates = live.candidates()
    except SpawnRefused:
        return None
    labels = [candidate.label for candidate in candidates]
    if serving.label not in labels:
        return None
    rest = candidates[labels.index(serving.label) + 1 :]
    return rest[0] if rest else None
