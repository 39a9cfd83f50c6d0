"""`hashmap`: one entry a key; a write to a key takes its place, and the least recently written keys go first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from shoal.providers import Block, Text
from shoal.runtime.context._budget import Limits
from shoal.runtime.context._entry import Draft, Entry
from shoal.runtime.context._render import BLANK_LINE, Theme, one_block
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions._kind import Admission, Asked, Shrunk, refuse, too_big


@final
class Hashmap:
    """One entry a key."""

    def write(self, state: RegionState, draft: Draft, asked: Asked) -> Admission:
        """Admit *draft* in place of what its key held; the least recently written other keys make room."""
        limits = asked.limits
        if draft.key is None:
            return refuse(state, 0, "is a hashmap: name the `key` to write")
        if draft.tokens > limits.budget:
            return too_big(state, draft, limits)
        old = [entry for entry in state.all_entries() if entry.key == draft.key]
        replaces = tuple(entry.entry_id for entry in old)
        tokens = state.tokens - sum(entry.tokens for entry in old) + draft.tokens
        keys = state.entries - len(old) + 1
        gone: list[int] = []
        reason: str = "budget"
        for entry in self._by_age(state):
            over_keys = state.region.max_entries is not None and keys > state.region.max_entries
            if tokens <= limits.budget and not over_keys:
                break
            if entry.key == draft.key:
                continue
            gone.append(entry.entry_id)
            tokens -= entry.tokens
            keys -= 1
            reason = "max_entries" if over_keys else "budget"
        if gone and state.region.admission == "reject":
            keys_text = ", ".join(f"{entry.key} ({entry.tokens})" for entry in state.all_entries())
            return refuse(
                state,
                max(0, state.tokens - sum(entry.tokens for entry in old) + draft.tokens - limits.budget),
                f"is full ({state.tokens} of {limits.budget} tokens) and drops nothing by itself. "
                f"It holds: {keys_text}. Release keys with `context_delete` first",
            )
        return Admission(
            evict=tuple(gone), reason="max_entries" if reason == "max_entries" else "budget", replaces=replaces
        )

    def release(self, state: RegionState, entry_ids: Sequence[int]) -> str | None:
        """Anything may be released."""
        return None

    def shrink(self, state: RegionState, limits: Limits, need_tokens: int) -> Shrunk:
        """Give up the least recently written keys until *need_tokens* are free."""
        gone: list[int] = []
        freed = 0
        for entry in self._by_age(state):
            if freed >= need_tokens:
                break
            gone.append(entry.entry_id)
            freed += entry.tokens
        return Shrunk(tuple(gone), freed)

    def render(self, state: RegionState, theme: Theme) -> tuple[Block, ...]:
        """Render one sub-heading a key, in the order in which the keys came."""
        if state.cached is None:
            texts: list[Text] = []
            for entry in state.all_entries():
                if texts:
                    texts.append(BLANK_LINE)
                texts.append(Text.of(f"### {entry.key}\n"))
                texts.extend(theme.escaped(text) for text in entry.message.texts)
            state.cached = one_block(state.region, texts, state.tokens, theme)
        made: tuple[Block, ...] = state.cached
        return made

    @staticmethod
    def _by_age(state: RegionState) -> list[Entry]:
        return sorted(state.all_entries(), key=lambda entry: entry.entry_id)
