"""Everything that is due later: one task and one table per distinct delay.

A cancel scope per ask nearly doubles the cost of an ask. Entries with one delay come due in the order in which they
were added, so a dict keeps them sorted for nothing, and taking one out again (an ask that was answered) is one `pop`.
"""

from __future__ import annotations

import heapq
import math
from typing import Protocol, final

import anyio

from shoal.actors._clock import Clock

# A clock of floats may wake its sleeper an instant early; without slack that instant could be waited for without end.
_SLACK_S = 1e-6
_SWEEP_AT = 64


class Due(Protocol):
    """What can be due."""

    def due(self) -> None:
        """Act; called on the loop, must not raise."""
        ...


Table = dict[Due, float]


@final
class Timers:
    """The timers of one tree. `run` is the one task they share.

    Args:
        clock: Where the time comes from.
    """

    __slots__ = ("_heap", "_nap", "_now", "_sleep", "_sweep_at", "_tables")

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._sleep = clock.sleep
        self._tables: dict[float, Table] = {}
        # One entry per table: a time before which nothing in it is due, and the table's delay.
        self._heap: list[tuple[float, float]] = []
        self._sweep_at = _SWEEP_AT
        self._nap: anyio.CancelScope | None = None

    def __repr__(self) -> str:
        return f"<Timers {len(self)} waiting in {len(self._tables)} tables>"

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def add(self, delay_s: float, entry: Due) -> Table:
        """Have *entry* due in *delay_s* seconds.

        Returns:
            The table it stands in; `table.pop(entry, None)` takes it out again.

        Raises:
            ValueError: *delay_s* is negative or not finite.
        """
        when = self._now() + delay_s
        table = self._tables.get(delay_s)
        if table is None:
            table = self._arm(delay_s, when)
        table[entry] = when
        return table

    async def run(self) -> None:
        """Serve the timers until cancelled."""
        while True:
            self._fire()
            # Nothing awaits between here and the nap, so no earlier entry can slip in unseen.
            with anyio.CancelScope() as self._nap:
                if self._heap:
                    await self._sleep(max(0.0, self._heap[0][0] - self._now()))
                else:
                    await anyio.sleep_forever()

    def _arm(self, delay_s: float, when: float) -> Table:
        if not 0 <= delay_s < math.inf:
            raise ValueError(f"a delay of {delay_s!r} seconds was asked for; give a finite number, 0 or more")
        if len(self._tables) >= self._sweep_at:
            self._sweep()
        table = self._tables[delay_s] = {}
        heapq.heappush(self._heap, (when, delay_s))
        if self._heap[0][1] == delay_s and self._nap is not None:
            self._nap.cancel()
        return table

    def _sweep(self) -> None:
        """Drop empty tables: where every delay is another one, nobody would come back to them before they are due."""
        self._tables = {delay_s: table for delay_s, table in self._tables.items() if table}
        self._heap = [(next(iter(table.values())), delay_s) for delay_s, table in self._tables.items()]
        heapq.heapify(self._heap)
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._tables))

    def _fire(self) -> None:
        now = self._now() + _SLACK_S
        due: list[tuple[float, Due]] = []
        while self._heap and self._heap[0][0] <= now:
            _, delay_s = heapq.heappop(self._heap)
            table = self._tables[delay_s]
            head: float | None = None
            ripe: list[Due] = []
            for entry, when in table.items():
                if when > now:
                    head = when
                    break
                ripe.append(entry)
                due.append((when, entry))
            for entry in ripe:
                del table[entry]
            if head is None:
                del self._tables[delay_s]
            else:
                heapq.heappush(self._heap, (head, delay_s))
        due.sort(key=_when)
        for _, entry in due:
            entry.due()


def _when(pair: tuple[float, Due]) -> float:
    return pair[0]
