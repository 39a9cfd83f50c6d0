"""People at the command line: asked at a terminal, or answering from another process."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import anyio
import pytest
from front_processes import SLOW, hosted, wait_for
from front_shell import POINT, Serve, Shell, newest, written
from front_terminal import Terminal

import shoal
from shoal.blueprints import Blueprint, InteractionPoint, Stage
from shoal.cli._desk import taken
from shoal.cli._hosted import person_at
from shoal.providers import Text, ToolCall
from shoal.runtime import Limits
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.wall_limit(60)

TALK = """
[agent]
name = "talker"

[stages.talk]
mode = "interactive"
system_prompt = "Talk."
"""


def asks(tool: str, args: str) -> str:
    """Return a blueprint whose stage calls *tool*, which asks somebody, and hands in the answer."""
    return f"""
[agent]
name = "asker"

[stages.ask]
mode = "output"
available_tools = ["{tool}"]
system_prompt = "Ask."

[[stages.ask.offline.policy]]
call = "{tool}"
args = {args}

[[stages.ask.offline.policy]]
call = "submit_output"
args = {{ content = "answer: {{result(1)}}" }}
"""


# --- at a terminal


def test_an_approval_is_given_at_the_terminal(terminals: list[Terminal], clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    assert "clerk asks, in stage work:" in shown.shown
    assert '"content": "Written."' in shown.shown
    assert "`write_file` needs your approval" in shown.shown
    assert not Path("note.md").exists()
    shown.type("1\n")
    assert shown.end() == 0
    assert Path("note.md").read_text() == "Written."


def test_what_is_refused_at_the_terminal_does_not_happen(terminals: list[Terminal], clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    shown.type("no\n")
    assert shown.end() == 0
    assert not Path("note.md").exists()
    assert "[denied]" in shown.shown


def test_an_answer_that_the_question_does_not_take_is_asked_again(terminals: list[Terminal], clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    shown.type("perhaps\n")
    shown.wait_for("does not take the answer 'perhaps'; answer with one of `once`, `stage`, `run`, `no`")
    shown.type("once\n")
    assert shown.end() == 0
    assert Path("note.md").exists()


def test_a_text_is_typed_or_taken_from_a_file(terminals: list[Terminal], tmp_path: Path):
    Path("reply.txt").write_text("from a file")
    asker = written(tmp_path, "asker", asks("ask_user_text", '{ prompt = "Which colour?" }'))
    terminals.append(shown := Terminal(SLOW, 0, "run", asker))
    shown.wait_for("Which colour?")
    shown.type("@nothing.txt\n")
    shown.wait_for("'nothing.txt' cannot be read")
    shown.type("@reply.txt\n")
    assert shown.end() == 0
    assert "answer: from a file" in shown.shown


def test_what_a_model_asks_cannot_steer_the_terminal(terminals: list[Terminal], tmp_path: Path):
    asker = written(tmp_path, "asker", asks("ask_user_text", r'{ prompt = "\u001b]0;owned\u0007?" }'))
    terminals.append(shown := Terminal(SLOW, 0, "run", asker))
    shown.wait_for(r"\x1b]0;owned\x07?")
    shown.type("\n")
    assert shown.end() == 0
    assert "\x1b]0;" not in shown.raw


@pytest.mark.parametrize(
    ("editor", "typed", "expected"),
    [
        ("sed -i s/draft/book/", "", "answer: A book."),
        ("", "A page.\n", "answer: A page."),
        ("", "\n", "answer: A draft."),
        ("false", "\n", "answer: A draft."),
        ("no-such-editor", "\n", "answer: A draft."),
    ],
)
def test_a_document_is_edited_in_the_editor_or_on_a_line(
    terminals: list[Terminal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editor: str, typed: str, expected: str
):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    asker = written(tmp_path, "asker", asks("edit_document", '{ content = "A draft." }'))
    terminals.append(shown := Terminal(SLOW, 0, "run", asker))
    shown.wait_for("Edit the text.")
    shown.type(typed)
    assert shown.end() == 0
    assert expected in shown.shown


def test_an_editor_is_stopped_where_the_question_is_answered_elsewhere(
    terminals: list[Terminal], shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VISUAL", "sh -c 'stty raw -echo; echo editing; sleep 600'")
    asker = written(tmp_path, "asker", asks("edit_document", '{ content = "A draft." }'))
    terminals.append(shown := Terminal(SLOW, 0, "run", asker))
    shown.wait_for("editing")
    assert shell("answer", newest(shell)["run_id"], "A book.").status == 0
    shown.wait_for("That was answered elsewhere, or nobody waits for it any more.\r\n")
    assert shown.end() == 0
    assert "answer: A book." in shown.shown


def test_a_point_is_asked_at_the_terminal_until_it_lets_the_stage_go(terminals: list[Terminal], tmp_path: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", written(tmp_path, "editor", POINT)))
    shown.wait_for("4  again")
    shown.type("edit it\n")
    shown.wait_for("Edit the text.")
    shown.type("A second draft.\n")
    shown.wait_for("4  again", times=2)
    shown.type("print it\n")
    assert shown.end() == 0


def test_a_stage_talks_until_nothing_more_is_said(terminals: list[Terminal], tmp_path: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", written(tmp_path, "talker", TALK), "--task", "Hello."))
    shown.wait_for("What next? An empty answer ends the stage.")
    shown.type("\n")
    assert shown.end() == 0
    assert "complete_interactive" in shown.shown


def test_ctrl_d_leaves_a_question_open_and_says_how_to_answer_it(terminals: list[Terminal], shell: Shell, clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    shown.type("\x04")
    assert shown.end() == 3
    run_id = newest(shell)["run_id"]
    assert f"run {run_id} waits for 1 answer" in shown.shown
    assert f"answer with `shoal answer {run_id} TEXT --question " in shown.shown
    assert f"go on with `shoal resume {run_id}`" in shown.shown


def test_ctrl_c_at_a_question_leaves_it_open(terminals: list[Terminal], shell: Shell, clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    shown.type("\x03")
    assert shown.end() == 130
    assert newest(shell)["questions"] == 1


def test_a_question_that_is_answered_elsewhere_is_not_waited_for(terminals: list[Terminal], shell: Shell, clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    assert shell("answer", newest(shell)["run_id"], "once").status == 0
    shown.wait_for("That was answered elsewhere")
    assert shown.end() == 0
    assert Path("note.md").exists()


def test_yes_allows_what_would_need_approval(terminals: list[Terminal], clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk, "--yes"))
    assert shown.end() == 0
    assert Path("note.md").exists()
    assert "asks" not in shown.shown


def test_yes_allows_nothing_that_is_denied(shell: Shell, clerk: Path):
    with (clerk / "blueprint.toml").open("a") as file:
        file.write('\n[tool_permissions]\nwrite_file = "deny"\n')
    assert "[denied]" in shell("run", clerk, "--yes").out
    assert not Path("note.md").exists()


def test_an_unattended_run_asks_nobody_even_at_a_terminal(terminals: list[Terminal], clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk, "--unattended"))
    assert shown.end() == 0
    assert "nobody is there" in shown.shown
    assert not Path("note.md").exists()


def test_a_paused_run_that_is_let_go_on_from_elsewhere_goes_on(terminals: list[Terminal], shell: Shell, clerk: Path):
    terminals.append(shown := Terminal(SLOW, 0, "run", clerk))
    shown.wait_for("4  no")
    run_id = newest(shell)["run_id"]
    assert shell("pause", run_id).status == 0
    assert shell("answer", run_id, "once").status == 0
    shown.wait_for("Press Enter")
    assert shell("resume", run_id).status == 0
    assert shown.end() == 0
    assert Path("note.md").exists()


@pytest.mark.anyio
@pytest.mark.parametrize("late", ["answered", "over"])
async def test_an_answer_that_comes_too_late_is_not_asked_for_again(late: str):
    point = InteractionPoint("look", "Is it good?")
    made = Blueprint(
        "b", (Stage("write", system_prompt="Write.", mode="interactive_points", interaction_points=(point,)),)
    )
    provider = ScriptedProvider(script=lambda _request: "a draft")
    async with shoal.Swarm([provider], limits=Limits(question_s=None)) as swarm:
        run = await swarm.spawn(made, unattended=False)
        while not run.questions():  # noqa: ASYNC110 - on virtual time
            await anyio.sleep(1)
        (question,) = run.questions()
        await (run.answer("fine") if late == "answered" else run.cancel())
        assert await taken(swarm, question, "good")


def test_a_job_in_the_background_asks_nobody(terminals: list[Terminal], clerk: Path):
    background = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'shoal', *sys.argv[1:]]\n"
        "sys.exit(subprocess.run(command, process_group=0).returncode)\n"
    )
    terminals.append(shown := Terminal(background, "run", clerk))
    assert shown.end() == 0
    assert "nobody is there" in shown.shown


def test_a_terminal_without_jobs_is_asked(monkeypatch: pytest.MonkeyPatch):
    def no_jobs(_descriptor: int) -> int:
        raise OSError(25, "Inappropriate ioctl for device")

    master, slave = os.openpty()
    with os.fdopen(master), os.fdopen(slave, "r") as typed:
        monkeypatch.setattr("sys.stdin", typed)
        monkeypatch.setattr("os.tcgetpgrp", no_jobs)
        monkeypatch.setattr("shoal.cli._hosted.is_terminal", lambda: True)
        assert person_at(attended=None, as_json=False) == "here"


# --- without a terminal


def test_nobody_is_asked_where_nobody_is_there(shell: Shell, clerk: Path):
    said = shell("run", clerk)
    assert (said.status, newest(shell)["questions"]) == (0, 0)
    assert "[denied]" in said.out
    assert "nobody is there" in said.out


def test_a_point_that_must_be_asked_ends_the_command_and_is_answered_later(shell: Shell, tmp_path: Path):
    editor = written(tmp_path, "editor", POINT)
    said = shell("run", editor)
    (question,) = shell("answer", "--json").json
    run_id, seq = question["run_id"], question["seq"]
    assert said.status == 3
    assert f"run {run_id} waits for 1 answer" in said.err
    assert "editor asks: Is it good? (one of `print it`, `edit it`, `drop it`, `again`)" in said.err
    assert f"answer with `shoal answer {run_id} TEXT --question {seq}`" in said.err
    assert shell("resume", run_id).status == 3
    answered = shell("answer", run_id, "1")
    assert answered.out == (
        f"run {run_id} has the answer\nno process hosts it; it goes on with `shoal resume {run_id}`\n"
    )
    again = shell("resume", run_id)
    assert (again.status, again.err) == (0, "")


def test_json_says_that_a_run_waits_and_standard_error_how_it_goes_on(shell: Shell, tmp_path: Path):
    said = shell("run", written(tmp_path, "editor", POINT), "--json")
    assert (said.status, said.json["status"], said.json["output"]) == (3, "running", None)
    assert "shoal answer" in said.err


def test_an_attended_run_waits_for_answers_from_elsewhere(shell: Shell, clerk: Path):
    with hosted(SLOW, 0, "run", clerk, "--attended") as process:
        said = wait_for(process, "clerk asks for an approval")
        (run_id,) = re.findall(r"shoal answer ([0-9a-f-]+)", said)
        assert shell("answer", run_id, "run").status == 0
        _, errors = process.communicate()
    assert (process.returncode, "waits for" in errors) == (0, False)
    assert Path("note.md").exists()


def test_calls_of_a_turn_that_asks_come_to_their_end_before_the_command_does(
    shell: Shell, serve: Serve, tmp_path: Path
):
    calls = (
        ToolCall("1", "ask_user_text", Text.of('{"prompt": "Which colour?"}')),
        ToolCall("2", "shell", Text.of(json.dumps({"command": "sleep 0.3; echo done > done.txt"}))),
    )
    serve(ScriptedProvider(Say(calls=calls), "over", purposes={"titling": "T"}))
    source = asks("ask_user_text", '{ prompt = "x" }').replace(
        'available_tools = ["ask_user_text"]',
        'available_tools = ["ask_user_text", "shell"]\nrequired_tools = ["ask_user_text"]',
    )
    said = shell("run", written(tmp_path, "asker", source), "--yes")
    assert (said.status, Path("done.txt").exists()) == (3, True)


# --- answering


def test_what_is_asked_is_listed_with_the_command_that_answers_it(shell: Shell, editor: str):
    said = shell("answer", editor)
    assert said.status == 0
    assert "(look, stage write):\nIs it good?\none of `print it`, `edit it`, `drop it`, `again`\n" in said.out
    assert f"answer with `shoal answer {editor} TEXT --question" in said.out
    assert shell("answer").out == said.out


def test_a_question_is_a_json_object(shell: Shell, editor: str):
    (question,) = shell("answer", editor, "--json").json
    assert (question["run_id"], question["about"], question["point"], question["stage"]) == (
        editor,
        "choice",
        "look",
        "write",
    )
    assert question["options"] == ["print it", "edit it", "drop it", "again"]


def test_a_document_is_listed_with_its_question(shell: Shell, tmp_path: Path):
    source = asks("present_for_review", '{ title = "The plan", markdown = "# Plan" }').replace(
        'available_tools = ["present_for_review"]',
        'available_tools = ["present_for_review"]\nrequired_tools = ["present_for_review"]',
    )
    assert shell("run", written(tmp_path, "asker", source)).status == 3
    assert "(present_for_review, stage ask):\n# Plan\nThe plan\n" in shell("answer").out


def test_a_result_that_waits_for_an_answer_says_so(shell: Shell, editor: str):
    said = shell("result", editor)
    assert (said.status, f"it asks somebody, see `shoal answer {editor}`" in said.err) == (3, True)


def test_an_answer_says_in_json_where_its_run_stands(shell: Shell, editor: str):
    assert shell("answer", editor, "print it", "--json").json == {
        "run_id": editor,
        "status": "interrupted",
        "questions": 0,
        "host": None,
    }


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ("perhaps",),
            "does not take the answer 'perhaps'; answer with one of `print it`, `edit it`, `drop it`, `again`",
        ),
        (("print it", "--question", "99"), "does not ask a question 99; see `shoal answer"),
        (("@nothing.txt",), "'nothing.txt' cannot be read"),
    ],
)
def test_an_answer_that_cannot_be_given_is_refused(shell: Shell, editor: str, more: tuple[str, ...], message: str):
    said = shell("answer", editor, *more)
    assert (said.status, said.out) == (2, "")
    assert message in said.err
    assert newest(shell)["questions"] == 1


def test_a_run_that_asks_nothing_takes_no_answer(shell: Shell, editor: str):
    shell("answer", editor, "print it")
    assert shell("answer", editor).out == "Nobody is asked anything.\n"
    said = shell("answer", editor, "print it")
    assert (said.status, "asks nothing; `shoal answer` lists what is asked" in said.err) == (2, True)


def test_a_run_that_is_over_asks_nothing(shell: Shell, editor: str):
    assert shell("answer", editor, "drop it").status == 0
    assert shell("resume", editor).status == 1
    said = shell("answer", editor)
    assert (said.status, f"run {editor} is over (cancelled)" in said.err) == (2, True)


def test_several_questions_must_be_told_apart(shell: Shell, editor: str, serve: Serve, tmp_path: Path):
    calls = tuple(ToolCall(str(n), "ask_user_text", Text.of('{"prompt": "Which?"}')) for n in range(2))
    serve(ScriptedProvider(Say(calls=calls), purposes={"titling": "T"}))
    source = asks("ask_user_text", '{ prompt = "x" }').replace("mode =", 'required_tools = ["ask_user_text"]\nmode =')
    shell("run", written(tmp_path, "asker", source))
    row = newest(shell)
    said = shell("answer", row["run_id"], "red")
    assert (said.status, row["questions"]) == (2, 2)
    assert "2 questions could be meant" in said.err


def test_a_question_of_a_child_is_answered_through_the_run_above_it(shell: Shell, tmp_path: Path):
    lead = written(tmp_path, "lead", LEAD)
    written(lead, "editor", POINT)
    assert shell("run", lead).status == 3
    row = newest(shell)
    (question,) = shell("answer", row["run_id"], "--json").json
    assert question["run_id"] != row["run_id"]
    assert row["questions"] == 1
    assert shell("answer", row["run_id"], "print it").status == 0
    assert shell("resume", row["run_id"]).status == 0


LEAD = """
[agent]
name = "lead"

[context.regions]
finds = { kind = "temporary", max_tokens = 2000 }

[stages.split]
mode = "fan_out"
worker_agent = "blueprint:editor"
results_region = "finds"
system_prompt = "Split."

[[stages.split.offline.policy]]
call = "fan_out"
args = { items = [{ id = "one" }] }
"""


def test_there_is_nothing_to_answer_before_anything_ran(shell: Shell):
    assert shell("answer").out == "Nobody is asked anything.\n"
    assert shell("answer", "--json").json == []
    said = shell("answer", "abc")
    assert (said.status, "nothing has run yet" in said.err) == (2, True)
