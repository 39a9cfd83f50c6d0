"""One request of a lane: its model is asked about some material, and the run pays."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.blueprints import LaneSettings
from shoal.errors import ProviderError
from shoal.providers import Block, Message, Purpose, Request, Segment, Text
from shoal.runtime._ask import Standing, completion, exchanged, failed, overflow
from shoal.runtime._budget import Worst
from shoal.runtime._host import Serving
from shoal.runtime._lanes import JobFailed
from shoal.runtime._live import Live
from shoal.runtime._measure import Size, measure
from shoal.runtime.context import FRAMING_TOKENS, OVERHEAD, Part, estimate, estimate_text
from shoal.runtime.events import InferenceCompleted, InferenceStarted


def wanted(live: Live, job_id: int) -> bool:
    """Say whether the job is still under way, in a life of the run that goes on."""
    return not live.gone and job_id in live.state.jobs


async def asked(
    live: Live,
    job_id: int,
    purpose: Purpose,
    settings: LaneSettings,
    owner: str,
    material: str,
    content: str | None = None,
) -> str:
    """Ask the lane's model about *material* and return what it says.

    Args:
        live: The run.
        job_id: The job.
        purpose: What for.
        settings: The lane's.
        owner: Who pays for the material.
        material: What is shown.
        content: The same without the runtime's own words, for providers that quote it; `None` where it has none.

    Raises:
        JobFailed: The request does not fit, or the provider gave no reply.
    """
    if not wanted(live, job_id):
        raise JobFailed("dropped", "nobody waits for it any more", final=True)
    serving = _lane_serving(live, settings)
    request = _request(live, serving, purpose, settings, owner, material, content)
    parts = (
        *(Part(b.owner, b.tokens) for b in request.system),
        *(Part(s.owner, s.tokens, "messages") for s in request.messages),
    )
    size = _size(request)
    over = await measure(live, serving, request, size, job=job_id)
    tokens = size.corrected(live, serving)
    if over > 0:
        raise JobFailed("overflow", str(overflow(serving, tokens, request.max_tokens)), final=True)
    if not wanted(live, job_id):
        raise JobFailed("dropped", "nobody waits for it any more", final=True)
    async with live.host.home.purses.aside(live, Worst.of(serving, tokens, request.max_tokens)) as accounts:
        if accounts is None:
            raise JobFailed("budget", "the run's budget is reached", final=True)
        sent = InferenceStarted(
            purpose,
            serving.provider.name,
            serving.model,
            len(material),
            tokens,
            request.digest.hex(),
            request.max_tokens,
            job_id,
        )
        payload = await _answered(live, serving, request, sent, parts)
        for account in accounts:
            account.spend(payload)
        if wanted(live, job_id):
            live.emit(payload)
    return str(payload.text)


async def _answered(
    live: Live, serving: Serving, request: Request, sent: InferenceStarted, parts: Sequence[Part]
) -> InferenceCompleted:
    """Send *request* of the job that *sent* belongs to, and return its reply as the journal keeps it.

    Raises:
        JobFailed: The provider gave none.
    """
    started = live.emit(sent)
    try:
        completed = await exchanged(live, serving, request, sent.purpose, started)
    except ProviderError as error:
        if wanted(live, sent.job):
            live.emit(failed(sent.purpose, started, error))
        raise JobFailed("provider", str(error)) from error
    return completion(completed, sent.purpose, started, serving, parts, 0)


def _size(request: Request) -> Size:
    """Return what a lane's request is estimated at: its material, and the prompt that says what to do with it."""
    material = sum(segment.tokens for segment in request.messages)
    return Size(material, sum(block.tokens for block in request.system) + FRAMING_TOKENS * len(request.messages))


def _lane_serving(live: Live, settings: LaneSettings) -> Serving:
    serving = live.serving()
    if settings.model is None:
        return serving
    for candidate in live.host.serving(live.state.stage.model, None, live.state.made_by.default_model):
        if candidate.provider.name == settings.model.provider:
            model = settings.model.model or candidate.model
            return Serving(candidate.provider, model, candidate.provider.profile(model))
    return serving


def _request(
    live: Live,
    serving: Serving,
    purpose: Purpose,
    settings: LaneSettings,
    owner: str,
    material: str,
    content: str | None,
) -> Request:
    prompt = Text.of(settings.prompt or "")
    system = (Block(OVERHEAD, (prompt,), estimate_text(prompt)),) if prompt else ()
    message = Message("user", (Text.of(material),))
    segment = Segment(owner, (message,), max(1, estimate(message)), closed=True)
    return Request(
        serving.model,
        system,
        (segment,),
        max_tokens=serving.reply_tokens(settings.max_tokens),
        temperature=settings.temperature if serving.profile.temperature else None,
        purpose=purpose,
        run_id=live.run_id,
        situation=Standing(live, material=content),
        timeout_s=settings.timeout_s or live.host.limits.request_timeout_s,
    )
