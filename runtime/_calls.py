"""The calls of one reply: through the gates, run, and their results put where they belong.

A call is journaled before it runs. What a killed process had started and not finished is run again only where that
does no harm; otherwise the model is told that its effect is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread

from shoal.blueprints import tool_name
from shoal.providers import Blob, Message, Text, ToolCall
from shoal.runtime._agents import agent_call
from shoal.runtime._failures import failure_text
from shoal.runtime._live import Live
from shoal.runtime._output import submit
from shoal.runtime._parts import bring_in, kept, looked_at
from shoal.runtime._people import approved, ask_person
from shoal.runtime._scripting import heard, vetted
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
    OPERATIONS,
    Destination,
    Draft,
    Origin,
    Plan,
    Said,
    cut_to,
    destination,
    estimate,
    materialise,
    operate,
    pointer,
)
from shoal.runtime.events import ToolCallCompleted, ToolCallStarted
from shoal.runtime.program import loadable
from shoal.runtime.state import Turn
from shoal.runtime.tools import (
    AGENTS,
    CONTEXT_ATTACH,
    FAN_OUT,
    LOAD_TOOLS,
    QUESTIONS,
    SHELL,
    SUBMIT_OUTPUT,
    LineRules,
    Tool,
    ToolResult,
    Verdict,
    hunt,
    judge,
    mark_of,
    with_line,
)

_INTERRUPTED = (
    "[error] the process died while this call ran; whether it had an effect is unknown. Check before you call it again"
)


async def run_calls(live: Live) -> None:
    """Run the open calls of the newest reply; each is journaled as it ends."""
    turn = live.state.turn
    assert turn is not None  # decided so
    to_run: list[tuple[int, Tool, Mapping[str, Any]]] = []
    for index in turn.open_calls:
        call = turn.calls[index]
        before = _vetoed(turn, index) or _over_the_limit(live, index) or _interrupted(live, turn, index, call)
        if before is not None:
            await end_leftovers(live, call, before)
            live.emit(before)
            continue
        if live.state.parked(index):
            continue
        stage = live.state.stage
        verdict = judge(stage.tools, call.name, str(call.arguments), live.permitted, stage.deferred)
        if verdict.tool is not None and verdict.tool.name == SHELL:
            verdict = await with_line(verdict, line_rules(live), live.host.threads)
        if verdict.asks and approved(live, turn, index, verdict) is not True:
            continue
        gated = stopped(verdict, turn.seq, index)
        if gated is not None or verdict.tool is None:
            live.emit(gated or ToolCallCompleted(turn.seq, index, Text.of(verdict.said), is_error=True))
        elif verdict.tool.call is None:
            await _own_call(live, turn, index, verdict.tool, verdict.args)
        else:
            to_run.append((index, verdict.tool, verdict.args))
    if to_run:
        await _run_all(live, turn, to_run)


def line_rules(live: Live) -> LineRules:
    """Return what decides about shell lines of the stage."""
    return live.host.permissions.lines(live.state.stage.stage, live.state.program.blueprint, live.context.workdir)


def _vetoed(turn: Turn, index: int) -> ToolCallCompleted | None:
    """Return the result of a call that a hook of the stage stopped."""
    if turn.vetoed is None:
        return None
    said = f"[denied] a hook of this stage stopped the calls of this turn: {turn.vetoed}"
    return ToolCallCompleted(turn.seq, index, Text.of(said), is_error=True, gate="hook")


def _over_the_limit(live: Live, index: int) -> ToolCallCompleted | None:
    most = live.host.limits.max_calls_per_turn
    turn = live.state.turn
    assert turn is not None  # see `run_calls`
    if index < most:
        return None
    said = f"[error] a turn runs at most {most} calls, and this was number {index + 1}; make it again in your next turn"
    return ToolCallCompleted(turn.seq, index, Text.of(said), is_error=True)


def _interrupted(live: Live, turn: Turn, index: int, call: ToolCall) -> ToolCallCompleted | None:
    """Return the result of a call that an earlier process started and that must not simply run again."""
    tool = live.state.stage.tools.get(call.name)
    return interrupted(tool, turn.seq, index) if index in turn.started else None


def interrupted(tool: Tool | None, source: int, index: int) -> ToolCallCompleted | None:
    """Return the result of a call of *tool* that a dead process was in the middle of; `None` where it may run again."""
    if tool is not None and tool.effects.repeatable:
        return None
    return ToolCallCompleted(source, index, Text.of(_INTERRUPTED), is_error=True, interrupted=True)


async def end_leftovers(live: Live, call: ToolCall, result: ToolCallCompleted) -> None:
    """End what a shell line of an earlier process still does: the model is to look at what will not change any more."""
    if result.interrupted and tool_name(call.name) == SHELL:
        await anyio.to_thread.run_sync(hunt, mark_of(live.run_id), limiter=live.host.threads)


def stopped(verdict: Verdict, source: int, index: int) -> ToolCallCompleted | None:
    """Return the result of a call that a gate stopped; `None` for one that may run."""
    if verdict.gate is None:
        return None
    return ToolCallCompleted(source, index, Text.of(verdict.said), is_error=True, gate=verdict.gate)


# --- calls that the run answers itself


async def _own_call(live: Live, turn: Turn, index: int, tool: Tool, args: Mapping[str, Any]) -> None:
    if tool.name in QUESTIONS:
        answer = ask_person(live, turn, index, tool)
        if answer is not None:
            _complete(live, turn, index, answer)
    elif tool.name in AGENTS:
        result = await agent_call(live, turn, index, args)
        if result is not None:
            _complete(live, turn, index, result)
    elif tool.name in OPERATIONS:
        brought = await bring_in(live, args) if tool.name == CONTEXT_ATTACH else args
        if isinstance(brought, ToolResult):
            _complete(live, turn, index, brought)
        else:
            await _operate(live, turn, index, tool.name, brought)
    elif tool.name == SUBMIT_OUTPUT:
        result = await submit(live, turn.seq, index, args)
        _complete(live, turn, index, result)
    elif tool.name == LOAD_TOOLS:
        _complete(live, turn, index, _load(live, args))
    else:
        said = f"`{FAN_OUT}` must be the only call of its turn; call it alone"
        _complete(live, turn, index, ToolResult.error(said))


def _load(live: Live, args: Mapping[str, Any]) -> ToolResult:
    """Say which deferred tools are on offer now; that the call is journaled puts them there."""
    stage = live.state.stage
    known, unknown = loadable(stage, args["names"])
    missing = f"there is no deferred tool {', '.join(map(repr, unknown))}" if unknown else ""
    if not known:
        return ToolResult.error(f"{missing}; there is {', '.join(f'`{name}`' for name in stage.deferred)}")
    said = f"You can call {', '.join(f'`{name}`' for name in known)} from your next turn on."
    return ToolResult.of(f"{said} But {missing}." if missing else said)


async def _operate(live: Live, turn: Turn, index: int, name: str, args: Mapping[str, Any]) -> None:
    origin = Origin(turn.seq, index)
    may_wait = True
    said = Said(refusable=True)
    while True:
        busy = live.state.busy_regions()
        answer = operate(live.state.view, name, args, origin, in_flight=busy, may_wait=may_wait, said=said)
        order_summaries(live, answer.orders)
        if answer.call is not None:
            said = await heard(live, answer.call, said)
            continue
        if answer.wait is None:
            break
        await wait_for_summaries(live, [answer.wait])
        may_wait = False
    live.change(answer.changes)
    live.emit(ToolCallCompleted(turn.seq, index, Text.of(answer.text), answer.is_error))


def _complete(live: Live, turn: Turn, index: int, result: ToolResult) -> None:
    live.emit(ToolCallCompleted(turn.seq, index, result.text, result.is_error, result.note))


# --- calls that reach outside


async def _run_all(live: Live, turn: Turn, calls: Sequence[tuple[int, Tool, Mapping[str, Any]]]) -> None:
    for index, _, _ in calls:
        if index not in turn.started:
            live.emit(ToolCallStarted(turn.seq, index))
    await live.durable()
    if live.over:  # ended while its calls were written down: none of them runs
        return
    if len(calls) == 1:
        await run_one(live, turn.seq, *calls[0])
        return
    async with anyio.create_task_group() as tasks:
        for index, tool, args in calls:
            tasks.start_soon(run_one, live, turn.seq, index, tool, args)


async def run_one(live: Live, source: int, index: int, tool: Tool, args: Mapping[str, Any]) -> None:
    """Run call *index* of the reply *source*, and journal its result."""
    assert tool.call is not None  # the run's own tools are answered elsewhere
    async with live.host.pools.get("tools").slot(live.run_id):
        try:
            result = await tool.call(live.context, args)
        except Exception as exc:  # noqa: BLE001 - whatever a tool raises is for the model to read
            result = ToolResult.error(failure_text(exc))
    looked = await looked_at(live.host, tool.name, result)
    if not live.over:  # a tool that could not be stopped may come back after the run has ended
        text, parts = kept(live, looked)
        said = looked.result
        live.emit(ToolCallCompleted(source, index, text, said.is_error, said.note, parts=parts))


# --- results


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
