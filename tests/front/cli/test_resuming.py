"""Runs that are interrupted, killed, or stopped by a full disk: nothing is lost, and they go on."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from front_processes import SLOW, STUBBORN, hosted, wait_for
from front_shell import Serve, Shell, newest

from shoal.errors import JournalFailed, ProviderSetup
from shoal.providers import Request
from shoal.runtime import SqliteJournal
from shoal.runtime.journal import host_name
from shoal.testing import Say, ScriptedProvider, call

DEAF = """
[agent]
name = "deaf"

[stages.only]
available_tools = ["shell"]

[[stages.only.offline.policy]]
call = "shell"
args = { command = "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done" }
"""
"""A blueprint that runs a command which does not listen when it is told to end."""


def interrupt_once(text: str) -> ScriptedProvider:
    """A provider that presses Ctrl-C at its first request and never answers that one, and then submits *text*."""
    asked: list[Request] = []

    def answer(request: Request):
        if request.purpose != "stage":
            return "a title"
        asked.append(request)
        if len(asked) == 1:
            signal.raise_signal(signal.SIGINT)
            return Say("too late", delay_s=600)
        return call("submit_output", content=text) if len(asked) == 2 else "done"

    return ScriptedProvider(script=answer)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(shell: Shell, serve: Serve, answers: Path):
    serve(interrupt_once("after all"))
    said = shell("run", answers, "--workdir", answers)
    run_id = newest(shell)["run_id"]
    assert said.status == 130
    assert f"run {run_id} was interrupted and nothing is lost; go on with `shoal resume {run_id}`" in said.err
    assert newest(shell)["status"] == "interrupted"
    again = shell("resume", run_id)
    assert (again.status, again.err) == (0, "")
    assert Path("shoal-output", run_id, "report.md").read_text() == "after all\n"


def test_ctrl_c_before_the_run_began_leaves_nothing(shell: Shell, answers: Path, monkeypatch: pytest.MonkeyPatch):
    async def pressed(*_arguments: object, **_more: object) -> None:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep(600)

    monkeypatch.setattr("shoal.Swarm.spawn", pressed)
    said = shell("run", answers, "--workdir", answers)
    assert (said.status, said.out) == (130, "")
    assert said.err.endswith("shoal: interrupted before anything began\n")
    assert shell("ps", "--json").json == []


def test_a_disk_that_is_full_from_the_start_leaves_nothing(
    shell: Shell, answers: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(self: SqliteJournal, _batch: object) -> JournalFailed:
        return JournalFailed(f"{str(self.path)!r} cannot be written: database or disk is full")

    monkeypatch.setattr(SqliteJournal, "_write", full)
    said = shell("run", answers, "--workdir", answers)
    assert (said.status, said.out) == (1, "")
    assert said.err.endswith("cannot be written: database or disk is full\n")
    assert shell("ps", "--json").json == []


def test_a_run_that_is_not_over_shows_its_stage_in_the_tree(shell: Shell, serve: Serve, answers: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    assert "answers  interrupted in answer  0 in" in shell("tree").out


def test_what_happened_before_is_not_told_again(shell: Shell, serve: Serve, answers: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    said = shell("resume", newest(shell)["run_id"])
    assert "begins as run" not in said.out
    assert said.out.startswith("answers goes on\n")


def test_an_interrupted_run_says_so_in_json(shell: Shell, serve: Serve, answers: Path):
    serve(interrupt_once("after all"))
    said = shell("run", answers, "--json")
    assert (said.status, said.json["status"], said.json["output"]) == (130, "running", None)


def test_a_resumed_run_reports_where_it_was_to_report(shell: Shell, serve: Serve, answers: Path, tmp_path: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    run_id = newest(shell)["run_id"]
    os.chdir(tmp_path)
    assert shell("resume", run_id).status == 0
    assert (tmp_path / "here" / "shoal-output" / run_id / "report.md").exists()
    assert not (tmp_path / "shoal-output").exists()


def test_a_paused_run_goes_on_once_it_is_resumed(shell: Shell, serve: Serve, answers: Path):
    serve(ScriptedProvider(ProviderSetup("the key is not valid")))
    run_id = shell("run", answers, "--json").json["run_id"]
    serve(ScriptedProvider(call("submit_output", content="paid"), "done"))
    said = shell("resume", run_id, "--json")
    assert (said.status, said.json["output"], said.json["status"]) == (0, "paid", "complete")


def test_a_resumed_run_is_allowed_what_its_command_line_says(shell: Shell, serve: Serve, answers: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    run_id = newest(shell)["run_id"]
    refused = shell("resume", run_id, "--allow", "read_fiel")
    assert (refused.status, "did you mean `read_file`?" in refused.err) == (2, True)
    assert shell("resume", run_id, "--allow", "read_file").status == 0


def test_a_run_that_is_over_is_not_resumed(shell: Shell, answers: Path):
    run_id = shell("run", answers, "--json").json["run_id"]
    said = shell("resume", run_id)
    assert (said.status, said.out) == (2, "")
    assert "is over (complete)" in said.err


def test_a_run_that_lives_elsewhere_is_not_resumed(shell: Shell, serve: Serve, answers: Path, tmp_path: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    host = host_name()
    with closing(sqlite3.connect(tmp_path / "state" / "shoal" / "runs.db")) as db, db:
        db.execute("UPDATE runs SET host = ?", (host,))
        db.execute("INSERT INTO hosts VALUES (?, ?, 9e12)", (host, os.getpid()))
    said = shell("resume", newest(shell)["run_id"])
    assert (said.status, said.out) == (2, "")
    assert f"is hosted by process {os.getpid()}" in said.err


# --- real processes


@pytest.mark.wall_limit(60)
def test_a_killed_digest_is_taken_up_and_ends_as_an_undisturbed_one(shell: Shell, pages: Path):
    undisturbed = shell("run", "digest", "--task", "Q", "--workdir", pages, "--json").json
    process = hosted(SLOW, 0.3, "run", "digest", "--task", "Q", "--workdir", pages)
    wait_for(process, "enters stage split")
    refused = shell("resume", newest(shell)["run_id"])
    assert (refused.status, f"process {process.pid}" in refused.err) == (2, True)
    assert newest(shell)["status"] == "running"
    process.kill()
    process.communicate()
    row = newest(shell)
    assert row["status"] == "interrupted"
    said = shell("resume", row["run_id"], "--json").json
    assert (said["status"], said["output"]) == ("complete", undisturbed["output"])
    assert [child["status"] for child in said["children"]] == ["complete"] * 3


@pytest.mark.wall_limit(60)
@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_process_in_good_order(shell: Shell, pages: Path, by: signal.Signals):
    process = hosted(SLOW, 5, "run", "digest", "--task", "Q", "--workdir", pages)
    wait_for(process, "enters stage survey")
    process.send_signal(by)
    _, err = process.communicate()
    run_id = newest(shell)["run_id"]
    assert process.returncode == 130
    assert err.splitlines()[-1].endswith(f"go on with `shoal resume {run_id}`")
    assert "Traceback" not in err
    assert newest(shell)["status"] == "interrupted"


@pytest.mark.wall_limit(60)
def test_a_second_ctrl_c_leaves_at_once(shell: Shell, answers: Path):
    process = hosted(STUBBORN, "run", answers, "--workdir", answers)
    wait_for(process, "enters stage")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "once more leaves at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, "")
    assert newest(shell)["status"] == "interrupted"


@pytest.mark.wall_limit(60)
def test_a_second_ctrl_c_leaves_no_command_running(shell: Shell, tmp_path: Path):
    made = tmp_path / "made"
    made.mkdir()
    (made / "blueprint.toml").write_text(DEAF)
    work = tmp_path / "work"
    work.mkdir()
    (work / "note.md").write_text("A note.")
    process = hosted(SLOW, 0, "run", made, "--workdir", work, "--allow", "shell")
    while not (work / "pid").exists() or not (work / "pid").read_text().strip():
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert "once more leaves at once" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate()
    shown = subprocess.run(
        ["ps", "-o", "stat=", "-p", (work / "pid").read_text()], capture_output=True, text=True, check=False
    )
    assert shown.stdout.strip()[:1] in ("", "Z")  # the dead may wait for somebody to bury them
    assert newest(shell)["status"] == "interrupted"


@pytest.mark.wall_limit(60)
def test_a_full_disk_stops_the_runs_and_loses_nothing(shell: Shell, pages: Path, tmp_path: Path):
    for number in range(30):
        (pages / f"{number}.md").write_text("A long report on the weather at sea stands here, and it goes on. " * 400)

    def small() -> None:
        # The limit makes writes fail as a full disk does; without the signal, which would end the process first.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))

    command = [sys.executable, "-m", "shoal", "run", "digest", "--task", "Q", "--workdir", str(pages)]
    # Nothing else may write there: a measurement of the tests would be cut as well.
    measured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    said = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=small, env=measured)
    assert said.returncode == 1
    assert "runs.db' cannot be written: " in said.stderr
    assert "make room or mend the file, then resume the runs" in said.stderr
    assert "Traceback" not in said.stderr
    run_id = newest(shell)["run_id"]
    assert f"go on with `shoal resume {run_id}`" in said.stderr
    again = shell("resume", run_id, "--json").json
    assert (again["status"], len(again["children"])) == ("complete", 33)


@pytest.mark.wall_limit(60)
def test_other_commands_read_the_journal_while_it_is_written(shell: Shell, pages: Path):
    process = hosted(SLOW, 0.3, "run", "digest", "--task", "Q", "--workdir", pages)
    wait_for(process, "enters stage split")
    run_id = newest(shell)["run_id"]
    assert shell("tree", run_id, "--json").json["status"] == "running"
    assert shell("events", run_id, "--json").out.count("\n") > 5
    assert shell("stages", run_id, "--json").json[0]["stage"] == "survey"
    assert shell("context", run_id, "--json").json["run_id"] == run_id
    assert shell("result", run_id).status == 3
    process.communicate()
    assert process.returncode == 0


def test_whoever_reads_the_pipe_may_go(shell: Shell, pages: Path):
    process = hosted(SLOW, 0.1, "run", "digest", "--task", "Q", "--workdir", pages)
    wait_for(process, "begins as run")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait()
    assert newest(shell)["status"] == "complete"
    assert Path("shoal-output", newest(shell)["run_id"], "report.md").exists()


def test_two_processes_may_begin_in_one_new_journal(shell: Shell, pages: Path):
    command = [sys.executable, "-m", "shoal", "run", "digest", "--task", "Q", "--workdir", str(pages), "--json"]
    many = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [process.communicate() for process in many]
    assert [(process.returncode, err) for process, (_, err) in zip(many, said, strict=True)] == [(0, "")] * 4
    assert [row["status"] for row in shell("ps", "--json").json] == ["complete"] * 4


# --- a changed blueprint


def edited(folder: Path) -> Path:
    """Return a copy of a blueprint's folder in which the stage is told something else."""
    other = folder.with_name("edited")
    other.mkdir()
    text = (folder / "blueprint.toml").read_text()
    (other / "blueprint.toml").write_text(text.replace("Answer the task.", "Be loud."))
    return other


def test_a_run_goes_on_with_a_blueprint_that_was_edited(shell: Shell, serve: Serve, answers: Path):
    provider = interrupt_once("after all")
    serve(provider)
    shell("run", answers)
    run_id = newest(shell)["run_id"]
    again = shell("resume", run_id, "--blueprint", edited(answers))
    assert (again.status, again.err) == (0, "")
    changed = shell("events", run_id, "--kind", "BlueprintChanged", "--json").json
    assert changed["payload"]["changed"] == ["folder", "stages.answer"]
    assert "Be loud." in shell("context", run_id).out


def test_a_blueprint_that_the_run_cannot_go_on_with_is_refused_in_one_line(shell: Shell, serve: Serve, answers: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    said = shell("resume", newest(shell)["run_id"], "--blueprint", "digest")
    assert said.status == 2
    assert "cannot go on with the changed blueprint: its blueprint is 'answers'" in said.err
    assert newest(shell)["status"] == "interrupted"


def test_a_run_that_another_process_hosts_is_not_changed(shell: Shell, serve: Serve, answers: Path, tmp_path: Path):
    serve(interrupt_once("after all"))
    shell("run", answers)
    run_id = newest(shell)["run_id"]
    with closing(SqliteJournal(tmp_path / "state" / "shoal" / "runs.db", host=host_name())) as other:
        other.beat(time.time())
        other.claim([run_id])
        said = shell("resume", run_id, "--blueprint", answers)
    assert said.status == 2
    assert "which goes on with what it is made of; end that process first" in said.err
