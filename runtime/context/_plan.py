"""What a write comes to: checked against its region first, then applied whole, or not at all."""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from shoal.providers import Message, Text
from shoal.runtime.context._changes import Change, EntriesEvicted, EntryWritten, EvictReason, ItemChanged
from shoal.runtime.context._cut import Cut, cut_to
from shoal.runtime.context._entry import Draft, estimate, estimate_text
from shoal.runtime.context._store import RegionState
from shoal.runtime.context._taking import crowd, types_of, uncovered
from shoal.runtime.context.regions import KINDS, Admission, Asked

Outcome: TypeAlias = Literal["written", "refused", "wait"]
Planned: TypeAlias = tuple[Change, Message | None]
"""A change to journal and apply, with the message that it brings."""

ESTIMATED = "estimate"
_CUT_TO_FIT = frozenset({"routing", "seed"})


@final
class Order(msgspec.Struct, frozen=True, gc=False):
    """A summary that a region wants: of these entries."""

    region: str
    entry_ids: tuple[int, ...]


@final
class Plan(msgspec.Struct, frozen=True):
    """What a write comes to.

    Args:
        outcome: `written`, `refused` (nothing changes), or `wait` for the summary of *region* and plan again.
        changes: Changes to journal and apply, in order, each with the message it brings (or `None`).
        orders: Summaries to order.
        why: Of a refusal: what stands in the way, one sentence for the writer.
        over_tokens: Of a refusal: by how much it does not fit, corrected.
        tokens: What is written, after cutting.
        of_tokens: What was to be written.
        remedy: Of a refusal: what a writer with tools for it can do; empty where nothing helps.
        ratio: What one of its estimated tokens really costs.
    """

    outcome: Outcome
    changes: tuple[Planned, ...] = ()
    orders: tuple[Order, ...] = ()
    why: str = ""
    over_tokens: int = 0
    tokens: int = 0
    of_tokens: int = 0
    remedy: str = ""
    ratio: float = 1.0

    @property
    def cut(self) -> bool:
        """Only a part of it is written."""
        return self.tokens < self.of_tokens

    @property
    def refusal(self) -> str:
        """*why* and *remedy* as one text."""
        return f"{self.why}. {self.remedy}".rstrip()


def plan_entry(state: RegionState, draft: Draft, asked: Asked, most_tokens: int | None) -> Plan:
    """Return what writing *draft* into *state* as one entry comes to, cut to *most_tokens* where that is not `None`."""
    cut = as_admitted(state, draft, asked, most_tokens)
    why = None if asked.record else uncovered(state.region, types_of(cut.message))
    if why is not None:
        return _turned_away(state, why, "Write what it takes.", asked, draft.tokens)
    crowded = crowd(state, cut, asked.replaces, joins=asked.joins)
    if crowded.why and asked.record:  # it is never refused: of its parts the names stay
        cut = _named_only(cut, state)
    elif crowded.why:
        remedy = "Release some with `context_delete` first." if "It holds" in crowded.why else ""
        return _turned_away(state, crowded.why, remedy, asked, draft.tokens)
    gone = frozenset(crowded.evict)
    left = msgspec.structs.replace(asked, replaces=asked.replaces | gone, freed=asked.freed + crowded.tokens)
    admission = KINDS[state.region.kind].write(state, cut, left if gone else asked)
    name = state.region.name
    orders = (Order(name, admission.order),) if admission.order else ()
    if admission.verdict == "wait":
        return Plan("wait", orders=orders, of_tokens=draft.tokens, ratio=asked.ratio)
    if admission.verdict == "refuse":
        return _refused(admission, asked, orders, draft.tokens)
    changes: list[Planned] = []
    if gone:
        changes.append((evicted(state, crowded.evict, "max_stored"), None))
    if admission.evict:
        changes.append((evicted(state, admission.evict, admission.reason), None))
    written = EntryWritten(
        name,
        state.next_id,
        cut.kind,
        cut.tokens,
        cut.source,
        cut.index,
        cut.key,
        cut.cut,
        cut.text if cut.source else _inline(cut.message),
        admission.replaces or tuple(sorted(asked.replaces)),
        admission.over_budget,
        cut.counted,
        cut.parts,
    )
    changes.append((written, cut.message))
    return Plan("written", tuple(changes), orders, tokens=cut.tokens, of_tokens=draft.tokens, ratio=asked.ratio)


def as_admitted(state: RegionState, draft: Draft, asked: Asked, most_tokens: int | None) -> Draft:
    """Return *draft* as its region is asked to take it: cut to *most_tokens*, and to what fits where it may be cut."""
    shorter = _shortened(state, draft, asked, most_tokens)
    return draft if shorter is None else _as_cut(draft, shorter)


def _shortened(state: RegionState, draft: Draft, asked: Asked, most_tokens: int | None) -> Cut | None:
    """Return *draft* cut to what it may be; `None` where it stays whole: it fits, or cutting it gains nothing."""
    most = draft.tokens if most_tokens is None else most_tokens
    if draft.writer in _CUT_TO_FIT:
        most = min(most, asked.most(state))
    if draft.tokens <= most:
        return None
    shorter = cut_to(draft.message, draft.tokens, most)
    gains = shorter.tokens < draft.tokens and shorter.tokens <= asked.most(state)
    return shorter if gains else None


def _as_cut(draft: Draft, shorter: Cut) -> Draft:
    """Return *draft* as *shorter*: a part of its source, or of a text that stands in the change itself."""
    whole = draft.cut is None and draft.text is None
    if draft.source and whole:
        return msgspec.structs.replace(
            draft,
            message=shorter.message,
            tokens=shorter.tokens,
            cut=shorter.chars,
            text=shorter.marker,
            counted=ESTIMATED,
            parts=(),
        )
    return msgspec.structs.replace(
        draft,
        message=shorter.message,
        tokens=shorter.tokens,
        source=0,
        index=-1,
        cut=None,
        text=None,
        counted=ESTIMATED,
        parts=(),
    )


def _named_only(draft: Draft, state: RegionState) -> Draft:
    """Return *draft* with the names of its stored parts in place of them, and why."""
    lines = "".join(f"\n{blob.stand_in}" for blob in draft.message.blobs)
    why = f"{lines}\n[named only: `{state.region.name}` keeps {state.region.max_stored} stored parts at most]"
    line = Text.of(why if any(draft.message.texts) else why.lstrip("\n"))
    message = msgspec.structs.replace(draft.message, texts=(*draft.message.texts, line), blobs=())
    text = line if draft.text is None else Text(draft.text.body + line.body)
    return msgspec.structs.replace(
        draft, message=message, tokens=estimate(message), text=text if draft.source else None, parts=()
    )


def _turned_away(state: RegionState, why: str, remedy: str, asked: Asked, of_tokens: int) -> Plan:
    said = f"`{state.region.name}` {why}"
    return Plan("refused", why=said, of_tokens=of_tokens, remedy=remedy, ratio=asked.ratio)


def _refused(admission: Admission, asked: Asked, orders: tuple[Order, ...], of_tokens: int) -> Plan:
    return Plan(
        "refused",
        orders=orders,
        why=admission.why,
        over_tokens=admission.over_tokens,
        of_tokens=of_tokens,
        remedy=admission.remedy,
        ratio=asked.ratio,
    )


def _inline(message: Message) -> Text | None:
    texts = message.texts
    return Text(b"".join([text.body for text in texts])) if texts else None


def evicted(state: RegionState, ids: tuple[int, ...], reason: EvictReason) -> EntriesEvicted:
    """Return the change that takes the entries *ids* out of *state*."""
    gone = frozenset(ids)
    tokens = sum(entry.tokens for entry in state.all_entries() if entry.entry_id in gone)
    return EntriesEvicted(state.region.name, ids, tokens, reason)


# --- checklists


def item_tokens(text: Text) -> int:
    """Return what an item or a note of *text* costs, its mark and id included."""
    return estimate_text(text) + 2


def plan_items(state: RegionState, draft: Draft, asked: Asked, most_tokens: int | None) -> Plan:
    """Return what opening an item for each non-empty line of *draft* comes to.

    A writer whose entries are cut to fit gets the first lines that fit; from the others all lines go in, or none.
    """
    if draft.parts:
        return _turned_away(state, "is a checklist and takes items of text", "", asked, draft.tokens)
    texts = [Text.of(line.strip()) for line in draft.message.text.splitlines() if line.strip()]
    costs = [item_tokens(text) for text in texts]
    of_tokens = sum(costs)
    if draft.writer in _CUT_TO_FIT:
        room = asked.limits.budget - state.charged
        fitting = _fitting(costs, room if most_tokens is None else min(room, most_tokens))
        texts, costs = texts[:fitting] or texts, costs[:fitting] or costs
    admission = KINDS["checklist"].write(state, msgspec.structs.replace(draft, tokens=sum(costs)), asked)
    if admission.verdict == "refuse":
        return _refused(admission, asked, (), of_tokens)
    changes = tuple(
        (ItemChanged(state.region.name, state.next_item + offset, "open", text, cost), None)
        for offset, (text, cost) in enumerate(zip(texts, costs, strict=True))
    )
    return Plan("written", changes, tokens=sum(costs), of_tokens=of_tokens, ratio=asked.ratio)


def _fitting(costs: list[int], room_tokens: int) -> int:
    """Return how many of *costs*, from the front, fit into *room_tokens*."""
    for index, cost in enumerate(costs):
        room_tokens -= cost
        if room_tokens < 0:
            return index
    return len(costs)
