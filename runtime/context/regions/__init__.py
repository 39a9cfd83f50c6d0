"""The kinds of regions, one file a kind. Adding one touches its own file and this table."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.runtime.context.regions._kind import Admission, Asked, RegionKind, Shrunk
from shoal.runtime.context.regions.checklist import Checklist
from shoal.runtime.context.regions.clearable import Clearable
from shoal.runtime.context.regions.compact_history import CompactHistory
from shoal.runtime.context.regions.compacting import Compacting
from shoal.runtime.context.regions.custom import Custom
from shoal.runtime.context.regions.hashmap import Hashmap
from shoal.runtime.context.regions.pinned import Pinned
from shoal.runtime.context.regions.sliding_window import SlidingWindow
from shoal.runtime.context.regions.temporary import Temporary

KINDS: Mapping[str, RegionKind] = {
    "temporary": Temporary(),
    "pinned": Pinned(),
    "sliding_window": SlidingWindow(),
    "compacting": Compacting(),
    "compact_history": CompactHistory(),
    "clearable": Clearable(),
    "hashmap": Hashmap(),
    "checklist": Checklist(),
    "custom": Custom(),
}

__all__ = [
    "KINDS",
    "Admission",
    "Asked",
    "Checklist",
    "Clearable",
    "CompactHistory",
    "Compacting",
    "Custom",
    "Hashmap",
    "Pinned",
    "RegionKind",
    "Shrunk",
    "SlidingWindow",
    "Temporary",
]
