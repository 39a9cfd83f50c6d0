"""The command line as a whole: help, versions, mistakes, and the module that runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from front_shell import Shell

import shoal
from shoal.cli import main
from shoal.cli._app import COMMANDS

PROBE = """
import sys
from shoal.cli import main
main(["--help"])
print(*[name for name in sys.modules if name.startswith("shoal.")], file=sys.stderr)
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_line_of_help_and_help_of_its_own(shell: Shell, command: str):
    assert COMMANDS[command] in shell("--help").out
    said = shell(command, "--help")
    assert said.status == 0
    assert f"Usage: shoal {command}" in said.out


def test_help_waits_for_no_command(shell: Shell):
    said = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert set(said.stderr.split()) == {"shoal.cli", "shoal.cli._app", "shoal.errors"}


def test_the_version_is_printed(shell: Shell):
    assert shell("--version").out == f"{shoal.__version__}\n"


def test_no_command_is_help(shell: Shell):
    assert shell().out.startswith("Usage: shoal COMMAND")


@pytest.mark.parametrize(
    "arguments", [("nope",), ("run",), ("ps", "extra"), ("ps", "--last", "many"), ("tree", "--zz")]
)
def test_a_wrong_command_line_is_two_lines_on_standard_error(shell: Shell, arguments: tuple[str, ...]):
    said = shell(*arguments)
    assert (said.status, said.out) == (2, "")
    assert said.err.startswith("shoal: ")
    assert said.err.splitlines()[-1].startswith("`shoal --help` lists the commands")


def test_ctrl_c_before_anything_runs_is_an_interruption(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    def pressed(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shoal.cli._ps.journal_reader", pressed)
    said = shell("ps")
    assert (said.status, said.err) == (130, "shoal: interrupted\n")


def test_the_process_arguments_are_taken_where_none_are_given(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["shoal", "ps", "--json"])
    assert main() == 0


def test_the_module_is_the_command(shell: Shell, tmp_path: Path):
    said = subprocess.run([sys.executable, "-m", "shoal", "ps", "--json"], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_a_reader_that_leaves_early_is_no_traceback(shell: Shell, pages: Path):
    run_id = shell("run", "digest", "--task", "Q", "--workdir", pages, "--json").json["run_id"]
    command = f"{sys.executable} -m shoal events {run_id} --json | head -1; exit ${{PIPESTATUS[0]}}"
    said = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (said.stdout.count("\n"), said.stderr) == (1, "")
    assert said.returncode in (0, 1)
