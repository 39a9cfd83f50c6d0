"""People in the loop: approvals, tools that ask, interaction points, stages that talk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from runkit import (
    NOTES,
    TALK,
    TASK,
    blueprint,
    bodies,
    edge,
    events_of,
    kinds,
    messages,
    payloads,
    stage,
    swarm_of,
)

from shoal.blueprints import Blueprint, InteractionPoint
from shoal.errors import AnswerRefused
from shoal.providers import Text, ToolCall
from shoal.runtime import FunctionTool, Limits, Question, Run, SqliteJournal, Swarm, ToolResult, tool
from shoal.testing import Say, ScriptedProvider

pytestmark = pytest.mark.anyio

ATTENDED: dict[str, Any] = {"unattended": False, "task": "x"}


def scripted(*replies: object) -> ScriptedProvider:
    return ScriptedProvider(*replies, purposes={"titling": "A title"})  # type: ignore[arg-type]


def asks(call_id: str, name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(call_id, name, Text.of(json.dumps(arguments)))


def call(name: str, call_id: str = "c1", **arguments: Any) -> Say:
    return Say(calls=(asks(call_id, name, arguments),))


class Bell:
    """A tool that needs approval, and counts how often it rang."""

    def __init__(self) -> None:
        self.rang = 0

    def tool(self) -> FunctionTool[[], str]:
        @tool(permission="ask", name="ring")
        async def ring() -> str:
            """Ring the bell."""
            self.rang += 1
            return "rung"

        return ring


def with_bell(**more: Any) -> Blueprint:
    return blueprint(stage(available_tools=("ring",), **more))


async def open_questions(swarm: Swarm, count: int) -> list[Question]:
    """Return the questions that are open, once there are *count*."""
    while len(swarm.questions()) < count:  # noqa: ASYNC110 - on virtual time
        await anyio.sleep(1)
    return list(swarm.questions())


async def asked(swarm: Swarm) -> Question:
    """Return the only question that is open, once there is one."""
    (question,) = await open_questions(swarm, 1)
    return question


async def answered(swarm: Swarm, run: Run, *answers: str) -> list[Question]:
    """Answer as many questions as there are *answers*, one behind the other, and return them."""
    questions: list[Question] = []
    for text in answers:
        question = await asked(swarm)
        questions.append(question)
        await run.answer(text, question=question.seq)
    return questions


def results(provider: ScriptedProvider) -> list[str]:
    """Return the tool results in the newest request."""
    return [text for role, text in messages(bodies(provider)[-1]) if role == "tool"]


# --- approvals


async def test_a_call_that_needs_approval_runs_once_somebody_gave_it():
    bell = Bell()
    async with swarm_of(scripted(call("ring"), "done")) as swarm:
        run = await swarm.spawn(with_bell(), tools=[bell.tool()], **ATTENDED)
        question = await asked(swarm)
        assert (question.about, question.tool, question.options) == ("approval", "ring", ("once", "stage", "run", "no"))
        assert bell.rang == 0
        await run.answer("once")
        await run.result()
    assert bell.rang == 1


async def test_a_call_that_is_refused_has_no_effect_and_says_so():
    bell, provider = Bell(), scripted(call("ring"), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(with_bell(), tools=[bell.tool()], **ATTENDED)
        await answered(swarm, run, "no")
        await run.result()
    assert bell.rang == 0
    assert results(provider) == ["[denied] `ring` needs somebody's approval, and it was refused"]


@pytest.mark.parametrize(("scope", "questions"), [("once", 3), ("stage", 2), ("run", 1)])
async def test_an_approval_holds_as_far_as_its_scope(scope: str, questions: int):
    bell = Bell()
    made = blueprint(
        stage("a", available_tools=("ring",), transitions=(edge("b"),)), stage("b", available_tools=("ring",))
    )
    replies = (call("ring", "1"), call("ring", "2"), "on", call("ring", "3"), "done")
    async with swarm_of(scripted(*replies)) as swarm:
        run = await swarm.spawn(made, tools=[bell.tool()], **ATTENDED)
        await answered(swarm, run, *[scope] * questions)
        await run.result()
        assert len(payloads(events_of(swarm, run), "QuestionAsked")) == questions
    assert bell.rang == 3


async def test_two_calls_of_one_turn_are_approved_each_for_itself():
    bell, provider = Bell(), scripted(Say(calls=(asks("1", "ring", {}), asks("2", "ring", {}))), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(with_bell(), tools=[bell.tool()], **ATTENDED)
        first, second = await open_questions(swarm, 2)
        await run.answer("no", question=second.seq)
        await run.answer("once", question=first.seq)
        await run.result()
    assert results(provider) == ["rung", "[denied] `ring` needs somebody's approval, and it was refused"]


async def test_an_answer_to_one_of_two_questions_must_say_which():
    replies = (Say(calls=(asks("1", "ring", {}), asks("2", "ring", {}))), "done")
    async with swarm_of(scripted(*replies)) as swarm:
        run = await swarm.spawn(with_bell(), tools=[Bell().tool()], **ATTENDED)
        await open_questions(swarm, 2)
        with pytest.raises(AnswerRefused, match="asks 2 questions; name one by its number"):
            await run.answer("once")
        await run.cancel()


async def test_an_approval_nobody_gives_in_time_is_a_refusal():
    provider = scripted(call("ring"), "done")
    async with swarm_of(provider, limits=Limits(question_s=100)) as swarm:
        run = await swarm.spawn(with_bell(), tools=[Bell().tool()], **ATTENDED)
        await run.result()
        assert [p.by for p in payloads(events_of(swarm, run), "QuestionAnswered")] == ["timeout"]
    assert results(provider) == ["[denied] `ring` needs somebody's approval and nobody answered"]


async def test_a_run_that_nobody_attends_asks_nobody():
    provider = scripted(call("ring"), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(with_bell(), tools=[Bell().tool()], task="x")
        await run.result()
        assert "QuestionAsked" not in kinds(events_of(swarm, run))
    (result,) = results(provider)
    assert result.startswith("[denied] ")
    assert result.endswith("nobody is there; allow it with `--allow ring`")


async def test_a_shell_line_is_approved_under_what_it_does(tmp_path: Path):
    made = blueprint(stage(available_tools=("shell",)))
    replies = (call("shell", "1", command="touch a"), call("shell", "2", command="touch b; mkdir c"), "done")
    async with swarm_of(scripted(*replies)) as swarm:
        run = await swarm.spawn(made, workdir=tmp_path, tools=[Bell().tool()], **ATTENDED)
        await answered(swarm, run, "run", "run")
        await run.result()
        grants = [set(payload.keys) for payload in payloads(events_of(swarm, run), "GrantGiven")]
    assert grants == [{"touch"}, {"touch", "mkdir"}]
    assert all((tmp_path / name).exists() for name in "abc")


async def test_a_shell_line_that_cannot_be_read_is_approved_only_once(tmp_path: Path):
    made = blueprint(stage(available_tools=("shell",)))
    async with swarm_of(scripted(call("shell", command="echo $(whoami)"), "done")) as swarm:
        run = await swarm.spawn(made, workdir=tmp_path, tools=[Bell().tool()], **ATTENDED)
        question = await asked(swarm)
        assert question.options == ("once", "no")
        with pytest.raises(AnswerRefused, match="answer with one of `once`, `no`"):
            await run.answer("run")
        await run.answer("no")
        await run.result()


async def test_an_approval_survives_a_restart_and_the_call_runs_once(tmp_path: Path):
    path, bell = tmp_path / "runs.db", Bell()
    journal = SqliteJournal(path)
    async with swarm_of(scripted(call("ring")), journal=journal) as swarm:
        await swarm.spawn(with_bell(), tools=[bell.tool()], **ATTENDED)
        before = await asked(swarm)
    journal.close()
    journal = SqliteJournal(path)
    async with swarm_of(scripted("done"), journal=journal) as swarm:
        assert await asked(swarm) == before
        again = await swarm.resume_tree(before.run_id, tools=[bell.tool()])
        await again.answer("once")
        assert (await again.result()).output == "done"
    journal.close()
    assert bell.rang == 1


# --- tools that ask


ASKING: dict[str, dict[str, Any]] = {
    "ask_user_text": {"prompt": "Your name?"},
    "ask_user_confirm": {"prompt": "Sure?"},
    "ask_user_choice": {"prompt": "Which?", "options": ["red", "green"]},
    "present_for_review": {"title": "The plan", "markdown": "# Plan"},
    "edit_document": {"content": "draft"},
}


@pytest.mark.parametrize(
    ("name", "answer", "result"),
    [
        ("ask_user_text", "Ada", "Ada"),
        ("ask_user_confirm", "y", "yes"),
        ("ask_user_choice", "2", "green"),
        ("ask_user_choice", "red", "red"),
        ("present_for_review", "fine", "fine"),
        ("edit_document", "final", "final"),
    ],
)
async def test_what_a_person_says_is_the_result_of_the_tool_that_asked(name: str, answer: str, result: str):
    provider = scripted(call(name, **ASKING[name]), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=tuple(ASKING))), **ATTENDED)
        await answered(swarm, run, answer)
        await run.result()
    assert results(provider) == [result]


@pytest.mark.parametrize(
    ("name", "prompt", "body", "options"),
    [
        ("ask_user_text", "Your name?", None, ()),
        ("ask_user_confirm", "Sure?", None, ("yes", "no")),
        ("ask_user_choice", "Which?", None, ("red", "green")),
        ("present_for_review", "The plan", "# Plan", ()),
        ("edit_document", "Edit the text.", "draft", ()),
    ],
)
async def test_a_question_says_what_it_is_about(name: str, prompt: str, body: str | None, options: tuple[str, ...]):
    async with swarm_of(scripted(call(name, **ASKING[name]), "done")) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=tuple(ASKING))), **ATTENDED)
        question = await asked(swarm)
        assert (question.prompt, question.body, question.options) == (prompt, body, options)
        assert (question.run_id, question.stage, question.tool) == (run.run_id, "work", name)
        assert question.plain()["options"] == list(options)
        await run.cancel()


async def test_a_choice_that_is_not_offered_is_refused_and_the_question_stays():
    name = "ask_user_choice"
    async with swarm_of(scripted(call(name, **ASKING[name]), "done")) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=(name,))), **ATTENDED)
        question = await asked(swarm)
        for wrong in ("blue", "3", ""):
            with pytest.raises(AnswerRefused, match="answer with one of `red`, `green`"):
                await run.answer(wrong)
        assert swarm.questions() == [question]
        await run.cancel()


async def test_a_model_is_told_that_nobody_answered():
    provider = scripted(call("ask_user_text", prompt="?"), "done")
    async with swarm_of(provider, limits=Limits(question_s=10)) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("ask_user_text",))), **ATTENDED)
        await run.result()
    assert results(provider) == ["Nobody answered. Go on without an answer."]


async def test_a_question_may_wait_for_ever():
    async with swarm_of(scripted(call("ask_user_text", prompt="?"), "done"), limits=Limits(question_s=None)) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("ask_user_text",))), **ATTENDED)
        await anyio.sleep(50_000)
        assert (await asked(swarm)).expires_at is None
        await run.answer("at last")
        assert (await run.result()).output == "done"


async def test_a_run_nobody_attends_is_offered_no_tool_that_asks():
    provider = scripted("done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("ask_user_text", "context_append"))), task="x")
        await run.result()
    assert [offered["function"]["name"] for offered in bodies(provider)[0]["tools"]] == ["context_append"]


async def test_other_calls_of_the_turn_run_while_a_person_is_asked():
    replies = (Say(calls=(asks("1", "ask_user_text", {"prompt": "?"}), asks("2", "ring", {}))), "done")
    rung = anyio.Event()

    @tool
    async def ring() -> ToolResult:
        """Ring."""
        rung.set()
        return ToolResult.of("rung")

    provider = scripted(*replies)
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("ask_user_text", "ring"))), tools=[ring], **ATTENDED)
        await rung.wait()
        await answered(swarm, run, "yes")
        await run.result()
    assert results(provider) == ["yes", "rung"]


async def test_an_answer_where_nothing_is_asked_is_refused():
    async with swarm_of(scripted(Say("late", delay_s=10))) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=())), **ATTENDED)
        with pytest.raises(AnswerRefused, match="asks nothing"):
            await run.answer("hello")
        with pytest.raises(AnswerRefused, match="does not ask a question 7"):
            await run.answer("hello", question=7)
        await run.result()


async def test_a_paused_run_takes_an_answer_and_goes_on_with_it_when_it_is_resumed():
    provider = scripted(call("ask_user_text", prompt="?"), "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(blueprint(stage(available_tools=("ask_user_text",))), **ATTENDED)
        question = await asked(swarm)
        await run.pause()
        await run.answer("early", question=question.seq)
        await anyio.sleep(10)
        assert len(provider.requests) == 1 + sum(request.purpose == "titling" for request in provider.requests)
        await run.resume()
        await run.result()
    assert results(provider) == ["early"]


# --- interaction points


def point(**more: Any) -> InteractionPoint:
    more.setdefault("prompt", "Good?")
    return InteractionPoint("review", **more)


def reviewed(*points: InteractionPoint, regions: tuple[Any, ...] = (TASK, NOTES, TALK)) -> Blueprint:
    first = stage("a", available_tools=(), interaction_points=points, transitions=(edge("b"),))
    return blueprint(first, stage("b", available_tools=()), regions=regions)


CHOICE = point(
    style="multiple_choice",
    options=("Accept", "Stop", "Edit", "Longer"),
    abort_options=("Stop",),
    edit_options=("Edit",),
    directives={"Longer": "Write more."},
)


async def test_a_stage_waits_at_its_point_and_goes_on_when_it_is_accepted():
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        (question,) = await answered(swarm, run, "Accept")
        assert (question.point, question.about, question.options) == ("review", "choice", CHOICE.options)
        assert (await run.result()).output == "done"


async def test_a_persons_own_words_at_a_free_point_are_in_the_next_request():
    provider = scripted("draft", "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(reviewed(point()), **ATTENDED)
        await answered(swarm, run, "mind the gap")
        await run.result()
        assert len(payloads(events_of(swarm, run), "QuestionAsked")) == 1
    assert "mind the gap" in str(bodies(provider)[-1])


async def test_an_answer_that_aborts_cancels_the_run():
    async with swarm_of(scripted("draft")) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        await answered(swarm, run, "Stop")
        outcome = await run.result()
        assert (outcome.status, outcome.reason) == ("cancelled", "a person chose 'Stop' at the end of stage 'a'")


async def test_a_directive_sends_the_stage_back_and_the_point_asks_again():
    provider = scripted("draft", "longer draft", "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        await answered(swarm, run, "Longer", "Accept")
        assert (await run.result()).output == "done"
    assert ("user", "[System] Write more.") in messages(bodies(provider)[1])


async def test_dashes_and_blanks_of_an_answer_do_not_matter():
    asking = point(style="multiple_choice", options=("Go — on", "No"), abort_options=("Go – on",))
    async with swarm_of(scripted("draft")) as swarm:
        run = await swarm.spawn(reviewed(asking), **ATTENDED)
        await answered(swarm, run, "Go  -  on")
        assert (await run.result()).status == "cancelled"


async def test_a_point_lets_the_stage_go_after_its_rounds():
    provider = scripted("one", "two", "three", "done")
    async with swarm_of(provider, limits=Limits(point_rounds=2)) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        await answered(swarm, run, "Longer", "Longer")
        assert (await run.result()).output == "done"
        assert len(payloads(events_of(swarm, run), "QuestionAsked")) == 2


async def test_an_edited_text_takes_the_place_of_the_models():
    provider = scripted("draft", "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        questions = await answered(swarm, run, "Edit", "my own draft", "Accept")
        assert [(q.about, q.body) for q in questions] == [("choice", None), ("edit", "draft"), ("choice", None)]
        await run.result()
    assert ("user", "my own draft") in messages(bodies(provider)[-1])


async def test_a_document_region_shows_the_text_that_is_asked_about_and_nothing_else():
    provider = scripted("draft", "longer draft", "done")
    asking = point(
        style="multiple_choice", options=("Ok", "More"), directives={"More": "More."}, document_region="notes"
    )
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(reviewed(asking), **ATTENDED)
        await answered(swarm, run, "More", "Ok")
        await run.result()
        held = swarm.state(run.run_id).view.states["notes"].all_entries()
    assert [entry.message.text for entry in held] == ["longer draft"]


async def test_a_document_region_notes_that_a_person_edited_it():
    asking = point(style="multiple_choice", options=("Ok", "Edit"), edit_options=("Edit",), document_region="notes")
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(asking), **ATTENDED)
        await answered(swarm, run, "Edit", "mine", "Ok")
        await run.result()
        held = swarm.state(run.run_id).view.states["notes"].all_entries()
    assert [entry.message.text for entry in held] == ["mine"]


async def test_a_confirmation_takes_yes_or_no():
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(point(style="confirm", abort_options=("no",))), **ATTENDED)
        (question,) = await answered(swarm, run, "n")
        assert question.options == ("yes", "no")
        assert (await run.result()).status == "cancelled"


async def test_a_required_point_takes_no_empty_answer():
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(point()), **ATTENDED)
        await asked(swarm)
        with pytest.raises(AnswerRefused, match="does not take an empty answer; say something"):
            await run.answer(" ")
        await run.cancel()


async def test_a_point_that_is_not_required_is_passed_with_an_empty_answer():
    asking = point(style="multiple_choice", options=("A", "B"), required=False)
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(asking), **ATTENDED)
        await answered(swarm, run, "")
        assert (await run.result()).output == "done"


async def test_a_point_nobody_answers_lets_the_stage_go():
    async with swarm_of(scripted("draft", "done"), limits=Limits(question_s=60)) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        assert (await run.result()).output == "done"


async def test_an_unattended_run_passes_its_points():
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), task="x")
        assert (await run.result()).output == "done"
        assert "QuestionAsked" not in kinds(events_of(swarm, run))


async def test_a_point_that_asks_even_unattended_fails_where_nobody_answers():
    asking = point(unattended="ask")
    async with swarm_of(scripted("draft"), limits=Limits(question_s=60)) as swarm:
        run = await swarm.spawn(reviewed(asking), task="x")
        outcome = await run.result()
        assert (outcome.status, outcome.reason) == ("error", "nobody answered the question 'review' of stage 'a'")


async def test_two_points_are_asked_one_behind_the_other():
    two = (point(), InteractionPoint("second", "And now?"))
    async with swarm_of(scripted("draft", "done")) as swarm:
        run = await swarm.spawn(reviewed(*two), **ATTENDED)
        questions = await answered(swarm, run, "fine", "on")
        assert [question.point for question in questions] == ["review", "second"]
        await run.result()


async def test_a_point_survives_a_restart_and_its_stage_is_not_paid_again(tmp_path: Path):
    path = tmp_path / "runs.db"
    journal = SqliteJournal(path)
    async with swarm_of(scripted("draft"), journal=journal) as swarm:
        await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        before = await asked(swarm)
    journal.close()
    journal, provider = SqliteJournal(path), scripted("done")
    async with swarm_of(provider, journal=journal) as swarm:
        run = await swarm.resume_tree(before.run_id)
        assert await asked(swarm) == before
        await run.answer("Accept")
        assert (await run.result()).output == "done"
    journal.close()
    assert len(bodies(provider)) == 1


async def test_a_run_that_waits_for_a_person_sleeps_and_comes_back_with_the_answer():
    async with swarm_of(scripted("draft", "done"), limits=Limits(idle_s=60)) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        await anyio.sleep(1000)
        assert run.run_id not in swarm.hall.home.live
        await answered(swarm, run, "Accept")
        assert (await run.result()).output == "done"


async def test_a_question_runs_out_while_its_run_sleeps():
    async with swarm_of(scripted("draft", "done"), limits=Limits(idle_s=60, question_s=3000)) as swarm:
        run = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        assert (await run.result()).output == "done"
        assert "RunPassivated" in kinds(events_of(swarm, run))


# --- stages that talk


def talking() -> Blueprint:
    return blueprint(stage(available_tools=(), mode="interactive"))


async def test_an_interactive_stage_goes_on_until_nothing_more_is_said():
    provider = scripted("hello", "fine", "done")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(talking(), **ATTENDED)
        questions = await answered(swarm, run, "how are you?", "good", "")
        outcome = await run.result()
    assert [question.body for question in questions] == ["hello", "fine", "done"]
    assert outcome.status == "complete_interactive"
    said = [text for role, text in messages(bodies(provider)[-1]) if role == "user"]
    assert said[-2:] == ["how are you?", "good"]


async def test_a_message_is_an_answer_to_a_stage_that_talks():
    provider = scripted("hello", "fine")
    async with swarm_of(provider) as swarm:
        run = await swarm.spawn(talking(), **ATTENDED)
        await asked(swarm)
        await run.send("how are you?")
        await anyio.sleep(1)
        assert (await asked(swarm)).body == "fine"
        await run.answer("")
        await run.result()


async def test_an_interactive_stage_that_nobody_attends_ends_by_itself():
    async with swarm_of(scripted("hello")) as swarm:
        run = await swarm.spawn(talking(), task="x")
        assert (await run.result()).status == "complete"


# --- from elsewhere


async def test_the_questions_of_a_tree_are_those_of_its_runs():
    async with swarm_of(scripted("draft", "draft")) as swarm:
        one = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        await asked(swarm)
        two = await swarm.spawn(reviewed(CHOICE), **ATTENDED)
        await open_questions(swarm, 2)
        assert [question.run_id for question in one.questions()] == [one.run_id]
        assert [question.run_id for question in two.questions()] == [two.run_id]
        await one.cancel()
        assert [question.run_id for question in swarm.questions()] == [two.run_id]
        await two.cancel()
