"""Which runs this process is about to host, or writes to in the place of a host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager
from typing import final

from shoal.runtime._clock import Clock
from shoal.runtime.journal import Journal


@final
class Claims:
    """Keeps other processes off runs that nobody hosts, while something is done to them here.

    Args:
        journal: The journal that holds the runs.
        clock: Time.
        kept: The runs that this process hosts: what is claimed of them stays so.
    """

    def __init__(self, journal: Journal, clock: Clock, kept: Container[str]) -> None:
        self._journal = journal
        self._clock = clock
        self._kept = kept
        self._holders: Counter[str] = Counter()
        """How many blocks hold each run."""

    def __repr__(self) -> str:
        return f"<Claims on {len(self._holders)} runs>"

    @contextmanager
    def held(self, run_ids: Sequence[str]) -> Generator[None]:
        """Make this process the host of those runs, all or none; behind the block it is that of those it keeps by then.

        Raises:
            RunOwned: Another process hosts one of them.
        """
        shared = self._journal.shared
        if shared is None or not run_ids:
            yield
            return
        shared.claim(run_ids, now=self._clock.unix())
        self._holders.update(run_ids)
        try:
            yield
        finally:
            self._holders -= Counter(run_ids)
            # What another block still holds is given up by that one, or not at all.
            left = [each for each in run_ids if each not in self._holders and each not in self._kept]
            if left:
                shared.release(left)
