"""How the prompt of an append-only model goes on: with what is said again at its end, or anew.

Planning reads and returns; what is planned is journaled, and applying it is what `Epoch` does.
"""

from __future__ import annotations

from itertools import takewhile
from typing import final

import msgspec

from shoal.providers import Block, Text, ToolSet
from shoal.runtime.context._assemble import Prompt, assemble, shown
from shoal.runtime.context._changes import AmendmentForm, EpochReason, PromptAmended, PromptChange, PromptEpoch
from shoal.runtime.context._entry import estimate_text
from shoal.runtime.context._epoch import Epoch, lifted_digest, standing_digest
from shoal.runtime.context._layout import CONVERSATION
from shoal.runtime.context._store import RegionState
from shoal.runtime.context._told import NOTHING, Told, said_of, sections, stands_for
from shoal.runtime.context._window import Window


@final
class Ways(msgspec.Struct, frozen=True, gc=False):
    """How an append-only model can be told something behind its conversation.

    Args:
        provider: Name of its provider; with *model* it says whose thinking is meant.
        model: The model.
        mid_system: It takes system messages within the conversation.
        turn_system: It takes system messages that count for one turn only.
    """

    provider: str
    model: str
    mid_system: bool = False
    turn_system: bool = False

    @property
    def form(self) -> AmendmentForm:
        """How it is told what changed for good."""
        return "system" if self.mid_system else "user"


def plan_prompt(
    epoch: Epoch | None,
    window: Window,
    tools: ToolSet,
    ways: Ways,
    *,
    first: bool,
    most_tokens: int | None = None,
) -> tuple[PromptChange, ...]:
    """Return what has to be journaled before the next request of *window* goes out.

    Args:
        epoch: What was sent so far; `None` where nothing was, to this model.
        window: The window.
        tools: The tools on offer.
        ways: How the model can be told something.
        first: No model was sent an epoch of this run before.
        most_tokens: Above this estimate, tools included, what was said again is dropped; `None` for no limit.
    """
    reason: EpochReason | None = ("first" if first else "model") if epoch is None else _over(epoch, window, tools)
    if epoch is None or reason is not None:
        return _anew(epoch, window, tools, ways, reason or "first")
    changes = _amendments(epoch, window, ways)
    said = sum([change.tokens for change in changes if change.form in ("system", "user")])
    if epoch.amended + said > _rewrite_tokens(epoch, window):
        return _anew(epoch, window, tools, ways, "cost")
    if most_tokens is not None and epoch.amended + said and planned_tokens(epoch, window, tools, changes) > most_tokens:
        return _anew(epoch, window, tools, ways, "pressure")
    return changes


def planned_tokens(epoch: Epoch | None, window: Window, tools: ToolSet, changes: tuple[PromptChange, ...]) -> int:
    """Return the estimate of the request that *changes* lead to, tools included."""
    if epoch is None or (changes and isinstance(changes[0], PromptEpoch)):
        return assemble(window, tools).tokens
    said = [change for change in changes if isinstance(change, PromptAmended)]
    again = any(change.form == "turn" for change in said)
    prompt = epoch.prompt(window)
    before = sum([part.tokens for part in prompt.parts if part.section == "tail"]) if again else 0
    return prompt.tokens - before + sum([change.tokens for change in said])


def _over(epoch: Epoch, window: Window, tools: ToolSet) -> EpochReason | None:
    """Return what ends *epoch*; `None` where it goes on."""
    if epoch.broken is not None:
        return epoch.broken
    if tools.digest != epoch.tools.digest:
        return "tools"
    if window.instructions != epoch.instructions:
        return "instructions"
    if lifted_digest(window) != epoch.lifted:
        return "parts"
    if standing_digest(window) != epoch.standing:
        return "components"
    seen = dict(sections(window))
    gone = (name for name, told in epoch.told.items() if told.digest and seen.get(name) != told.section)
    return "layout" if any(gone) else None


# --- anew


def _anew(
    epoch: Epoch | None, window: Window, tools: ToolSet, ways: Ways, reason: EpochReason
) -> tuple[PromptChange, ...]:
    fresh = assemble(window, tools)
    silent_from, rewritten = 0, fresh.tokens
    if epoch is not None and tools.digest == epoch.tools.digest:
        silent_from, rewritten = _behind_the_edit(epoch, window, fresh)
    entries = window.states[CONVERSATION].all_entries()
    dropped = [
        entry
        for entry in entries
        if entry.entry_id >= silent_from
        and entry.message.state is not None
        and (entry.message.state.provider, entry.message.state.model) == (ways.provider, ways.model)
        and (epoch is None or not epoch.is_silent(entry.entry_id))
    ]
    started = PromptEpoch(reason, rewritten, len(dropped), silent_from)
    return (started, *_tail(None, window, ways))


def _behind_the_edit(epoch: Epoch, window: Window, fresh: Prompt) -> tuple[int, int]:
    """Return the conversation's first entry behind the edit, 0 for all, and the tokens from the edit on."""
    same = _same(epoch.system, fresh.system)
    if same < max(len(epoch.system), len(fresh.system)):
        tokens = sum([block.tokens for block in fresh.system[same:]])
        return 0, tokens + sum([part.tokens for part in fresh.parts if part.section in ("messages", "tail")])
    before = epoch.sent_messages
    after = [message for segment in fresh.messages for message in segment.messages]
    held = list(window.states[CONVERSATION].all_entries())
    offset = len(after) - len(held)
    kept = 0
    for position, message in enumerate(after[: len(before)]):
        entry = held[position - offset] if position >= offset else None
        silent = entry is not None and epoch.is_silent(entry.entry_id)
        if before[position].digest != (msgspec.structs.replace(message, state=None) if silent else message).digest:
            break
        kept = position + 1
    behind = held[max(0, kept - offset) :]
    tokens = sum([entry.tokens for entry in behind])
    if kept < offset:
        return 0, sum([part.tokens for part in fresh.parts if part.section in ("messages", "tail")])
    # A summary stands in front of entries with lower ids.
    ids = [entry.entry_id for entry in behind]
    return min(ids, default=window.states[CONVERSATION].next_id), tokens


def _same(before: tuple[Block, ...], after: tuple[Block, ...]) -> int:
    """Return how many blocks from the front are equal."""
    equal = (one.digest == other.digest for one, other in zip(before, after, strict=False))
    return len(tuple(takewhile(bool, equal)))


def _rewrite_tokens(epoch: Epoch, window: Window) -> int:
    """Return the estimate of what a new epoch would send anew: everything from the first region that changed on."""
    tokens = 0
    moved = False
    for name, section in sections(window):
        made = shown(window.states[name], window.layout.theme, window.intake)
        moved = moved or section != "system" or epoch.first.get(name) != stands_for(window, name)
        if moved:
            tokens += made.tokens
    return tokens


# --- at the end


def _amendments(epoch: Epoch, window: Window, ways: Ways) -> tuple[PromptAmended, ...]:
    """Return what is said again, or for the first time: entries, then regions in prompt order, the tail last.

    Entries are messages of a user, and behind a system message none may stand.
    """
    entries: list[PromptAmended] = []
    changes: list[PromptAmended] = []
    for name, section in sections(window):
        told = epoch.told.get(name)
        if section == "tail" or name == CONVERSATION or (told.digest if told else b"") == stands_for(window, name):
            continue
        if section == "messages":
            entries.append(_entries(window.states[name], told))
        else:
            changes.append(_now(window, name, told, ways))
    tail = _tail(epoch, window, ways)
    changes = entries + changes
    if not changes and epoch.turn and not epoch.has_pending(window) and all(change.text is None for change in tail):
        return ()  # the request before this one failed, and ended with just that
    return (*changes, *tail)


def _entries(state: RegionState, told: Told | None) -> PromptAmended:
    since = 0 if told is None else told.next_id
    entries = [entry for entry in state.all_entries() if entry.entry_id >= since]
    tokens = sum([entry.tokens for entry in entries])
    return PromptAmended(state.region.name, "entries", None, tokens, tuple([entry.entry_id for entry in entries]))


def _now(window: Window, name: str, told: Told | None, ways: Ways) -> PromptAmended:
    state, theme = window.states[name], window.layout.theme
    added = state.cut == "grows" and told is not None and bool(told.digest) and not told.rewritten
    since = told.next_id if added and told is not None else 0
    body = said_of(window, name, since)
    text = Text(theme.now(state.region).body + (body or NOTHING).body)
    return PromptAmended(name, ways.form, text, estimate_text(text))


def _tail(epoch: Epoch | None, window: Window, ways: Ways) -> tuple[PromptAmended, ...]:
    """Return what stands behind the conversation: every time where it counts for one turn, else when it changed."""
    theme = window.layout.theme
    changes: list[PromptAmended] = []
    for name in window.layout.tail:
        state = window.states[name]
        told = None if epoch is None else epoch.told.get(name)
        last = None if told is None else told.text
        body = said_of(window, name)
        if not body and last is None:
            continue
        if ways.turn_system:
            if body:
                text = Text(theme.heading(state.region).body + body.body)
                changes.append(PromptAmended(name, "turn", None if text == last else text, estimate_text(text)))
        elif told is None or told.digest != stands_for(window, name):
            heading = theme.heading(state.region) if last is None else theme.now(state.region)
            text = Text(heading.body + (body or NOTHING).body)
            changes.append(PromptAmended(name, ways.form, text, estimate_text(text)))
    return tuple(changes)
