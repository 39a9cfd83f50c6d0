"""Tracked files: what was read or written last stands under its path in a hashmap region, and nowhere twice."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, cast, final

import msgspec

from shoal.providers import Message, Text
from shoal.runtime._live import Live
from shoal.runtime.context import CONVERSATION, Destination, Draft, EntriesReleased, estimate
from shoal.runtime.state import Turn, argument
from shoal.runtime.tools import parse_json

READS = "read_file"
WRITES = "write_file"


@final
class Tracked(msgspec.Struct, frozen=True):
    """A file that is kept: the region that keeps it, its key there, and how long it may be (`None` for any length)."""

    region: str
    key: str
    most_tokens: int | None


def tracked(live: Live, turn: Turn, index: int, tool: str) -> Tracked | None:
    """Return where the file of call *index* is kept, where that is a successful call of *tool*; `None` for nowhere."""
    settings = live.state.program.blueprint.file_tracking
    wanted = settings is not None and (settings.track_reads if tool == READS else settings.track_writes)
    if settings is None or not wanted or turn.calls[index].name != tool or turn.results[index].is_error:
        return None
    args = _arguments(turn, index)
    path = args.get("path")
    # A part of a file must not take the place of the whole.
    if (
        not isinstance(path, str)
        or args.get("offset")
        or turn.results[index].parts
        or not live.state.stage.layout.sees(settings.region)
    ):
        return None
    return Tracked(settings.region, _key(live, path), settings.max_file_tokens)


def tracked_read(live: Live, turn: Turn, index: int, place: Destination) -> Tracked | None:
    """Return where the file that call *index* read is kept; a rule that sends its result elsewhere wins."""
    return tracked(live, turn, index, READS) if place.region == CONVERSATION else None


def written_file(turn: Turn, index: int, kept: Tracked) -> Draft:
    """Return the text that call *index* wrote, which stands in its arguments, as what is kept of it."""
    text = argument(turn.calls[index].arguments, "content")
    message = Message("user", (text,))
    return Draft("text", message, max(1, estimate(message)), turn.seq, index, kept.key, writer="routing")


def read_text(turn: Turn, index: int, kept: Tracked) -> Draft:
    """Return the text that call *index* read as what is kept of it."""
    text: Text = turn.results[index].text
    message = Message("user", (text,))
    return Draft("text", message, max(1, estimate(message)), turn.written[index], key=kept.key, writer="routing")


def is_left_out(draft: Draft, kept: Tracked) -> bool:
    """Say whether a file is longer than what is kept of one."""
    return kept.most_tokens is not None and draft.tokens > kept.most_tokens


def forgotten(live: Live, kept: Tracked) -> Iterator[EntriesReleased]:
    """Yield what takes an older text of a file out, of which the new one is too long to be kept."""
    old = [entry for entry in live.state.view.states[kept.region].all_entries() if entry.key == kept.key]
    if old:
        ids = tuple(entry.entry_id for entry in old)
        yield EntriesReleased(kept.region, ids, sum(entry.tokens for entry in old))


def _arguments(turn: Turn, index: int) -> Mapping[str, Any]:
    try:
        parsed = parse_json(str(turn.calls[index].arguments) or "{}")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}


def _key(live: Live, path: str) -> str:
    """Return *path* as it is written from the working directory, whatever way the model wrote it."""
    workdir = str(live.context.workdir)
    whole = os.path.normpath(os.path.join(workdir, path))  # noqa: PTH118 - a text to compare, and no file to look at
    inside = os.path.commonpath((workdir, whole)) == workdir
    return os.path.relpath(whole, workdir) if inside else whole
