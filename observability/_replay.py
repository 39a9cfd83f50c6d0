"""The trace of a run of the journal: its tree's events, in an order that the projection takes."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.observability._project import Projection
from shoal.observability._spans import Span
from shoal.runtime import Event, Reader
from shoal.runtime.events import ChildSpawned


def tree_events(reader: Reader, run_id: str) -> Iterator[Event]:
    """Yield the events of the whole tree that *run_id* belongs to, each child's right behind its announcement.

    Raises:
        RunNotFound: The journal holds no such run.
        JournalDamaged: A row is torn or corrupted; every event before it was yielded.
    """
    told: set[str] = set()

    def below(run: str) -> Iterator[Event]:
        told.add(run)
        for event in reader.read(run):
            yield event
            if isinstance(event.payload, ChildSpawned) and event.payload.child not in told:
                yield from below(event.payload.child)

    for row in reader.runs(root=reader.find(run_id).root):
        # Roots first; what no parent of this journal announces follows by itself.
        if row.run_id not in told:
            yield from below(row.run_id)


def trace_of(reader: Reader, run_id: str, *, capture_content: bool = False) -> tuple[Span, ...]:
    """Return the spans of the whole tree that *run_id* belongs to, in the order in which they were opened.

    A span that is still open is shown as if it ended with the newest event of its run: its status is `unset` and its
    outcome `unfinished`.

    Args:
        reader: The journal.
        run_id: The run, or the beginning of its id.
        capture_content: Prompts and outputs go into spans, bounded and without secrets.

    Raises:
        RunNotFound: The journal holds no such run, or several.
        JournalDamaged: A row is torn or corrupted.
    """
    projection = Projection(capture_content=capture_content)
    spans: list[Span] = []
    for event in tree_events(reader, run_id):
        spans.extend(projection.feed(event))
    spans.extend(projection.unfinished())
    # No two spans of a run begin at once, and no run begins when its parent's span does.
    return tuple(sorted(spans, key=lambda span: span.start_ns))
