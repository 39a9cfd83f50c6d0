"""Entering and leaving stages: layouts, instructions, resets, transforms, reports, and the run's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from shoal.blueprints import Edge
from shoal.errors import SpawnRefused
from shoal.providers import Message, Text
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._scripting import draft_of, frees, vetted
from shoal.runtime._side import drop_jobs, order_summaries, write
from shoal.runtime._words import own_word
from shoal.runtime.context import CONVERSATION, Draft, Order, RegionReset, RegionState, Said, estimate, prompt_of
from shoal.runtime.events import (
    GateBlocked,
    GateForced,
    Nudged,
    RunEnded,
    RunPaused,
    StageEntered,
    StageLeft,
    Status,
    TransitionChosen,
)
from shoal.runtime.state import RunState
from shoal.runtime.walk import Ask, Finish, Hold, Leave, abandoned

ERROR_REPORT = "error_report"
STUCK_REPORT = "stuck_report"
_PROTECTED = frozenset({"pinned", "compact_history", "hashmap", "checklist"})


# --- entering


async def enter(live: Live, stage: str, serving: Serving) -> None:
    """Enter *stage* under *serving*: what its layout sheds, then the entry, its resets, and its prompt as a nudge."""
    state = live.state
    program = state.program.stages[stage]
    window_tokens = serving.profile.window_tokens
    prompt = prompt_of(state.program.blueprint, program.stage) if program.stage.prompt_as == "nudge" else None
    said: Said | None = None
    if state.window is not None:
        said = await _vetted_word(live, prompt) if prompt else None
        freed = await frees(live, state.window.layout_calls(program.layout, window_tokens))
        changes = state.window.plan_layout(program.layout, serving.model, window_tokens, frees=freed)
        live.change((change, None) for change in changes)
    visit = state.visits.get(stage, 0) + 1
    intake = serving.profile.intake
    live.emit(
        StageEntered(stage, visit, serving.provider.name, serving.model, window_tokens, intake.types, intake.counting)
    )
    for region in program.layout.reset:
        held = state.view.states[region]
        if not held.empty:
            live.emit(RegionReset(region, held.tokens, "stage"))
    if prompt:
        # A run that begins had no window to ask about before, and its first events are journaled as one.
        _say(live, "instructions", prompt, await _vetted_word(live, prompt) if said is None else said)


async def enter_next(live: Live, stage: str) -> None:
    """Enter *stage* under the first that can serve it."""
    made, program = live.state.made_by, live.state.program.stages[stage]
    try:
        serving = live.host.serving(program.model, made.model, made.default_model)[0]
    except SpawnRefused as error:  # it was resumed where other providers are
        live.emit(RunPaused(f"stage {stage!r} has nobody to serve it: {error}", "resume it where that provider is"))
        return
    await enter(live, stage, serving)


async def say(live: Live, reason: str, text: str, *, answer: int = 0) -> None:
    """Put *text* into the conversation as the runtime's own word; *reason* is what it is counted under.

    *answer* is the seq of the answer that asked for it; 0 for none.
    """
    _say(live, reason, text, await _vetted_word(live, text), answer=answer)


def _say(live: Live, reason: str, text: str, said: Said, *, answer: int = 0) -> None:
    word = own_word(text)
    seq = live.emit(Nudged(reason, word.texts[0], answer))
    write(live, CONVERSATION, draft_of(word, "user_message", seq), said=said)


async def _vetted_word(live: Live, text: str) -> Said:
    """Return what the script of a custom conversation says of the runtime's own word *text*."""
    return await vetted(live, CONVERSATION, draft_of(own_word(text), "user_message"))


async def ask_again(live: Live, ask: Ask) -> None:
    """Ask the stage again for what it owes."""
    await say(live, ask.counted, ask.text)


async def hold(live: Live, held: Hold) -> None:
    """Keep the run in its stage because a gate asks for more."""
    said = await _vetted_word(live, held.text)
    live.emit(GateBlocked(held.target, held.requirement, held.attempt))
    _say(live, "gate", held.text, said)


# --- leaving


async def leave(live: Live, action: Leave) -> None:
    """Leave the stage: what was chosen, what was let through, a report where something went wrong, the transform."""
    state = live.state
    visit = state.visit
    assert visit is not None  # a stage is left from inside
    report = None
    if action.error and action.target is not None:
        report = await _reported(live, action.error, STUCK_REPORT if action.reason == "stuck" else ERROR_REPORT)
    note = None
    if state.routing is not None and action.target is not None:
        note = await _noted(live, f"The run goes on with the stage `{action.target}`.")
    if action.forced and action.target is not None:
        live.emit(GateForced(action.target, action.forced))
    transform = "direct" if action.edge is None else action.edge.transform
    left = StageLeft(
        visit.stage,
        visit.number,
        action.reason,
        visit.iterations,
        action.error,
        action.flags,
        abandoned(state) if action.reason == "done" else (),
    )
    live.emit(TransitionChosen(visit.stage, action.target, action.condition, action.by, transform))
    live.emit(left)
    if report is not None:
        report.put(live)
    if note is not None:
        note.put(live)
    if action.edge is not None:
        _transform(live, action.edge)


@final
class _Note(msgspec.Struct, frozen=True):
    """A text for a region, with what the region's script said of it; where it is not taken, *instead* is written."""

    region: str
    draft: Draft
    said: Said
    instead: _Note | None = None

    def put(self, live: Live) -> None:
        """Write it."""
        plan = write(live, self.region, self.draft, said=self.said)
        if plan.outcome == "refused" and self.instead is not None:
            self.instead.put(live)


async def _reported(live: Live, text: str, region: str) -> _Note:
    """Return *text* as a report for the next stage: in *region* where that is declared, else a note."""
    note = await _noted(live, text)
    if region not in live.state.view.states:
        return note
    message = Message("user", (Text.of(text),))
    draft = Draft("text", message, max(1, estimate(message)), writer="routing")
    return _Note(region, draft, await vetted(live, region, draft), note)


async def _noted(live: Live, text: str) -> _Note:
    """Return *text* as a short note of the runtime in the conversation."""
    draft = draft_of(own_word(text), "user_message")
    return _Note(CONVERSATION, draft, await vetted(live, CONVERSATION, draft))


def _transform(live: Live, edge: Edge) -> None:
    """Do to the unprotected regions what *edge* says."""
    states = live.state.view.states
    config = edge.transform_config
    if edge.transform == "clear":
        _clear(live, [s for s in states.values() if not _protected(s)])
    elif edge.transform == "compact":
        _compact(live, [s for s in states.values() if not _protected(s)])
    elif edge.transform == "custom" and config is not None:
        _clear(live, [states[n] for n in config.clear if not _protected(states[n], named=True)])
        _compact(live, [states[n] for n in config.compact if not _protected(states[n])])


def _protected(state: RegionState, *, named: bool = False) -> bool:
    """Say whether transforms leave a region alone; one that refuses writes may still be cleared by name."""
    region = state.region
    return (
        region.kind in _PROTECTED
        or (region.kind == "custom" and region.pinned)
        or (region.admission == "reject" and not named)
    )


def _clear(live: Live, states: Sequence[RegionState]) -> None:
    for state in states:
        if not state.empty:
            live.emit(RegionReset(state.region.name, state.tokens, "transform"))


def _compact(live: Live, states: Sequence[RegionState]) -> None:
    for state in states:
        ids = tuple(entry.entry_id for entry in state.all_entries())
        if ids and state.region.summarizable:
            order_summaries(live, [Order(state.region.name, ids)])


# --- the end


def finish(live: Live, action: Finish) -> None:
    """End the run."""
    end(live, action.status, action.reason)


def end(live: Live, status: Status, reason: str) -> None:
    """End the run with *status*; what lanes were doing for it is dropped."""
    drop_jobs(live)
    state = live.state
    live.emit(RunEnded(status, reason, output_seq(state), dict(state.flags)))


def output_seq(state: RunState) -> int:
    """Return the seq of the event that holds the run's answer; 0 for none."""
    return state.output_seq or state.last_text_seq
