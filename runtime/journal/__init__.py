"""The journal: where a run's events are kept, and where everything else about a run comes from."""

from shoal.runtime.journal._base import Journal, Observer, Reader, RunRow, RunStatus
from shoal.runtime.journal._memory import MemoryJournal
from shoal.runtime.journal._sqlite import FORMAT, Durability, SqliteJournal, SqliteReader

__all__ = [
    "FORMAT",
    "Durability",
    "Journal",
    "MemoryJournal",
    "Observer",
    "Reader",
    "RunRow",
    "RunStatus",
    "SqliteJournal",
    "SqliteReader",
]
