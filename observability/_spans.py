"""What a span is here: a finished, frozen value that knows nothing of any exporter.

A span's id is made of the run, the seq of the event that opened it and its own name, so that a live export, an export
of last week's journal and one of a resumed run give the same ids.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Literal, TypeAlias, final

import msgspec

Value: TypeAlias = str | bool | int | float | tuple[str, ...] | tuple[int, ...] | tuple[float, ...]
Kind: TypeAlias = Literal["internal", "client"]
StatusCode: TypeAlias = Literal["unset", "ok", "error"]

MOST_CHARS = 512
"""Longest text in an attribute that is no content."""
MOST_NAME_CHARS = 160
"""Longest name of a span."""
MOST_EVENTS = 64
"""Most events in one span; the rest is counted."""
MOST_REGIONS = 16
"""Most regions that a span says the cost of; the rest stands in one span event."""

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


@final
class SpanEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened while a span was open; *at_ns* is unix nanoseconds."""

    name: str
    at_ns: int
    attributes: Mapping[str, Value]


@final
class Link(msgspec.Struct, frozen=True, gc=False):
    """A span of the same trace that this one has to do with; *kind* says how."""

    span_id: str
    kind: str


@final
class Span(msgspec.Struct, frozen=True, gc=False):
    """One finished span.

    Args:
        name: Its name.
        trace_id: 32 hex digits.
        span_id: 16 hex digits.
        parent_id: Span id of its parent; `None` for a root.
        kind: `client` for what asks a provider.
        start_ns: Unix nanoseconds.
        end_ns: Unix nanoseconds, not before *start_ns*.
        status: How it ended; `unset` for one that is still open where it is shown.
        attributes: By name.
        events: Oldest first.
        links: Other spans it has to do with.
        run_id: The run.
        joined: Its trace is one of the user's own, which the root run joined.
        sampled: False where that trace is not recorded.
        remote_parent: Its parent is the user's span.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    kind: Kind
    start_ns: int
    end_ns: int
    status: StatusCode
    attributes: Mapping[str, Value]
    events: tuple[SpanEvent, ...]
    links: tuple[Link, ...]
    run_id: str
    joined: bool = False
    sampled: bool = True
    remote_parent: bool = False


@final
class Tree(msgspec.Struct, frozen=True, gc=False):
    """What all spans of one tree of runs share.

    Args:
        trace_id: 32 hex digits.
        sampled: They are recorded.
        parent_id: The user's span that the root run joined; `None` for none.
    """

    trace_id: str
    sampled: bool = True
    parent_id: str | None = None


def span_id_of(run_id: str, seq: int, name: str) -> str:
    """Return the id of the span *name* that event *seq* of *run_id* opened."""
    return hashlib.sha256(f"{run_id}:{seq}:{name}".encode()).digest()[:8].hex()


def tree_of(root: str, traceparent: str | None = None) -> Tree:
    """Return what the tree below the run *root* shares.

    Args:
        root: Id of the root run; its bytes are the trace id.
        traceparent: W3C `traceparent` of a span that the root run joins; one that is not valid is ignored.

    Source: W3C Trace Context, level 2, section 3.2.
    """
    found = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent)
    if found is not None:
        version, trace_id, parent_id, flags = found.groups()
        if version != "ff" and int(trace_id, 16) and int(parent_id, 16):
            return Tree(trace_id, bool(int(flags, 16) & 1), parent_id)
    try:
        return Tree(uuid.UUID(root).hex)
    except ValueError:  # a run of another program's journal may be called anything
        return Tree(hashlib.sha256(root.encode()).hexdigest()[:32])


def clip(text: str, most: int = MOST_CHARS) -> str:
    """Return *text*, cut to *most* characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def span_name(name: str) -> str:
    """Return *name* as the name of a span: not longer than such names may be."""
    return clip(name, MOST_NAME_CHARS)


def first_line(text: str) -> str:
    """Return the first line of *text*, cut to the length of an attribute; a traceback behind it stays out."""
    return clip(text.strip().partition("\n")[0].rstrip())
