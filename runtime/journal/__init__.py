"""The journal: where a run's events are kept, and where everything else about a run comes from."""

from shoal.runtime.journal._base import Journal, Observer, Reader, RunRow, RunStatus, Shared
from shoal.runtime.journal._file import FORMAT, Durability
from shoal.runtime.journal._leases import BEAT_S, STALE_S, host_name
from shoal.runtime.journal._memory import MemoryJournal
from shoal.runtime.journal._reader import SqliteReader
from shoal.runtime.journal._retention import Pruned, prune
from shoal.runtime.journal._sqlite import SqliteJournal
from shoal.runtime.journal._transfer import export_tree, import_tree

__all__ = [
    "BEAT_S",
    "FORMAT",
    "STALE_S",
    "Durability",
    "Journal",
    "MemoryJournal",
    "Observer",
    "Pruned",
    "Reader",
    "RunRow",
    "RunStatus",
    "Shared",
    "SqliteJournal",
    "SqliteReader",
    "export_tree",
    "host_name",
    "import_tree",
    "prune",
]
