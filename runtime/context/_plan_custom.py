"""A write into a custom region: what its script has to be asked first, and what the write then comes to."""

from __future__ import annotations

from typing import final

import msgspec

from shoal.providers import Intake
from shoal.runtime.context._calls import ScriptCall, overflow_call, write_call
from shoal.runtime.context._entry import Draft
from shoal.runtime.context._plan import Plan, as_admitted, plan_entry
from shoal.runtime.context._said import ACCEPTED, Wrote
from shoal.runtime.context._store import RegionState
from shoal.runtime.context.regions import Asked


@final
class Said(msgspec.Struct, frozen=True):
    """What a region's script said of one write, as far as it was asked.

    Args:
        wrote: What `on_write` decided; `None` where it was not asked.
        frees: Ids that `on_overflow` frees; `None` where it was not asked.
        refusable: The writer can be refused: the record that the runtime keeps of the conversation cannot.
    """

    wrote: Wrote | None = None
    frees: tuple[int, ...] | None = None
    refusable: bool = False

    @property
    def overruled(self) -> bool:
        """The script refuses what cannot be refused."""
        return self.wrote is not None and self.wrote.refused and not self.refusable


NOTHING_SAID = Said()


def next_call(
    state: RegionState, draft: Draft, asked: Asked, most_tokens: int | None, said: Said, intake: Intake
) -> ScriptCall | None:
    """Return what the script of *state* has to be asked before *draft* is written; `None` for nothing more."""
    if said.wrote is None:
        return write_call(state, draft, asked.limits)
    if said.frees is not None or state.region.admission == "reject" or (said.wrote.refused and said.refusable):
        return None
    admitted = as_admitted(state, _decided(draft, said), asked, most_tokens)
    needed_tokens = asked.after(state, admitted) - asked.limits.budget
    too_big = admitted.tokens > asked.most(state) and not asked.record
    return None if too_big or needed_tokens <= 0 else overflow_call(state, needed_tokens, asked.limits, intake)


def plan_custom(state: RegionState, draft: Draft, asked: Asked, most_tokens: int | None, said: Said) -> Plan:
    """Return what writing *draft* comes to after what its region's script *said*; what it was not asked, it grants."""
    wrote = said.wrote or ACCEPTED
    if wrote.refused and said.refusable:
        reason = f": {wrote.reason}" if wrote.reason else ""
        why = f"`{state.region.name}` does not take it{reason}"
        return Plan("refused", why=why, of_tokens=draft.tokens, ratio=asked.ratio)
    ready = msgspec.structs.replace(asked, frees=said.frees or ())
    plan = plan_entry(state, _decided(draft, said), ready, most_tokens)
    # What the script leaves out counts as cut: the writer is told how much of its text is kept.
    return msgspec.structs.replace(plan, of_tokens=draft.tokens)


def _decided(draft: Draft, said: Said) -> Draft:
    wrote = said.wrote or ACCEPTED
    return draft if wrote.refused else wrote.on(draft)
