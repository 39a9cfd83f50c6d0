"""The command line on a terminal: a live view, and somebody who can be asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from front_processes import SLOW
from front_shell import Shell, newest
from front_terminal import Terminal

pytestmark = pytest.mark.wall_limit(60)

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
