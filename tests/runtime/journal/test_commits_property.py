"""Whatever many runs append, wherever they wait, and wherever a commit fails: what was acknowledged is there."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st
from journalkit import said, spawned

from shoal.errors import JournalFailed
from shoal.runtime import Event, Journal, SqliteJournal, SqliteReader
from shoal.runtime.journal import Durability

pytestmark = pytest.mark.anyio

Step: TypeAlias = Literal["append", "barrier", "pass"]
STEPS = st.lists(st.sampled_from(["append", "append", "append", "barrier", "pass"]), max_size=12)


class Witness:
    """What runs did and were told."""

    def __init__(self) -> None:
        self.appended: dict[str, int] = defaultdict(int)
        self.acknowledged: dict[str, int] = defaultdict(int)
        self.seen: dict[str, list[int]] = defaultdict(list)

    def see(self, event: Event) -> None:
        self.seen[event.run_id].append(event.seq)

    async def run(self, journal: Journal, run_id: str, steps: Sequence[Step]) -> None:
        """Take *steps*, until the journal fails."""
        try:
            for step in steps:
                if step == "append":
                    seq = self.appended[run_id] + 1
                    journal.append(said(seq, run_id) if seq > 1 else spawned(run_id))
                    self.appended[run_id] = seq
                elif step == "barrier":
                    before = self.appended[run_id]
                    await journal.barrier()
                    self.acknowledged[run_id] = before
                else:
                    await checkpoint()
        except JournalFailed:
            pass


def fail_at(journal: SqliteJournal, event: int) -> None:
    """Let the insert of the *event*-th event fail, wherever in its commit it stands."""
    journal._writing.execute(
        "CREATE TEMP TRIGGER full BEFORE INSERT ON main.events "
        f"WHEN (SELECT count(*) FROM main.events) >= {event} BEGIN SELECT RAISE(ABORT, 'full'); END"
    )


async def play(journal: SqliteJournal, plans: Sequence[Sequence[Step]]) -> Witness:
    witness = Witness()
    journal.observers.append(witness.see)
    async with anyio.create_task_group() as serving:
        serving.start_soon(journal.serve)
        async with anyio.create_task_group() as tasks:
            for number, plan in enumerate(plans):
                tasks.start_soon(witness.run, journal, f"run-{number}", plan)
        serving.cancel_scope.cancel()
    return witness


def kept(path: Path, plans: Sequence[object]) -> dict[str, list[int]]:
    with closing(SqliteReader(path)) as reader:
        return {f"run-{n}": [event.seq for event in reader.read(f"run-{n}")] for n in range(len(plans))}


@pytest.mark.parametrize("durability", ["normal", "full"])
@given(plans=st.lists(STEPS, min_size=1, max_size=5), fails_at=st.none() | st.integers(0, 20))
async def test_no_acknowledged_event_is_lost_and_order_is_kept(
    durability: Durability, plans: Sequence[Sequence[Step]], fails_at: int | None
):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        with closing(SqliteJournal(path, durability=durability)) as journal:
            if fails_at is not None:
                fail_at(journal, fails_at)
            witness = await play(journal, plans)
            failed = not journal.healthy
        held = kept(path, plans)
    for run_id, seqs in held.items():
        assert seqs == list(range(1, len(seqs) + 1))
        assert witness.acknowledged[run_id] <= len(seqs) <= witness.appended[run_id]
        assert witness.seen[run_id] == seqs
    whole = {run_id: witness.appended[run_id] for run_id in held}
    assert failed or {run_id: len(seqs) for run_id, seqs in held.items()} == whole
    assert failed == (fails_at is not None and sum(whole.values()) > fails_at)
    assert sum(map(len, held.values())) <= (fails_at if failed and fails_at is not None else sum(whole.values()))
