"""`hashmap`: one entry a key; a write to a key takes its place, and the least recently written keys go first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import msgspec

from shoal.providers import Text
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft, Entry
from shoal.runtime.context._render import BLANK_LINE, Rendered, Theme, one_block, said_in_block
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import Admission, Asked, Shrunk, full, full_by_count, refuse, too_big


@final
class Hashmap:
    """One entry a key."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft* in place of what its key held; the least recently written other keys make room."""
        if draft.key is None:
            return refuse(state, "is a hashmap and keeps nothing without a key", "Name the `key` to write.")
        if draft.tokens > asked.most(state):
            return too_big(state, draft, asked)
        staying = [entry for entry in by_age(state) if entry.entry_id not in asked.replaces]
        old = [entry for entry in staying if entry.key == draft.key]
        swap = msgspec.structs.replace(
            asked,
            replaces=asked.replaces.union(entry.entry_id for entry in old),
            freed=asked.freed + sum(entry.tokens for entry in old),
        )
        keys = len(staying) - len(old) + 1
        most = keys if state.region.max_entries is None else state.region.max_entries
        if state.region.admission == "reject" and not swap.fits(state, draft):
            return full(state, draft, swap)
        if state.region.admission == "reject" and keys > most:
            return full_by_count(state, asked, most, "keys")
        others = [entry for entry in staying if entry.key != draft.key]
        gone = _oldest(others, keys - most, swap.after(state, draft) - asked.limits.budget)
        return Admission(
            evict=tuple(entry.entry_id for entry in gone),
            reason="max_entries" if keys > most else "budget",
            replaces=tuple(entry.entry_id for entry in old),
        )

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up the least recently written keys until *need_tokens* are free."""
        gone = _oldest(by_age(state), 0, need_tokens)
        return Shrunk(tuple(entry.entry_id for entry in gone), sum(entry.tokens for entry in gone))

    def render(self, state: RegionState, theme: Theme) -> Rendered:
        """Render one sub-heading a key, in the order in which the keys came."""
        texts: list[Text] = []
        for entry in state.all_entries():
            if texts:
                texts.append(BLANK_LINE)
            if entry.key is not None:
                texts.append(Text.of(f"### {entry.key}\n"))
            texts.extend(said_in_block(entry))
        return one_block(state.region, texts, state.tokens - state.part_tokens, theme)


def by_age(state: RegionState) -> list[Entry]:
    """Return the entries of *state*, the least recently written first."""
    return sorted(state.all_entries(), key=lambda entry: entry.entry_id)


def _oldest(entries: Sequence[Entry], count: int, tokens: int) -> Sequence[Entry]:
    """Return the first of *entries* (oldest first): *count* of them, and as many as hold *tokens*."""
    for gone, _ in enumerate(entries):
        if gone >= count and tokens <= 0:
            return entries[:gone]
        tokens -= entries[gone].tokens
    return entries
