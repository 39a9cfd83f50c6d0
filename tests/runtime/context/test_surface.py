"""The names of this room."""

from __future__ import annotations

import shoal.runtime.context as room
from shoal.runtime.context import regions


def test_every_public_name_is_there_and_they_are_sorted():
    for module in (room, regions):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
        assert sorted(module.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)) == [
            *module.__all__
        ]
        assert len(set(module.__all__)) == len(module.__all__)


def test_every_kind_has_an_answer():
    assert set(regions.KINDS) == {
        "temporary",
        "pinned",
        "sliding_window",
        "compacting",
        "compact_history",
        "clearable",
        "hashmap",
        "checklist",
        "custom",
    }
