"""Asking a model: the prompt is made, measured, sent, and its reply journaled.

Every request passes the same guard, whatever it is for: it is sent only where prompt and reply fit the model's window.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.blueprints import Edge
from shoal.errors import ContextOverflow, ProviderError, SpawnRefused
from shoal.providers import Completed, Message, ProviderState, Purpose, Text, ToolCall
from shoal.runtime._ask import completion, exchanged, failed
from shoal.runtime._budget import Account, Worst
from shoal.runtime._guard import Question, Sending, fitting
from shoal.runtime._hooks import before_inference, seen
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._measure import count_with
from shoal.runtime._own_tools import rescan
from shoal.runtime._parts import made_by_model
from shoal.runtime._routed_parts import route_parts, vetted_parts
from shoal.runtime._scripting import draft_of, frees, kept_renders, vetted
from shoal.runtime._side import write
from shoal.runtime.context import CONVERSATION, NOTHING_SAID, Draft, Prompt
from shoal.runtime.events import InferenceCompleted, InferenceStarted, ModelChanged, ScriptFailed, VolatilityBroken
from shoal.runtime.state import BUILD, calls_of


async def infer(live: Live) -> None:
    """Ask the model for the stage's next turn, and journal what comes of it."""
    await count_with(live, live.serving())
    if live.state.program.blueprint.dynamic_tools:
        await rescan(live)
    if live.state.left_out:
        complain(live)
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
    said = NOTHING_SAID
    if live.state.view.scripted:
        calls = calls_of(0, reply.payload)
        said = await vetted(live, CONVERSATION, _turn(live, reply.payload, calls, state, 0, routed.staying))
    seq = live.emit(payload)
    for ran in reply.decided:
        live.emit(msgspec.structs.replace(ran, source=seq))
    staying = route_parts(live, seq, payload.parts, routed)
    if reply.payload.text or reply.payload.calls or staying:
        assert live.state.turn is not None  # the reply has just begun it
        calls = live.state.turn.calls
        write(live, CONVERSATION, _turn(live, reply.payload, calls, state, seq, staying), said=said)


def _turn(
    live: Live,
    payload: InferenceCompleted,
    calls: tuple[ToolCall, ...],
    state: ProviderState | None,
    seq: int,
    parts: tuple[int, ...],
) -> Draft:
    texts = (payload.text,) if payload.text else ()
    blobs = live.state.shelf.blobs(parts)
    message = Message("assistant", texts, calls, state=state, blobs=blobs)
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


async def _answer(live: Live, question: Question | None) -> tuple[InferenceCompleted, Completed] | None:
    """Send the stage's request, with *question* behind it, and return the reply; `None` where there is none."""
    serving = live.serving()
    purpose: Purpose = "stage" if question is None else "routing"
    try:
        sending = await fitting(live, serving, question)
    except ContextOverflow as error:
        live.emit(failed(purpose, 0, error))
        return None
    if not live.state.made_by.budgets:
        return await _billed(live, sending, purpose, ())
    worst = Worst.of(serving, sending.tokens, sending.request.max_tokens)
    async with live.host.home.purses.aside(live, worst) as accounts:
        return None if accounts is None else await _billed(live, sending, purpose, accounts)


async def _billed(
    live: Live, sending: Sending, purpose: Purpose, accounts: Sequence[Account]
) -> tuple[InferenceCompleted, Completed] | None:
    """Send a request and return the reply, billed to its owners and to *accounts*; `None` where there is none."""
    completed, started = await _asked(live, sending, purpose)
    if completed is None:
        return None
    prompt, parts = sending.prompt, completed.reply.parts
    seqs = tuple([live.keep(part) for part in await made_by_model(live, parts)]) if parts else ()
    payload = completion(completed, purpose, started, sending.serving, prompt.parts, sending.framing, seqs)
    for account in accounts:
        account.spend(payload)
    return payload, completed


def complain(live: Live) -> None:
    """Journal of each component that raised that it is left out, once a run."""
    state = live.state
    for name, why in tuple(state.left_out.items()):
        if name not in state.complained:
            live.emit(ScriptFailed(name, BUILD, "raised", why))


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


# --- sending


async def _asked(live: Live, sending: Sending, purpose: Purpose) -> tuple[Completed | None, int]:
    """Send a request and return the reply with the seq of its start; journals what went wrong and returns `None`.

    Where the provider cannot serve at all, the stage goes on with its next candidate.
    """
    serving = sending.serving
    if purpose == "stage":
        for region in live.state.unsteady():
            live.emit(VolatilityBroken(region, behind(sending.prompt, region)))
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
            sending.size.regions,
            sending.size.base,
            kept_renders(live),
            sending.wanted if sending.wanted > sending.request.max_tokens else 0,
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
    if isinstance(error, ContextOverflow):
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


def behind(prompt: Prompt, region: str) -> int:
    """Return what *prompt* costs from the first part of *region* on."""
    parts = prompt.parts
    first = next((at for at, part in enumerate(parts) if part.owner == region), len(parts))
    return sum([part.tokens for part in parts[first:]])
