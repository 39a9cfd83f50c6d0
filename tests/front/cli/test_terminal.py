"""The command line on a terminal: a live view, and somebody who can be asked."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_processes import SLOW
from front_shell import Shell, newest

pytestmark = pytest.mark.wall_limit(60)

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A vendor that wants to be paid, once.
UNPAID = """
import sys
import shoal.cli._run
from shoal.errors import ProviderSetup
from shoal.testing import ScriptedProvider, call
provider = ScriptedProvider(ProviderSetup("no credits are left"), call("submit_output", content="paid"), "done")
shoal.cli._run.providers_from = lambda: (provider,)
from shoal.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Terminal:
    """A process on a terminal of its own."""

    def __init__(self, source: str, *arguments: object) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "30"}
        command = [sys.executable, "-c", source, *map(str, arguments)]
        # Its controlling terminal, so that Ctrl-C there is a signal.
        self.process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=(slave,),
            preexec_fn=lambda: os.login_tty(slave),  # noqa: PLW1509 - no thread is at work
        )
        os.close(slave)
        self.raw = ""

    @property
    def shown(self) -> str:
        """Everything that was drawn so far, without its escape sequences."""
        return ESCAPES.sub("", self.raw)

    def read(self) -> bool:
        """Read what there is; false at the end."""
        ready, _, _ = select.select([self._master], [], [], 1.0)
        if not ready:
            return True
        try:
            data = os.read(self._master, 65_536)
        except OSError:
            return False
        self.raw += data.decode()
        return bool(data)

    def wait_for(self, words: str) -> None:
        """Read until *words* were shown."""
        until = time.monotonic() + 30
        while words not in self.shown:
            assert self.read(), self.shown
            assert time.monotonic() < until, self.shown

    def type(self, text: str) -> None:
        """Type *text*."""
        os.write(self._master, text.encode())

    def end(self) -> int:
        """Read to the end and return the exit status."""
        while self.read():
            pass
        return self.process.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminals(shell: Shell) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_a_terminal_shows_the_swarm_while_it_works(terminals: list[Terminal], pages: Path):
    terminals.append(shown := Terminal(SLOW, 0.4, "run", "digest", "--task", "Q", "--workdir", pages))
    shown.wait_for("reader harbour.md")
    shown.wait_for("0 of 4 runs over")
    shown.wait_for("▁ path")
    assert shown.end() == 0
    assert "digest complete after" in shown.shown
    assert "\x1b[32mcomplete\x1b[0m" in shown.raw
    assert shown.raw.count("\x1b[?25l") == shown.raw.count("\x1b[?25h") > 0


def test_json_keeps_the_live_view_off_standard_output(shell: Shell, pages: Path):
    said = subprocess.run(
        [sys.executable, "-m", "shoal", "run", "digest", "--task", "Q", "--workdir", str(pages), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (said.stdout.count("\n"), said.stderr) == (1, "")


def test_ctrl_c_on_a_terminal_gives_the_cursor_back(terminals: list[Terminal], shell: Shell, pages: Path):
    terminals.append(shown := Terminal(SLOW, 5, "run", "digest", "--task", "Q", "--workdir", pages))
    shown.wait_for("0 of 1 runs over")
    shown.type("\x03")
    assert shown.end() == 130
    assert shown.raw.rindex("\x1b[?25h") > shown.raw.rindex("\x1b[?25l")
    assert f"shoal resume {newest(shell)['run_id']}" in shown.shown


def test_somebody_at_a_terminal_is_asked_when_a_run_is_paused(terminals: list[Terminal], answers: Path):
    terminals.append(shown := Terminal(UNPAID, "run", answers))
    shown.wait_for("Press Enter")
    assert "answers is paused: needs setup" in shown.shown
    assert "no credits are left" in shown.shown
    shown.type("\n")
    assert shown.end() == 0
    assert "paid" in shown.shown


def test_somebody_may_leave_a_run_paused(terminals: list[Terminal], shell: Shell, answers: Path):
    terminals.append(shown := Terminal(UNPAID, "run", answers))
    shown.wait_for("Press Enter")
    shown.type("\x04")
    assert shown.end() == 3
    assert newest(shell)["status"] == "paused"


def test_ctrl_c_leaves_a_paused_run_paused(terminals: list[Terminal], shell: Shell, answers: Path):
    terminals.append(shown := Terminal(UNPAID, "run", answers))
    shown.wait_for("Press Enter")
    shown.type("\x03")
    assert shown.end() == 130
    assert newest(shell)["status"] == "paused"


def test_tables_are_coloured_on_a_terminal(terminals: list[Terminal], shell: Shell, answers: Path):
    shell("run", answers)
    terminals.append(shown := Terminal(SLOW, 0, "ps"))
    assert shown.end() == 0
    assert "\x1b[32mcomplete" in shown.raw


def test_what_a_model_wrote_cannot_steer_a_terminal(terminals: list[Terminal], shell: Shell, answers: Path):
    shell("run", answers, "--brief", "\x1b]0;owned\x07 and\nmore")
    run_id = newest(shell)["run_id"]
    terminals.append(shown := Terminal(SLOW, 0, "result", run_id))
    assert shown.end() == 0
    assert "\x1b]0;" not in shown.raw
    assert "\\x1b]0;owned\\x07 and\r\nmore" in shown.raw
