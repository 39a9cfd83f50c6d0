"""Runs that are claimed: what is given up behind a block, and what asks nothing of the file."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest
from journalkit import held_by_another

from shoal.runtime import Clock, SqliteJournal
from shoal.runtime._claims import Claims


@pytest.fixture
def journal(tmp_path: Path) -> Generator[SqliteJournal]:
    with closing(SqliteJournal(tmp_path / "runs.db", host="here")) as journal:
        yield journal


def test_a_block_that_leaves_nothing_writes_nothing_at_its_end(journal: SqliteJournal, tmp_path: Path):
    held = Claims(journal, Clock(), kept={"r"}).held(["r"])
    held.__enter__()
    with held_by_another(tmp_path / "runs.db"):
        held.__exit__(None, None, None)


def test_no_run_at_all_is_claimed_without_a_word_to_the_file(journal: SqliteJournal, tmp_path: Path):
    with held_by_another(tmp_path / "runs.db"), Claims(journal, Clock(), kept=()).held([]):
        assert journal.runs() == []
