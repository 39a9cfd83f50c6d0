"""The results of calls: put where they belong, in the conversation or in a region, and files kept beside."""

from __future__ import annotations

from shoal.providers import Blob, Message, Text
from shoal.runtime._live import Live
from shoal.runtime._scripting import vetted
from shoal.runtime._side import order_summaries, wait_for_summaries, write
from shoal.runtime._tracking import (
    WRITES,
    Tracked,
    forgotten,
    is_left_out,
    read_text,
    tracked,
    tracked_read,
    written_file,
)
from shoal.runtime.context import (
    CONVERSATION,
    NOTHING_SAID,
    Destination,
    Draft,
    Plan,
    Said,
    cut_to,
    destination,
    estimate,
    materialise,
    pointer,
)
from shoal.runtime.state import Turn


async def write_results(live: Live) -> None:
    """Put the results of the newest reply's calls where they belong, in call order."""
    turn = live.state.turn
    assert turn is not None  # decided so
    open_calls = [index for index in range(len(turn.calls)) if index not in turn.answered]
    places = {index: _place(live, turn, index) for index in open_calls}
    files = {index: kept for index in open_calls if (kept := await _track(live, turn, index, places[index]))}
    inline = [index for index, place in places.items() if place.region == CONVERSATION and index not in files]
    drafts = {index: _inline(live, turn, index) for index in inline}
    costs = [draft.tokens for draft in drafts.values()]
    shares = dict(zip(drafts, live.state.view.shares(CONVERSATION, costs), strict=True))
    for index, place in places.items():
        if index in drafts:
            most = shares[index] if place.most_tokens is None else min(shares[index], place.most_tokens)
            draft = _shortened(live, turn, index, drafts[index], most)
            said = await vetted(live, CONVERSATION, draft, joins=True)
            write(live, CONVERSATION, draft, joins=True, said=said)
        elif index in files:
            await _point(live, turn, index, *files[index])
        else:
            await _route(live, turn, index, place)


def _place(live: Live, turn: Turn, index: int) -> Destination:
    """Return where a result goes; an error, which the model has to read where it called, stays there."""
    result = turn.results[index]
    place = destination(live.state.stage.layout, live.state.stage.stage.tool_routing, turn.calls[index].name)
    nothing = not (result.text or result.parts)
    kept = result.is_error or nothing or place.region not in live.state.view.states
    return Destination(CONVERSATION, place.most_tokens) if kept else place


def _inline(live: Live, turn: Turn, index: int) -> Draft:
    """Return a result as it stands in the conversation: its text, its note behind it, and its stored parts."""
    result = turn.results[index]
    note = Text.of(f"\n{result.note}") if result.note else None
    texts = (result.text,) if note is None else (result.text, note)
    message = _tool_message(turn, index, texts, live.state.shelf.blobs(result.parts))
    cost = max(1, estimate(message, live.state.view.intake))
    return Draft("tool_result", message, cost, turn.written[index], text=note, parts=result.parts)


def _tool_message(turn: Turn, index: int, texts: tuple[Text, ...], blobs: tuple[Blob, ...] = ()) -> Message:
    call, result = turn.calls[index], turn.results[index]
    return Message("tool", texts, call_id=call.call_id, tool_name=call.name, is_error=result.is_error, blobs=blobs)


def _shortened(live: Live, turn: Turn, index: int, draft: Draft, most_tokens: int) -> Draft:
    """Return *draft* cut to *most_tokens*: its text is cut, its note stays, of its stored parts the names are left."""
    if draft.tokens <= most_tokens:
        return draft
    whole = _tool_message(turn, index, (turn.results[index].text,), draft.message.blobs)
    cost = estimate(whole, live.state.view.intake)
    shorter = cut_to(whole, cost, max(0, most_tokens - (draft.tokens - cost)))
    behind = shorter.marker if draft.text is None else Text(shorter.marker.body + draft.text.body)
    message = materialise(whole, shorter.chars, behind)
    return Draft("tool_result", message, max(1, estimate(message)), draft.source, cut=shorter.chars, text=behind)


async def _route(live: Live, turn: Turn, index: int, place: Destination) -> None:
    """Put a result into its region, and a pointer to it into the conversation."""
    result = turn.results[index]
    said = Message("user", (result.text,), blobs=live.state.shelf.blobs(result.parts))
    target = live.state.view.states[place.region]
    # A hashmap keeps nothing without a key, and a second result of a tool must not take the first one's place.
    key = target.free_key(turn.calls[index].name) if target.region.kind == "hashmap" else None
    cost = max(1, estimate(said, live.state.view.intake))
    routed = Draft("text", said, cost, turn.written[index], key=key, writer="routing", parts=result.parts)
    heard = await vetted(live, place.region, routed, most_tokens=place.most_tokens, refusable=True)
    plan = await _planned_waiting(live, place.region, routed, place.most_tokens, heard)
    draft = _pointer(live, turn, index, place.region, plan)
    about = await vetted(live, CONVERSATION, draft, joins=True)
    if about is not NOTHING_SAID:  # a script was asked, and the region may have changed meanwhile
        plan = _planned(live, place.region, routed, place.most_tokens, heard, may_wait=False)
        draft = _pointer(live, turn, index, place.region, plan)
    # Both at once: a run that died between them would write the result into its region again.
    live.change(plan.changes)
    write(live, CONVERSATION, draft, joins=True, said=about)


async def _track(live: Live, turn: Turn, index: int, place: Destination) -> tuple[str, Plan] | None:
    """Keep the file that a call read or wrote; return where the text of a read stands instead of the conversation."""
    wrote = tracked(live, turn, index, WRITES)
    if wrote is not None:
        await _keep(live, wrote, written_file(turn, index, wrote))
    read = tracked_read(live, turn, index, place)
    plan = None if read is None else await _keep(live, read, read_text(turn, index, read))
    return None if read is None or plan is None or plan.outcome == "refused" else (read.region, plan)


async def _keep(live: Live, kept: Tracked, draft: Draft) -> Plan | None:
    """Keep the text of a file; `None` where it is too long, and then an older one goes too."""
    if is_left_out(draft, kept):
        live.change((change, None) for change in forgotten(live, kept))
        return None
    return await write_waiting(live, kept.region, draft)


async def _point(live: Live, turn: Turn, index: int, region: str, plan: Plan) -> None:
    """Put a pointer into the conversation, in the place of a result that went into *region* as *plan* says."""
    draft = _pointer(live, turn, index, region, plan)
    write(live, CONVERSATION, draft, joins=True, said=await vetted(live, CONVERSATION, draft, joins=True))


def _pointer(live: Live, turn: Turn, index: int, region: str, plan: Plan) -> Draft:
    stage = live.state.stage
    reads, releases = "context_read" in stage.tools, "context_delete" in stage.tools
    note = turn.results[index].note
    text = Text.of(pointer(stage.layout, region, plan, reads_regions=reads, releases=releases, note=note))
    message = _tool_message(turn, index, (text,))
    cost = max(1, estimate(message))
    return Draft("tool_result", message, cost, turn.written[index], cut=0, text=text)


async def write_waiting(
    live: Live, region: str, draft: Draft, most_tokens: int | None = None, *, refusable: bool = False
) -> Plan:
    """Write *draft*, after waiting once for a summary of the region where there is no room; return what came of it.

    The script of a custom region may refuse it where it is *refusable*.
    """
    said = await vetted(live, region, draft, most_tokens=most_tokens, refusable=refusable)
    plan = await _planned_waiting(live, region, draft, most_tokens, said)
    live.change(plan.changes)
    return plan


async def _planned_waiting(live: Live, region: str, draft: Draft, most_tokens: int | None, said: Said) -> Plan:
    plan = _planned(live, region, draft, most_tokens, said, may_wait=True)
    if plan.outcome == "wait":
        await wait_for_summaries(live, [region])
        plan = _planned(live, region, draft, most_tokens, said, may_wait=False)
    return plan


def _planned(live: Live, region: str, draft: Draft, most_tokens: int | None, said: Said, *, may_wait: bool) -> Plan:
    busy = region in live.state.busy_regions()
    plan = live.state.view.plan_write(
        region, draft, most_tokens=most_tokens, in_flight=busy, may_wait=may_wait, said=said
    )
    order_summaries(live, plan.orders)
    return plan
