"""From events to finished spans: a pure projection, fed live or from a journal, with the same result.

Events of one run come in their order, and a child's come behind the event in which its parent announces it. That is
the order in which they become durable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import final

from shoal.observability._redact import Redactor
from shoal.observability._run_trace import Birth, RunTrace
from shoal.observability._spans import Span, tree_of
from shoal.runtime import Event
from shoal.runtime.events import RunSpawned

MOST_BIRTHS = 16_384
"""How many children are remembered that were announced and did not begin: those of runs that are caught up with."""


@final
class Projection:
    """The open spans of many runs.

    Args:
        capture_content: Prompts and outputs go into spans, bounded and without secrets. They never do otherwise.
    """

    def __init__(self, *, capture_content: bool = False) -> None:
        self._content = Redactor.of(os.environ) if capture_content else None
        self._runs: dict[str, RunTrace] = {}
        self._births: dict[str, Birth] = {}

    def __repr__(self) -> str:
        return f"<Projection {len(self._runs)} runs open>"

    def feed(self, event: Event) -> Sequence[Span]:
        """Take *event* and return the spans that it finished, innermost first.

        An event of a run that is over, or whose first event never came, changes nothing.
        """
        run = self._runs.get(event.run_id)
        if run is None:
            if isinstance(event.payload, RunSpawned):
                self._begin(event, event.payload)
            return ()
        done = run.take(event)
        if run.births:
            self._announce(run.births)
        if run.over:
            del self._runs[event.run_id]
        return done

    def _announce(self, births: dict[str, Birth]) -> None:
        self._births.update(births)
        births.clear()
        if len(self._births) > MOST_BIRTHS:
            del self._births[next(iter(self._births))]

    def _begin(self, event: Event, spawned: RunSpawned) -> None:
        birth = self._births.pop(event.run_id, None)
        if birth is None:
            # A root; or a child whose parent is not at hand, which hangs below nothing.
            tree = tree_of(spawned.root, spawned.trace if spawned.parent is None else None)
            birth = Birth(tree, tree.parent_id)
        self._runs[event.run_id] = RunTrace(event, spawned, birth, content=self._content)

    def forget(self, run_id: str) -> None:
        """Drop what is known of a run; its further events change nothing."""
        self._runs.pop(run_id, None)

    def unfinished(self) -> Sequence[Span]:
        """Return every span that is still open as if it ended with the newest event that it shows; nothing is ended."""
        return [span for run in self._runs.values() for span in run.unfinished()]
