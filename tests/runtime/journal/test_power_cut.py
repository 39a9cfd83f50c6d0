"""A power cut leaves a file and a log that are cut or torn anywhere: what can be read are the first so many commits."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journalkit import append, said, spawned

from shoal.runtime import Event, SqliteJournal, SqliteReader

PAGE = 8192
WAL_HEADER, FRAME_HEADER = 32, 24
RUNS = ("a", "b", "c")

State = dict[str, int]
"""How many events each run has."""


@dataclass(frozen=True)
class Cut:
    """The files of a journal at the moment of a power cut, and what was committed, commit by commit."""

    folder: Path
    commits: Sequence[State]

    @property
    def log(self) -> bytes:
        return (self.folder / "runs.db-wal").read_bytes()

    @property
    def file(self) -> bytes:
        return (self.folder / "runs.db").read_bytes()

    def left(self, where: Path, *, file: bytes | None = None, log: bytes | None = None) -> Path:
        """Return a journal of what is left of its files."""
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        (where / "runs.db").write_bytes(self.file if file is None else file)
        (where / "runs.db-wal").write_bytes(self.log if log is None else log)
        return where / "runs.db"


async def commit_at_random(journal: SqliteJournal, folder: Path) -> Sequence[State]:
    random, known, commits = Random(7), dict.fromkeys(RUNS, 0), [dict.fromkeys(RUNS, 0)]
    for number in range(60):
        for _ in range(random.randint(1, 4)):
            run_id = random.choice(RUNS)
            known[run_id] += 1
            text = "words " * random.choice([1, 50, 3000])
            append(journal, said(known[run_id], run_id, text) if known[run_id] > 1 else spawned(run_id))
        await journal.barrier()
        commits.append(dict(known))
        if number == 20:
            journal._writing.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            commits = commits[-1:]  # what stands in the file itself cannot be lost any more
    for name in ("runs.db", "runs.db-wal"):
        shutil.copy(journal.path.with_name(name), folder / name)
    return commits


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Cut:
    folder = tmp_path_factory.mktemp("cut")
    with closing(SqliteJournal(tmp_path_factory.mktemp("live") / "runs.db")) as journal:
        return Cut(folder, anyio.run(commit_at_random, journal, folder))


def read(path: Path) -> State:
    """Return how many events each run has; a gap would raise."""
    with closing(SqliteReader(path)) as reader:
        return {run_id: len(list(reader.read(run_id))) for run_id in RUNS}


def check(path: Path, cut: Cut) -> int:
    """Check that *path* holds the first so many commits and can be written again, and return how many."""
    with closing(SqliteJournal(path)) as journal:
        state = read(path)
        assert state in cut.commits
        longest = max(state, key=lambda run_id: state[run_id])
        append(journal, said(state[longest] + 1, longest))
        anyio.run(journal.barrier)
    assert read(path) == {**state, longest: state[longest] + 1}
    return cut.commits.index(state)


@given(share=st.floats(0, 1))
def test_a_log_that_was_cut_anywhere_holds_the_first_commits(
    share: float, cut: Cut, tmp_path_factory: pytest.TempPathFactory
):
    kept = int(share * len(cut.log))
    check(cut.left(tmp_path_factory.mktemp("left") / "cut", log=cut.log[:kept]), cut)


@given(share=st.floats(0, 1), length=st.integers(1, 3 * PAGE), filling=st.sampled_from([b"\0", b"\xff", b"\x5a"]))
def test_a_log_that_was_torn_anywhere_holds_the_first_commits(
    share: float, length: int, filling: bytes, cut: Cut, tmp_path_factory: pytest.TempPathFactory
):
    # Blocks that never reached the disk, with later ones that did.
    begin = int(share * len(cut.log))
    torn = cut.log[:begin] + (filling * length)[: len(cut.log) - begin] + cut.log[begin + length :]
    check(cut.left(tmp_path_factory.mktemp("left") / "torn", log=torn), cut)


def test_the_longer_the_log_that_is_left_the_more_is_left(cut: Cut, tmp_path: Path):
    found = [check(cut.left(tmp_path / "left", log=cut.log[: len(cut.log) * share // 8]), cut) for share in range(9)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, len(cut.commits) - 1)
    assert len(set(found)) > 5


def frames(log: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each page in a log, in order."""
    for place in range(WAL_HEADER, len(log), FRAME_HEADER + PAGE):
        [number] = struct.unpack_from(">I", log, place)
        yield number, log[place + FRAME_HEADER : place + FRAME_HEADER + PAGE]


@pytest.mark.parametrize("seed", range(20))
def test_a_checkpoint_that_was_cut_loses_nothing(seed: int, cut: Cut, tmp_path: Path):
    random = Random(seed)
    file = bytearray(cut.file)
    newest = dict(frames(cut.log))
    for number, page in random.sample(sorted(newest.items()), random.randint(1, len(newest))):
        begin = (number - 1) * PAGE
        file.extend(bytes(max(0, begin + PAGE - len(file))))
        torn = random.choice([PAGE, PAGE // 2, 512])
        file[begin : begin + torn] = page[:torn]
    assert check(cut.left(tmp_path / "left", file=bytes(file)), cut) == len(cut.commits) - 1


def events_of(path: Path, run_id: str) -> list[Event]:
    with closing(SqliteReader(path)) as reader:
        return list(reader.read(run_id))


def test_what_is_left_is_what_was_written(cut: Cut, tmp_path: Path):
    path = cut.left(tmp_path / "left", log=cut.log[: len(cut.log) // 2])
    whole = cut.left(tmp_path / "whole")
    for run_id in RUNS:
        left = events_of(path, run_id)
        assert left == events_of(whole, run_id)[: len(left)]
