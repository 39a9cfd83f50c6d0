"""What a kind of region has to answer, and the arithmetic that several kinds share.

Kinds are pure decisions: they read a region and say what should happen. What happens is an event, and only an applied
event changes the region. Tokens are estimates throughout; what a person or a model reads is corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, final

import msgspec

from shoal.runtime.context._budget import Limits
from shoal.runtime.context._changes import EvictReason
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Rendered, Theme
from shoal.runtime.context._store import RegionState

Verdict: TypeAlias = Literal["accept", "refuse", "wait"]

_LISTED = 12
"""How many entries a refusal names."""


@final
class Admission(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a write.

    Args:
        verdict: `accept`, `refuse`, or `wait` for the compaction in flight and ask again.
        evict: Ids that go first, oldest first.
        reason: Why they go.
        replaces: Ids that the entry takes the place of.
        over_tokens: Of a refusal: by how many tokens it does not fit, corrected.
        order: A summary of these entries should be ordered; empty for none.
        why: Of a refusal: what stands in the way, for the writer.
        remedy: Of a refusal: what the writer can do; empty where nothing helps.
        over_budget: The region is over its budget by this group and stays so.
    """

    verdict: Verdict = "accept"
    evict: tuple[int, ...] = ()
    reason: EvictReason = "budget"
    replaces: tuple[int, ...] = ()
    over_tokens: int = 0
    order: tuple[int, ...] = ()
    why: str = ""
    remedy: str = ""
    over_budget: bool = False


@final
class Shrunk(msgspec.Struct, frozen=True, gc=False):
    """What a region gives up under pressure.

    Args:
        evict: Ids that go, oldest first.
        tokens: What they hold.
        order: Entries that should be summarised instead; empty for none.
    """

    evict: tuple[int, ...] = ()
    tokens: int = 0
    order: tuple[int, ...] = ()


NOTHING = Shrunk()


@final
class Asked(msgspec.Struct, frozen=True, gc=False):
    """How a write stands.

    Args:
        limits: The region's limits, in estimated tokens.
        ratio: What one estimated token really costs.
        replaces: Ids of the entries that the new one takes the place of.
        freed: What those hold.
        in_flight: A summary of this region is being made.
        may_wait: The writer can wait for it.
        joins: The entry answers a call of the newest group and becomes part of it.
        record: The entry is part of the record of the conversation, which is never refused.
        frees: Ids that the region's script frees for it.
    """

    limits: Limits
    ratio: float = 1.0
    replaces: frozenset[int] = frozenset()
    freed: int = 0
    in_flight: bool = False
    may_wait: bool = False
    joins: bool = False
    record: bool = False
    frees: tuple[int, ...] = ()

    def after(self, state: RegionState, draft: Draft) -> int:
        """Return what the region would hold with *draft* in it and nothing else gone."""
        return state.charged - self.freed + draft.tokens

    def fits(self, state: RegionState, draft: Draft) -> bool:
        """Say whether nothing has to go for *draft*."""
        return self.after(state, draft) <= self.limits.budget

    def most(self, state: RegionState) -> int:
        """Return what a single entry may hold: the budget, less the instructions that stand in the region."""
        return self.limits.budget - state.instruction_tokens

    def shown(self, tokens: int) -> int:
        """Return *tokens*, an estimate, as people and models read it."""
        return round(tokens * self.ratio)


class RegionKind(Protocol):
    """How one kind of region keeps what it holds."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Say what becomes of *draft*. It is checked first and applied whole, or not at all."""
        ...

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Return why those entries cannot be released; `None` where they can."""
        ...

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Say what goes where *need_tokens* (estimated) are wanted."""
        ...

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Return what the model sees of a region that is not empty, or that holds instructions."""
        ...


# --- refusing


def refuse(state: RegionState, why: str, remedy: str, over_tokens: int = 0) -> Admission:
    """Return a refusal."""
    return Admission("refuse", over_tokens=over_tokens, why=f"`{state.region.name}` {why}", remedy=remedy)


def too_big(state: RegionState, draft: Draft, asked: Asked) -> Admission:
    """Return the refusal of an entry that is bigger than its region."""
    tokens, most = asked.shown(draft.tokens), max(0, state.limits.budget - asked.shown(state.instruction_tokens))
    over = max(1, tokens - most)
    return refuse(state, f"holds {most} tokens at all, and this is {tokens}", f"Write {over} tokens less.", over)


def full(state: RegionState, draft: Draft, asked: Asked) -> Admission:
    """Return the refusal of an entry for which there is no room."""
    held, tokens, budget = asked.shown(state.charged - asked.freed), asked.shown(draft.tokens), state.limits.budget
    over = max(1, asked.shown(asked.after(state, draft)) - budget)
    return refuse(
        state,
        f"is full: {held} of {budget} tokens, and this needs {tokens}, which is {over} too many. "
        f"It holds: {contents(state, asked)}",
        f"Release at least {over} tokens with `context_delete` first.",
        over,
    )


def full_by_count(state: RegionState, asked: Asked, most: int, what: str) -> Admission:
    """Return the refusal of an entry past the most entries (or keys) that a region holds."""
    return refuse(
        state,
        f"is full: it holds {most} {what} at most. It holds: {contents(state, asked)}",
        "Release some with `context_delete` first.",
    )


def contents(state: RegionState, asked: Asked) -> str:
    """Return what is in a region, keys and sizes, oldest first."""
    named = [
        f"id {entry.entry_id}{'' if entry.key is None else f' key {entry.key!r}'} ({asked.shown(entry.tokens)})"
        for entry in state.all_entries()
    ]
    more = len(named) - _LISTED
    return ", ".join(named[:_LISTED]) + (f" and {more} more" if more > 0 else "") if named else "nothing to release"


# --- making room


def oldest_until(
    state: RegionState, goal_tokens: int, *, keep_newest: bool = False, leaving: frozenset[int] = frozenset()
) -> Shrunk:
    """Return the oldest units that must go so that at most *goal_tokens* are left.

    Args:
        state: The region.
        goal_tokens: What may be left, 0 or more; entries in *leaving* are not counted.
        keep_newest: The newest group stays whatever it holds.
        leaving: Ids of entries that go in any case.
    """
    held = state.charged - sum(entry.tokens for entry in state.all_entries() if entry.entry_id in leaving)
    gone: list[int] = []
    freed = 0
    for unit in state.units(keep_newest=keep_newest):
        if held - freed <= goal_tokens:
            break
        for group in unit:
            for entry in group.entries:
                if entry.entry_id not in leaving:
                    gone.append(entry.entry_id)
                    freed += entry.tokens
    return Shrunk(tuple(gone), freed)


def roll(state: RegionState, draft: Draft, asked: Asked) -> Admission:
    """Admit *draft* into a region whose oldest entries make room, in one step down to `shed_to`."""
    if draft.tokens > asked.most(state):
        return too_big(state, draft, asked)
    if asked.fits(state, draft):
        return Admission()
    if state.region.admission == "reject":
        return full(state, draft, asked)
    goal_tokens = max(0, asked.limits.shed_to - draft.tokens)
    return Admission(evict=oldest_until(state, goal_tokens, leaving=asked.replaces).evict)


def shed(state: RegionState, limits: Limits, need_tokens: int, *, keep_newest: bool = False) -> Shrunk:
    """Shrink to `shed_to` of the budget or, where the region holds less, of what it holds; further where need is.

    Args:
        state: The region.
        limits: Its limits, in estimated tokens.
        need_tokens: Tokens that are wanted.
        keep_newest: The newest group stays even where it alone is over the budget.
    """
    share = limits.shed_to * min(state.charged, limits.budget) // max(1, limits.budget)
    newest = state.newest
    keep = keep_newest or (newest is not None and newest.tokens <= limits.budget)
    return oldest_until(state, max(0, min(share, state.charged - need_tokens)), keep_newest=keep)
