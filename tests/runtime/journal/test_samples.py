"""Journals that earlier versions wrote stay readable, and their runs can be gone on with."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from runkit import kinds, payloads, swarm_of

from shoal.runtime import SqliteJournal, SqliteReader
from shoal.runtime.journal import FORMAT
from shoal.testing import ScriptedProvider, call

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "journals").glob("format-*.db"))


@pytest.fixture(params=SAMPLES, ids=lambda path: path.stem)
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one sample."""
    return Path(shutil.copy(request.param, tmp_path / "runs.db"))


def format_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()[0])


def test_there_is_a_sample_of_every_format_before_this_one():
    assert {format_of(path) for path in SAMPLES} >= set(range(1, FORMAT))


def test_a_sample_says_of_which_format_it_is():
    assert [path.stem for path in SAMPLES] == [f"format-{format_of(path)}" for path in SAMPLES]


def test_an_earlier_journal_is_read_without_being_changed(sample: Path):
    before = sample.read_bytes()
    with closing(SqliteReader(sample)) as reader:
        done, interrupted = reader.runs()
        events = list(reader.read(done.run_id))
    assert (done.status, done.title, interrupted.status, interrupted.stage) == (
        "complete",
        "A sample",
        "running",
        "write",
    )
    assert [event.seq for event in events] == list(range(1, done.events + 1))
    assert "Grüße" in [str(reply.text) for reply in payloads(events, "InferenceCompleted")]
    assert sample.read_bytes() == before


@pytest.mark.anyio
async def test_a_run_of_an_earlier_journal_goes_on_where_it_was(sample: Path):
    provider = ScriptedProvider(call("submit_output", content="late"), "submitted", purposes={"titling": "A sample"})
    with closing(SqliteJournal(sample, host="now")) as journal:
        async with swarm_of(provider, journal=journal) as swarm:
            _, interrupted = swarm.runs()
            outcome = await (await swarm.resume_tree(interrupted.run_id)).result()
            events = list(journal.read(interrupted.run_id))
            assert interrupted.region("notes") == "noted"
    assert (outcome.status, outcome.output) == ("complete", "late")
    assert kinds(events, "RunSpawned", "RunResumed", "RunEnded") == ["RunSpawned", "RunResumed", "RunEnded"]


def test_an_earlier_journal_that_is_written_to_gets_the_current_format(sample: Path):
    SqliteJournal(sample).close()
    assert format_of(sample) == FORMAT
