"""Steering a run from another command line: messages, pauses, ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_processes import SLOW, hosted, wait_for
from front_shell import Shell, newest

pytestmark = pytest.mark.wall_limit(60)


@pytest.fixture
def waits(shell: Shell, clerk: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A run that another process hosts, and which waits for an approval there."""
    with hosted(SLOW, 0, "run", clerk, "--attended") as process:
        wait_for(process, "clerk asks for an approval")
        yield process, newest(shell)["run_id"]
        process.kill()


def test_a_run_is_paused_and_goes_on_where_it_is_hosted(shell: Shell, waits: tuple[subprocess.Popen[str], str]):
    process, run_id = waits
    assert shell("pause", run_id, "--reason", "lunch").out == f"run {run_id} is paused\n"
    assert "clerk is paused: lunch" in wait_for(process, "clerk is paused")
    assert newest(shell)["status"] == "paused"
    assert shell("resume", run_id).out == f"run {run_id} goes on\n"
    wait_for(process, "clerk goes on")
    assert shell("answer", run_id, "once").status == 0
    process.communicate()
    assert process.returncode == 0


def test_a_run_that_goes_on_elsewhere_is_not_resumed(shell: Shell, waits: tuple[subprocess.Popen[str], str]):
    said = shell("resume", waits[1])
    assert said.status == 2
    assert "and goes on there already" in said.err


def test_a_pause_without_anybody_to_let_it_go_on_ends_the_command(shell: Shell, pages: Path):
    with hosted(SLOW, 2, "run", "digest", "--task", "Q", "--workdir", pages) as process:
        wait_for(process, "digest enters stage survey")
        assert shell("pause", newest(shell)["run_id"]).status == 0
        _, errors = process.communicate()
    assert process.returncode == 3
    assert "digest is paused" in errors
    assert f"go on with `shoal resume {newest(shell)['run_id']}`" in errors


def test_steering_says_in_json_where_the_run_stands(shell: Shell, waits: tuple[subprocess.Popen[str], str]):
    process, run_id = waits
    said = shell("pause", run_id, "--json").json
    assert (said["run_id"], said["status"], said["questions"]) == (run_id, "paused", 1)
    assert said["host"].startswith(f"process {process.pid} on ")


def test_a_run_is_cancelled_where_it_is_hosted(shell: Shell, waits: tuple[subprocess.Popen[str], str]):
    process, run_id = waits
    assert shell("cancel", run_id, "--reason", "not today").out == f"run {run_id} is cancelled\n"
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.endswith(f"shoal: run {run_id} ended 'cancelled': not today\n")


def test_a_message_reaches_a_run_where_it_is_hosted(shell: Shell, waits: tuple[subprocess.Popen[str], str]):
    process, run_id = waits
    assert shell("msg", run_id, "Be brief.").out == f"run {run_id} has the message\n"
    assert shell("answer", run_id, "no").status == 0
    process.communicate()
    assert "Be brief." in shell("context", run_id).out


def test_a_run_that_nobody_hosts_is_paused_until_it_is_resumed(shell: Shell, editor: str):
    assert shell("pause", editor).status == 0
    assert newest(shell)["status"] == "paused"
    assert shell("answer", editor, "print it").status == 0
    assert newest(shell)["status"] == "paused"
    assert shell("resume", editor).status == 0


def test_a_run_that_nobody_hosts_is_cancelled(shell: Shell, editor: str):
    assert shell("cancel", editor).out == f"run {editor} is cancelled\n"
    said = shell("result", editor)
    assert (said.status, "cancelled by its user" in said.err) == (1, True)


def test_a_message_waits_for_a_run_that_nobody_hosts_in_the_region_it_was_sent_to(shell: Shell, editor: str):
    Path("words.txt").write_text("Be brief.")
    said = shell("msg", editor, "@words.txt", "--region", "side")
    assert said.out.endswith(f"it goes on with `shoal resume {editor}`\n")
    assert shell("answer", editor, "again").status == 0
    assert shell("resume", editor).status == 3
    held = {each["region"]: each for each in shell("context", editor, "--json").json["regions"]}
    assert held["side"]["tokens"] > 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("msg", "", "x"), "no run has an empty id"),
        (("msg", "RUN", ""), "an empty message says nothing"),
        (("msg", "RUN", "x", "--region", "sida"), "names no region of 'editor'; did you mean `side`?"),
        (("msg", "RUN", "x", "--region", "zzz"), "names no region of 'editor'; it has `stage_instructions`, `side`"),
        (("pause", "nothing"), "this journal has no run 'nothing'"),
        (("cancel", "nothing"), "this journal has no run 'nothing'"),
    ],
)
def test_a_command_that_makes_no_sense_changes_nothing(
    shell: Shell, editor: str, command: tuple[str, ...], message: str
):
    said = shell(*(editor if word == "RUN" else word for word in command))
    assert (said.status, said.out) == (2, "")
    assert message in said.err


@pytest.mark.parametrize("command", [("pause",), ("cancel",), ("msg", "x")])
def test_a_run_that_is_over_is_not_steered(shell: Shell, answers: Path, command: tuple[str, ...]):
    shell("run", answers)
    run_id = newest(shell)["run_id"]
    said = shell(command[0], run_id, *command[1:])
    assert (said.status, f"run {run_id} is over (complete)" in said.err) == (2, True)


def test_ps_counts_what_a_tree_asks(shell: Shell, editor: str):
    assert newest(shell)["questions"] == 1
    assert shell("ps").out.splitlines()[0].split() == [
        "run",
        "name",
        "status",
        "stage",
        "below",
        "asks",
        "began",
        "title",
    ]
