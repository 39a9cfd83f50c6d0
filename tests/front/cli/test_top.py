"""`shoal top`: what it shows of a journal, and how it looks on a terminal of 80 by 24."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import pyte
import pytest
from front_shell import Shell
from front_terminal import Terminal

import shoal
from shoal.blueprints import Blueprint, CallerSeed, Nudge, Region, Stage
from shoal.cli._board import Board, drawn
from shoal.cli._places import program_of
from shoal.cli._top import _said, _split, _View
from shoal.providers import Usage
from shoal.runtime import (
    LaneStatistics,
    PoolStatistics,
    Run,
    RunState,
    SqliteJournal,
    SqliteReader,
    Swarm,
    SwarmStatistics,
    said_of,
    statistics_from,
    virtual,
)
from shoal.runtime.journal import BEAT_S, host_name
from shoal.testing import Say, ScriptedProvider

TASK = Region("task", kind="pinned", max_tokens=40, seed=CallerSeed("task"), volatility="stable")
TALK = Region("conversation", kind="sliding_window", max_tokens=4000, max_items=None)
QUIET = Nudge(enabled=False)
TWO = Blueprint("two", (Stage("first", nudge=QUIET), Stage("second", nudge=QUIET)), regions=(TASK, TALK))
BILLED = Say("hm", usage=Usage(1000, 0, 0, 0, 500), delay_s=3)


@asynccontextmanager
async def at_work(path: Path) -> AsyncGenerator[tuple[Board, Swarm, Run, Run]]:
    """Open a swarm with a run that is over and one that waits for its second stage's reply, and a board of both."""
    journal = SqliteJournal(path)
    provider = ScriptedProvider("one", "two", BILLED, Say("late", delay_s=500), purposes={"titling": "A title"})
    async with Swarm([provider], journal, clock=virtual()) as swarm:
        over = await swarm.spawn(TWO, task="be done")
        await over.result()
        still = await swarm.spawn(TWO, task="a task of many words, " * 5)
        await anyio.sleep(8)
        with closing(SqliteReader(path)) as reader:
            board = Board(reader, lambda run_id: RunState(run_id, program_of(reader, run_id)))
            board.update(swarm.hall.clock.unix())
            yield board, swarm, over, still
    journal.close()


def lines(board: Board, *, width: int = 80, height: int = 24, chosen: int = 0, **shown: bool) -> list[str]:
    shown = {"detail": False, "everything": False, **shown}
    found = drawn(board, width=width, height=height, chosen=chosen, **shown)
    return [each.plain.rstrip() for each in found]


@pytest.mark.anyio
async def test_only_trees_at_work_are_shown_unless_all_are_asked_for(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, _, over, still):
        assert [run.run_id for run, _ in board.shown(everything=False)] == [still.run_id]
        assert [run.run_id for run, _ in board.shown(everything=True)] == [over.run_id, still.run_id]


@pytest.mark.anyio
async def test_a_row_says_stage_tokens_cost_and_how_full_regions_are(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, _, _, _):
        _, row, *_ = lines(board)
        assert row.split()[:2] == ["two", "second"]
        assert "$" not in row
        assert "▆task" in row or "▇task" in row or "█task" in row


@pytest.mark.anyio
async def test_the_foot_says_what_is_in_flight_and_how_fast(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, _, _, _):
        counted, busy, flying, lanes, keys = lines(board)[-5:]
        assert counted.startswith("1 complete, 1 running · 1 shown")
        assert re.fullmatch(r"1[5-9]\d tokens/s · \$0\.0\d* · restarts: 0", busy)
        assert (flying, lanes) == ("in flight: scripted 1", "lanes: none")
        assert keys == "q quit  ↑↓ choose  enter regions  a all"


def said() -> SwarmStatistics:
    """Return what a swarm says of itself."""
    pools = {"anthropic": PoolStatistics(3, 12, 3, 4.5), "tools": PoolStatistics(1, 0, 8, 0.0)}
    lanes = {"titling": LaneStatistics(0, 0, 2), "compaction": LaneStatistics(4, 2, 2)}
    return statistics_from(said_of(SwarmStatistics({("two", "running"): 1}, pools, lanes, {"swarm/side/lanes": 2})))


@pytest.mark.anyio
async def test_pools_lanes_and_restarts_are_what_the_swarms_that_are_open_say_of_themselves(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, swarm, _, _):
        board._said = lambda _: [said()]
        board.update(swarm.hall.clock.unix())
        _, busy, pools, lanes, _ = lines(board)[-5:]
        assert busy.endswith("restarts: 0, by supervisors: lanes 2")
        assert pools == "pools: anthropic 3/3 +12 wait, tools 1/8"
        assert lanes == "lanes: compaction 2/2 +4 wait, titling 0/2"


@pytest.mark.anyio
async def test_what_several_swarms_say_of_one_name_is_added_up(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, swarm, _, _):
        board._said = lambda _: [said(), said()]
        board.update(swarm.hall.clock.unix())
        assert str(board.pools["anthropic"]) == "6/6 +24 wait"
        assert board.restarted == {"swarm/side/lanes": 4}


@pytest.mark.anyio
async def test_a_swarm_of_the_front_door_says_with_its_sign_of_life_how_busy_it_is(tmp_path: Path):
    path = tmp_path / "runs.db"
    provider = ScriptedProvider(*[Say("late", delay_s=500)] * 3, purposes={"titling": "A title"})
    async with shoal.Swarm([provider], journal=path, pools={"scripted": 1}, clock=virtual()) as swarm:
        for _ in range(3):
            await swarm.spawn(TWO, task="x")
        await anyio.sleep(3 * BEAT_S)
        with closing(SqliteReader(path)) as reader:
            heard = list(_said(reader, swarm.hall.clock.unix()))
            assert [each.pools["scripted"] for each in heard] == [swarm.statistics().pools["scripted"]]
            assert heard[0].pools["scripted"].busy == 1
            assert heard[0].pools["scripted"].queued >= 2  # titling asks the same provider
            assert heard[0].runs == swarm.statistics().runs
    with closing(SqliteReader(path)) as reader:
        assert list(_said(reader, 0.0)) == []
        assert not reader._query("SELECT * FROM meta WHERE key LIKE 'said %'")


def test_what_is_said_in_other_words_is_passed_over(tmp_path: Path):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path, host=host_name())) as journal, closing(SqliteReader(path)) as reader:
        journal.beat(1000.0, b'{"pools": 7}')
        assert list(_said(reader, 1000.0)) == []
        journal.beat(1001.0, b'{"pools": {}, "weather": "fine"}')
        assert list(_said(reader, 1001.0)) == [SwarmStatistics({}, {}, {}, {})]


@pytest.mark.anyio
async def test_what_happened_long_ago_is_no_rate(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, swarm, _, _):
        assert board.rate > 100
        board.update(swarm.hall.clock.unix() + 60)
        assert board.rate == 0


@pytest.mark.anyio
async def test_the_chosen_run_shows_a_bar_for_each_region(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, _, _, still):
        shown = lines(board, detail=True)
        assert any(still.run_id in each for each in shown)
        (bar,) = [each for each in shown if each.startswith("task ")]
        assert "█" in bar
        assert "of 40" in bar
        assert any(each.startswith("A title") for each in shown)


@pytest.mark.anyio
async def test_a_board_follows_what_is_new_and_forgets_who_ended(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (board, swarm, _, still):
        await still.cancel("enough")
        board.update(swarm.hall.clock.unix())
        assert board.shown(everything=False) == []
        assert board.fill(still.run_id) == {}
        assert not board.flying
        assert lines(board)[1] == "Nothing is at work. Press a to see what is over."
        assert "enough" in "\n".join(lines(board, detail=True, everything=True, chosen=1))


@pytest.mark.anyio
async def test_a_run_whose_definition_is_gone_is_shown_without_regions(tmp_path: Path):
    async with at_work(tmp_path / "runs.db") as (_, swarm, _, still):
        with closing(SqliteReader(tmp_path / "runs.db")) as reader:

            def gone(run_id: str) -> RunState:
                from shoal.errors import DefinitionMissing

                raise DefinitionMissing("gone", run_id=run_id)

            board = Board(reader, gone)
            board.update(swarm.hall.clock.unix())
        assert [run.run_id for run, _ in board.shown(everything=False)] == [still.run_id]
        assert board.fill(still.run_id) == {}


@pytest.mark.anyio
@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 6), (200, 50), (20, 4)])
async def test_a_screen_is_never_left(tmp_path: Path, width: int, height: int):
    async with at_work(tmp_path / "runs.db") as (board, _, _, _):
        shown = lines(board, width=width, height=height, detail=True, everything=True)
        assert len(shown) <= height
        assert max(map(len, shown)) <= width


@pytest.mark.anyio
async def test_the_chosen_run_stays_on_the_screen_however_many_there_are(tmp_path: Path):
    journal = SqliteJournal(tmp_path / "runs.db")
    provider = ScriptedProvider(*[Say("late", delay_s=500)] * 40, purposes={"titling": "A title"})
    async with Swarm([provider], journal, clock=virtual()) as swarm:
        for _ in range(40):
            await swarm.spawn(TWO, task="x")
        await anyio.sleep(1)
        with closing(SqliteReader(tmp_path / "runs.db")) as reader:
            board = Board(reader, lambda run_id: RunState(run_id, program_of(reader, run_id)))
            board.update(swarm.hall.clock.unix())
        found = drawn(board, width=80, height=24, chosen=33, detail=False, everything=False)
        assert sum("reverse" in str(each.spans) for each in found) == 1
        assert len(found) == 24
    journal.close()


# --- keys


def test_keys_choose_and_switch():
    view = _View()
    for key in ("j", "\x1b[B", "j", "k", "\n"):
        view.press(key, 3)
    assert (view.chosen, view.detail) == (1, True)
    view.press("a", 3)
    assert (view.chosen, view.everything) == (0, True)
    view.press("\x1b[A", 3)
    view.press("q", 3)
    assert (view.chosen, view.over) == (0, True)


def test_keys_that_came_together_are_told_apart():
    assert list(_split("j\x1b[Aq\n")) == ["j", "\x1b[A", "q", "\n"]


# --- on a terminal

TOP = "import sys\nfrom shoal.cli import main\nsys.exit(main(sys.argv[1:]))\n"


@pytest.fixture
def terminal(shell: Shell) -> Generator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        each.close()


@pytest.mark.wall_limit(60)
def test_it_fits_a_terminal_of_80_by_24_and_ends_with_q(shell: Shell, pages: Path, terminal: list[Terminal]):
    shell("run", "digest", "--task", "What is in here?", "--workdir", pages, "--json")
    terminal.append(top := Terminal(TOP, "top", columns=80, lines=24))
    top.wait_for("Nothing is at work")
    top.type("a")
    top.wait_for("digest")
    top.type("\n")
    top.wait_for("──")
    screen = pyte.Screen(80, 24)
    pyte.Stream(screen).feed(top.raw)
    assert screen.display[0].startswith("run ")
    assert screen.display[-1].startswith("q quit")
    assert sum("digest" in each for each in screen.display) >= 1
    top.type("q")
    assert top.end() == 0


@pytest.mark.wall_limit(60)
def test_a_terminal_shows_the_pools_and_lanes_of_a_swarm_in_another_process(tmp_path: Path, terminal: list[Terminal]):
    path = tmp_path / "runs.db"
    with closing(SqliteJournal(path, host=host_name())) as journal:
        journal.beat(time.time() + 3600, said_of(said()))  # however long the start of `top` takes
        terminal.append(top := Terminal(TOP, "top", "--journal", str(path), columns=80, lines=24))
        top.wait_for("q quit")
        screen = pyte.Screen(80, 24)
        pyte.Stream(screen).feed(top.raw)
        shown = [each.rstrip() for each in screen.display]
        assert "pools: anthropic 3/3 +12 wait, tools 1/8" in shown
        assert "lanes: compaction 2/2 +4 wait, titling 0/2" in shown
        top.type("q")
        assert top.end() == 0


def test_without_a_terminal_it_says_what_to_use(shell: Shell):
    said = shell("top")
    assert said.status == 2
    assert "`shoal top` needs a terminal; `shoal ps` and `shoal tree` print what they see once" in said.err
