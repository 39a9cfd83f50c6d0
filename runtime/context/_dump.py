"""Everything that makes a region, as plain values: for comparing windows."""

from __future__ import annotations

from shoal.runtime.context._entry import Entry
from shoal.runtime.context._store import RegionState


def dump_region(state: RegionState) -> dict[str, object]:
    """Return everything that makes one region, as plain values."""
    return {
        "region": (state.region.name, state.region.kind, state.cut),
        "limits": (state.limits.budget, state.limits.shed_to, state.limits.compact_at),
        "next": (state.next_id, state.next_item, state.next_chunk),
        "places": (state.moved, state.listed),
        "held": (state.tokens, state.chars, state.entries),
        "chunks": [
            (
                chunk.number,
                chunk.continued,
                chunk.frozen,
                [[_dump_entry(entry) for entry in group.entries] for group in chunk.groups],
            )
            for chunk in state.chunks
        ],
        "items": [
            (i.item_id, str(i.text), i.state, [str(n) for n in i.notes], str(i.reason), i.tokens)
            for i in state.items.values()
        ],
        "instructions": (str(state.instructions), state.instruction_tokens),
    }


def _dump_entry(entry: Entry) -> tuple[object, ...]:
    message = entry.message
    calls = [(call.call_id, call.name, str(call.arguments)) for call in message.calls]
    said = (message.role, message.text, calls, message.call_id, message.tool_name, message.is_error)
    state = None if message.state is None else message.state.data
    return (
        entry.entry_id,
        entry.seq,
        entry.kind,
        said,
        state,
        entry.tokens,
        entry.chars,
        entry.created,
        entry.key,
        entry.seed,
        entry.parts,
        entry.part_tokens,
        entry.stands_for,
        [(blob.name, blob.digest) for blob in message.blobs],
    )
