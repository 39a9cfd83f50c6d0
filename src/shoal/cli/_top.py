"""`shoal top`: the runs of a journal, live."""

from __future__ import annotations

import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import anyio
import msgspec
from cyclopts import Parameter
from rich.console import Group
from rich.live import Live

from shoal.cli._board import Board, drawn
from shoal.cli._places import JournalOption, journal_reader, program_of
from shoal.cli._print import console, is_terminal
from shoal.errors import ConfigInvalid
from shoal.runtime import Reader, RunState, SqliteReader, SwarmStatistics, statistics_from

EVERY_S = 0.5
"""Seconds between two looks at the journal."""
_UP, _DOWN = ("\x1b[A", "k"), ("\x1b[B", "j")


def command(
    run: Annotated[str | None, Parameter(name="RUN", help="A run; all trees unless given.")] = None,
    /,
    *,
    journal: JournalOption = None,
) -> int:
    """Watch runs on the whole terminal: who is at work, in which stage, how full its regions are, what it costs."""
    if not is_terminal() or not sys.stdin.isatty():
        raise ConfigInvalid("`shoal top` needs a terminal; `shoal ps` and `shoal tree` print what they see once")
    with journal_reader(journal) as reader:
        if reader is None:
            raise ConfigInvalid("nothing has run yet; `shoal run` makes the first run")
        roots = () if run is None else (reader.find(run).root,)
        board = Board(reader, lambda run_id: _state(reader, run_id), roots, lambda now: _said(reader, now))
        with _keys() as descriptor:
            anyio.run(_watch, board, descriptor)
    return 0


def _state(reader: Reader, run_id: str) -> RunState:
    return RunState(run_id, program_of(reader, run_id), definition=reader.definition)


def _said(reader: SqliteReader, now: float) -> Iterator[SwarmStatistics]:
    """Yield how busy each swarm is that is open on the journal, as it last said itself."""
    for said in reader.said(now=now).values():
        with suppress(msgspec.DecodeError):  # said by a version that has other words for it
            yield statistics_from(said)


@contextmanager
def _keys() -> Generator[int]:
    """Have keys arrive one by one and unseen while the block runs; Ctrl-C stays what it is."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class _View:
    """What the keys have chosen."""

    def __init__(self) -> None:
        self.chosen = 0
        self.detail = False
        self.everything = False
        self.over = False

    def press(self, key: str, most: int) -> None:
        if key == "q":
            self.over = True
        elif key in _UP:
            self.chosen = max(0, self.chosen - 1)
        elif key in _DOWN:
            self.chosen = min(max(0, most - 1), self.chosen + 1)
        elif key in ("\n", "\r"):
            self.detail = not self.detail
        elif key == "a":
            self.everything, self.chosen = not self.everything, 0


async def _watch(board: Board, descriptor: int) -> None:
    view = _View()
    with Live(console=console(), auto_refresh=False, screen=True) as live:

        def draw() -> None:
            size = live.console.size
            lines = drawn(
                board,
                width=size.width,
                height=size.height,
                chosen=view.chosen,
                detail=view.detail,
                everything=view.everything,
            )
            live.update(Group(*lines), refresh=True)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_look, board, draw)
            while not view.over:
                await anyio.wait_readable(descriptor)
                for key in _split(os.read(descriptor, 64).decode("utf-8", "replace")):
                    view.press(key, len(board.shown(everything=view.everything)))
                draw()
            tasks.cancel_scope.cancel()


async def _look(board: Board, draw: Callable[[], None]) -> None:
    while True:
        board.update(time.time())
        draw()
        await anyio.sleep(EVERY_S)


def _split(typed: str) -> Iterator[str]:
    """Yield the keys that were typed; an arrow is three characters."""
    while typed:
        length = 3 if typed.startswith("\x1b[") else 1
        yield typed[:length]
        typed = typed[length:]
