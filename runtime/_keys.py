"""Spawns under a key: whoever comes second gets the run of whoever came first, whatever processes they are in."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import final

import anyio

from shoal.errors import JournalFailed, RunNotFound
from shoal.runtime._clock import Clock
from shoal.runtime.journal import Journal, RunRow

_POLL_S = 0.2
_GIVE_BACK_S = 5.0


@final
class Keys:
    """The keys under which this process is spawning runs.

    Args:
        journal: The journal that holds the runs.
        clock: Time.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._busy: dict[str, anyio.Event] = {}

    @asynccontextmanager
    async def held(self, key: str, run_id: str) -> AsyncGenerator[RunRow | str]:
        """Hold *key* while the block spawns its run.

        Yields:
            The run that there is under the key; else the id that the block is to spawn it with.
        """
        while key in self._busy:
            await self._busy[key].wait()
        self._busy[key] = anyio.Event()
        try:
            found = await self._settled(key, run_id)
            try:
                yield found
            except BaseException:
                if isinstance(found, str):
                    await self._give_back(key)
                raise
        finally:
            self._busy.pop(key).set()

    async def _settled(self, key: str, run_id: str) -> RunRow | str:
        while True:
            await self._journal.barrier()
            row = self._journal.with_key(key)
            if row is not None:
                return row
            shared = self._journal.shared
            if shared is None:
                return run_id
            ours = shared.reserve(key, run_id, now=self._clock.unix())
            if ours is not None:
                return ours
            await anyio.sleep(_POLL_S)

    async def _give_back(self, key: str) -> None:
        """Leave *key* to other processes, which would wait for its run as long as this one lives."""
        shared = self._journal.shared
        if shared is None:
            return
        with anyio.move_on_after(_GIVE_BACK_S, shield=True), suppress(JournalFailed):
            # Of a spawn that was cancelled the run may be on its way: it comes to be before another may.
            await self._journal.barrier()
            shared.give_back(key)


_AGENTS = "agent /swarm/runs/"
_REST = re.compile(r"[0-9a-f]{12} \d{6}")
_PLACE = re.compile(rf"{_AGENTS}(.*) {_REST.pattern}")


def place_of(path: str, digest: str) -> str:
    """Return how the keys of the runs of an agent begin that stands at *path* and is asked what *digest* stands for."""
    return f"agent {path} {digest} "


def newest_at(journal: Journal, place: str) -> RunRow:
    """Return the newest run of the agent at *place*: its tree's name and the ids down to it, with slashes between.

    Raises:
        RunNotFound: There is none.
    """
    begins = f"{_AGENTS}{place} "
    # An agent's id may have spaces, so that of another one may begin like this one's.
    rows = [row for row in journal.keyed(begins) if _REST.fullmatch(str(row.key), len(begins))]
    if not rows:
        places = dict.fromkeys(_PLACE.sub(r"\1", str(row.key)) for row in journal.keyed(_AGENTS))
        listed = ", ".join(f"`{each}`" for each in reversed(places)) or "none"
        raise RunNotFound(f"no agent had a run at {place!r}; this journal has {listed}")
    return max(rows, key=lambda row: row.spawned_at)


def tree_of(key: str | None) -> str | None:
    """Return the name of the tree that a run with *key* is an agent of; `None` where it is none's."""
    return key[len(_AGENTS) :].split("/", maxsplit=1)[0] if key is not None and key.startswith(_AGENTS) else None
