"""The keys of a region, and of what stands beside regions in `[context]`."""

from __future__ import annotations

from typing import Any, final

from shoal.blueprints._codec import Choice, Flag, ListOf, Matching, Share, Text, Whole
from shoal.blueprints._model import FileTracking, Observations, Region
from shoal.blueprints._record import Key, Named, Record
from shoal.blueprints._seeds import Seeds

CONVERSATION = "conversation"
MIME = Matching(r"[\w.+-]+/[\w.+-]+|[\w.+-]+/\*|\*/\*", "a mime pattern such as `image/png`, `image/*` or `*/*`")


@final
class _RegionRecord(Record):
    """A region."""

    def explode(self, value: Any) -> dict[str, object]:
        fields = super().explode(value)
        if value.name == CONVERSATION and value.kind == "sliding_window":
            # Where observation knobs are on, a conversation has no limit unless one is written.
            fields["max_items"] = value.max_items
        return fields


REGION = _RegionRecord(
    Region,
    Key(
        "kind",
        Choice(
            "temporary",
            "pinned",
            "sliding_window",
            "compacting",
            "compact_history",
            "clearable",
            "hashmap",
            "checklist",
            "custom",
            hash_map="hashmap",
        ),
    ),
    Key("budget", Share()),
    Key("max_tokens", Whole(1)),
    Key("min_tokens", Whole(1)),
    Key("seed", Seeds()),
    Key("required", Flag()),
    Key("required_message", Text()),
    Key("summarizable", Flag()),
    Key("description", Text(full=False)),
    Key("describe_in_prompt", Flag()),
    Key("volatility", Choice("stable", "grows", "rewritten")),
    Key("placement", Choice("tail")),
    Key("admission", Choice("evict", "reject")),
    Key("accepts", ListOf(MIME, least=1)),
    Key("max_stored", Whole(0)),
    Key("shed_to", Share()),
    Key("max_items", Whole(1, zero_is_none=True)),
    Key("strategy", Choice("per_item", "bulk", "compact")),
    Key("overflow", Whole(1)),
    Key("compact_count", Whole(1)),
    Key("compact_at", Share()),
    Key("threshold_tokens", Whole(1)),
    Key("source_region", Text()),
    Key("max_entries", Whole(1)),
    Key("script", Text()),
    Key("pinned", Flag(), also=("persistent",)),
    lenient=True,
)
REGIONS = Named(REGION)

OBSERVATIONS = Record(
    Observations,
    Key("profile", Choice("coding", "chat", "eval")),
    Key("observation_window", Whole(1)),
    Key("soft_cap_chars", Whole(1)),
    Key("hard_cap_chars", Whole(1)),
    Key("min_tail_turns", Whole(0)),
    Key("forget_after_turns", Whole(0)),
    Key("mask_step", Whole(1)),
)

FILE_TRACKING = Record(
    FileTracking,
    Key("region", Text()),
    Key("track_reads", Flag()),
    Key("track_writes", Flag()),
    Key("max_file_tokens", Whole(1)),
    lenient=True,
)
