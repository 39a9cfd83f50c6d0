"""A process that is killed at any point is taken up by another, and the world cannot tell that it was."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import victim

from shoal.runtime import Event, SqliteReader
from shoal.runtime.events import NUMBERS, encode

BATCHES = 6
QUICK, NIGHTLY = 5, 50
"""Kills in one batch."""
MOST_DEATHS = 3
STEPS = ("first", "second", "third", "itema", "itemb", "itemc", "last", "now", "beside")

Point = tuple[str, str]
"""Where a process dies, and at what kind of thing: an event's kind, a request's purpose, or a step of the shell."""


class Zygote:
    """A process that forks victims."""

    def __init__(self) -> None:
        command = [sys.executable, victim.__file__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def live(self, folder: Path, death: Mapping[str, Any], backend: str = "asyncio", durability: str = "normal") -> int:
        """Let one victim live in *folder*, and return how it ended: an exit status, or a signal below 0."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        plan = {"folder": str(folder), "backend": backend, "durability": durability, "death": death}
        print(json.dumps(plan), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


def prepared(folder: Path) -> Path:
    """Make *folder* a place to live in."""
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    work.mkdir(parents=True)
    (folder / "helper").mkdir()
    (folder / "helper" / "blueprint.toml").write_text(victim.HELPER)
    (work / "act.sh").write_text(victim.ACT)
    (work / "calls.log").touch()
    (work / "draft.txt").write_text("none yet\n")
    return folder


@pytest.fixture(scope="module")
def calm(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody disturbed."""
    folder = prepared(tmp_path_factory.mktemp("calm") / "run")
    assert zygote.live(folder, {}) == 0
    assert sorted(called(folder)) == sorted(f"{step}-try0" for step in STEPS)
    return folder


def points(calm: Path) -> tuple[list[Point], Counter[str]]:
    """Return every point at which a process can die, in a drawn order, and how often each kind of thing happens."""
    happened = Counter(event.kind for event in all_events(calm))
    asked = Counter(line.split()[2] for line in (calm / "outside").read_text().splitlines() if line[0] == "r")
    found = [
        *itertools.product(("append", "appended", "durable"), sorted(happened)),
        *itertools.product(("request", "reply"), sorted(asked)),
        *itertools.product(("before", "late", "after"), STEPS),
    ]
    Random(1).shuffle(found)
    return found, happened + asked


def all_events(folder: Path) -> list[Event]:
    reader = SqliteReader(folder / "runs.db")
    events = [event for row in reader.runs() for event in reader.read(row.run_id)]
    reader.close()
    return events


FUNCTIONS = frozenset({"CallOpened", "FrameEntered", "FrameLeft", "StepRecorded"})
ELSEWHERE = FUNCTIONS | {"BudgetReached", "MemoryLoaded", "TokensMeasured", "ToolsFound"}
"""Kinds that this run has none of: each is cut at every commit by the tests of what it is about."""


def test_a_process_can_die_at_every_kind_of_event_but_a_few(calm: Path):
    happened = {event.kind for event in all_events(calm)}
    assert {kind.__name__ for kind in NUMBERS} - happened == ELSEWHERE


# --- what has to hold


def world(folder: Path) -> dict[str, Any]:
    """Return what there is to see in the end, without what says how it came about."""
    reader = SqliteReader(folder / "runs.db")
    runs = {}
    for row in reader.runs():
        events = list(reader.read(row.run_id))
        spawned, ended = events[0].payload, events[-1].payload
        runs[f"{spawned.item} {spawned.task}"] = {  # type: ignore[union-attr]
            "status": row.status,
            "reason": ended.reason,  # type: ignore[union-attr]
            "stages": [event.payload.stage for event in events if event.kind == "StageEntered"],  # type: ignore[union-attr]
            "questions": row.questions,
        }
    reader.close()
    status, output, reason, same = json.loads((folder / "outcome").read_text())
    return {
        "runs": runs,
        "outcome": (status, output, reason),
        "the live state is what the events add up to": same,
        "steps": sorted(line.rpartition("-")[0] for line in called(folder)),
        "draft": (folder / "work" / "draft.txt").read_text(),
        "regions": json.loads((folder / "regions").read_text()),
    }


def called(folder: Path) -> list[str]:
    """Return the shell calls that took effect: step and try."""
    return (folder / "work" / "calls.log").read_text().split()


def check_nothing_was_lost_or_doubled(folder: Path) -> None:
    events = all_events(folder)  # raises where one is missing between two
    kept = {(event.run_id, event.seq): f"{zlib.crc32(encode(event.payload))} {event.kind}" for event in events}
    lines = [line.split() for line in (folder / "outside").read_text().splitlines()]
    for _, run_id, seq, digest, kind in (line for line in lines if line[0] == "event"):
        assert kept[run_id, int(seq)] == f"{digest} {kind}"
    answers = Counter(answered_by(event) for event in events)
    answers.pop(None, None)
    assert [key for key, count in answers.items() if count > 1] == []


def answered_by(event: Event) -> tuple[str, str, tuple[int | str, ...]] | None:
    """Return what *event* is the one answer to; `None` where there may be many."""
    fields = {
        "ToolCallCompleted": ("source", "index"),
        "InferenceCompleted": ("started",),
        "QuestionAnswered": ("question",),
        "LaneCompleted": ("job",),
        "LaneDegraded": ("job",),
        "ChildEnded": ("child",),
        "ChildSpawned": ("source", "index", "item"),
        "MessageReceived": ("text",),
        "OutputSubmitted": ("stage",),
        "RunEnded": (),
    }.get(event.kind)
    if fields is None:
        return None
    name = "Lane" if event.kind.startswith("Lane") else event.kind
    return event.run_id, name, tuple(str(getattr(event.payload, field)) for field in fields)


def check_nothing_was_paid_twice(folder: Path) -> None:
    """A reply that the journal holds is never asked for again."""
    events = all_events(folder)
    by_place: dict[tuple[str, int], Any] = {(event.run_id, event.seq): event.payload for event in events}
    held: set[tuple[str, str]] = set()
    for line in map(str.split, (folder / "outside").read_text().splitlines()):
        if line[0] == "reply" and line[2] in ("stage", "routing"):
            assert (line[1], line[3]) not in held
        elif line[0] == "event" and line[4] == "InferenceCompleted":
            completed = by_place[line[1], int(line[2])]
            held.add((line[1], by_place[line[1], completed.started].prompt_digest))


# --- killing


@pytest.mark.wall_limit(900)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_run_whose_process_is_killed_again_and_again_ends_as_if_it_had_not_been(
    batch: int, zygote: Zygote, calm: Path, tmp_path: Path, nightly: bool
):
    wanted = NIGHTLY if nightly else QUICK
    found, counts = points(calm)
    random = Random(batch)
    mine = itertools.chain(found[batch::BATCHES], iter(lambda: random.choice(found), None))
    killed = 0
    for number in itertools.count():
        deaths = list(itertools.islice(mine, random.randint(1, MOST_DEATHS)))
        killed += play(zygote, prepared(tmp_path / f"{number}"), random, deaths, counts)
        assert world(tmp_path / f"{number}") == world(calm), deaths
        check_nothing_was_lost_or_doubled(tmp_path / f"{number}")
        check_nothing_was_paid_twice(tmp_path / f"{number}")
        tries = called(tmp_path / f"{number}")
        assert len(tries) == len(set(tries)), deaths
        shutil.rmtree(tmp_path / f"{number}")
        if killed >= wanted:
            break


def play(zygote: Zygote, folder: Path, random: Random, deaths: Sequence[Point], counts: Mapping[str, int]) -> int:
    """Let victims live in *folder* until one comes to an end, and return how many were killed."""
    backend, durability = random.choice(["asyncio", "trio"]), random.choice(["normal", "normal", "full"])
    killed = 0
    for where, kind in (*deaths, ("", "")):
        death: dict[str, Any] = {"where": where, "kind": kind, "number": random.randint(1, counts.get(kind, 1))}
        if kind in STEPS:
            (folder / "work" / f"kill-{kind}").write_text(where)
            death = {}
        ended = zygote.live(folder, death, backend, durability)
        said = folder / "said"
        assert ended in (0, -signal.SIGKILL), (deaths, said.read_text() if said.exists() else "")
        killed += ended != 0
        if ended == 0:
            return killed
    # The last one was to live, and was killed in a step that no earlier one came to.
    return killed + play(zygote, folder, random, (), counts)
