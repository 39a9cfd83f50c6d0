"""What a kind of region has to answer, and the arithmetic that several kinds share.

Kinds are pure decisions: they read a region and say what should happen. What happens is an event, and only an applied
event changes the region.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias, final

import msgspec

from shoal.providers import Block, Segment
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._changes import EvictReason
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._render import Theme
from shoal.runtime.context._store import RegionState

Verdict: TypeAlias = Literal["accept", "refuse", "wait"]


@final
class Admission(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a write.

    Args:
        verdict: `accept`, `refuse`, or `wait` for the compaction in flight and ask again.
        evict: Ids that go first.
        reason: Why they go.
        replaces: Ids that the entry takes the place of.
        over_tokens: Of a refusal: by how many tokens it does not fit.
        order: A summary of these entries should be ordered; empty for none.
        why: Of a refusal: one sentence for the writer.
        over_budget: The region is over its budget by this group and stays so.
    """

    verdict: Verdict = "accept"
    evict: tuple[int, ...] = ()
    reason: EvictReason = "budget"
    replaces: tuple[int, ...] = ()
    over_tokens: int = 0
    order: tuple[int, ...] = ()
    why: str = ""
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
        in_flight: A summary of this region is being made.
        may_wait: The writer can wait for it.
        joins: The entry answers a call of the newest group and becomes part of it.
        record: The entry is part of the record of the conversation, which is never refused.
    """

    limits: Limits
    in_flight: bool = False
    may_wait: bool = False
    joins: bool = False
    record: bool = False


class RegionKind(Protocol):
    """How one kind of region keeps what it holds."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Say what becomes of *draft*. It is checked first and applied whole, or not at all."""
        ...

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Return why those entries cannot be released; `None` where they can."""
        ...

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Say what goes under window pressure, where *need_tokens* (estimated) are wanted."""
        ...

    def render(self, state: RegionState, theme: Theme) -> tuple[Block, ...] | tuple[Segment, ...]:
        """Return what the model sees; blocks, or segments for a kind that renders as messages."""
        ...


# --- arithmetic


def refuse(state: RegionState, over_tokens: int, why: str) -> Admission:
    """Return a refusal."""
    return Admission("refuse", over_tokens=over_tokens, why=f"`{state.region.name}` {why}")


def too_big(state: RegionState, draft: Draft, limits: Limits) -> Admission:
    """Return the refusal of an entry that is bigger than its region."""
    over = draft.tokens - limits.budget
    return refuse(
        state, over, f"holds {limits.budget} tokens at all and this is {draft.tokens}; write {over} tokens less"
    )


def full(state: RegionState, draft: Draft, limits: Limits) -> Admission:
    """Return the refusal of an entry for which there is no room."""
    over = state.charged + draft.tokens - limits.budget
    return refuse(
        state,
        over,
        f"is full: {state.charged} of {limits.budget} tokens, and this needs {draft.tokens}. "
        f"Release at least {over} tokens with `context_delete` first",
    )


def oldest_until(state: RegionState, goal_tokens: int, *, keep_newest: bool) -> tuple[tuple[int, ...], int]:
    """Return the ids of the oldest units that must go so that at most *goal_tokens* are left, and what they hold.

    Args:
        state: The region.
        goal_tokens: What may be left, 0 or more.
        keep_newest: The newest unit stays whatever it holds.
    """
    held = sum(chunk.tokens for chunk in state.chunks)
    gone: list[int] = []
    freed = 0
    last = state.newest if keep_newest else None
    for ids, tokens, _ in state.units():
        if held - freed <= goal_tokens:
            break
        if last is not None and last.entries[-1].entry_id in ids:
            break
        gone.extend(ids)
        freed += tokens
    return tuple(gone), freed


def roll(state: RegionState, draft: Draft, asked: Asked) -> Admission:
    """Admit *draft* into a region whose oldest entries make room, in one step down to `shed_to`."""
    limits = asked.limits
    if draft.tokens > limits.budget:
        return too_big(state, draft, limits)
    if state.tokens + draft.tokens <= limits.budget:
        return Admission()
    if state.region.admission == "reject":
        return full(state, draft, limits)
    gone, _ = oldest_until(state, max(0, limits.shed_to - draft.tokens), keep_newest=False)
    return Admission(evict=gone)


def shed_to_share(state: RegionState, limits: Limits, *, keep_newest: bool) -> Shrunk:
    """Shrink to `shed_to` of the budget or, where the region holds less, of what it holds."""
    goal = min(limits.shed_to, limits.shed_to * state.tokens // max(1, limits.budget))
    gone, freed = oldest_until(state, goal, keep_newest=keep_newest)
    return Shrunk(gone, freed)


def ids_of(units: Iterable[tuple[tuple[int, ...], int, int]]) -> tuple[int, ...]:
    """Return all entry ids of *units*, in order."""
    return tuple(entry_id for ids, _, _ in units for entry_id in ids)
