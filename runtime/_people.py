"""People in the loop: approvals, the tools that ask somebody, and interaction points at the end of a stage.

A question is an event, and so is its answer: a run that was killed or sleeps waits for it as a live one does, in no
task. Where nobody answers in time, an approval counts as refused, and the model or the stage goes on without a word.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, final

from shoal.blueprints import InteractionPoint
from shoal.errors import AnswerRefused
from shoal.providers import Message, Text
from shoal.runtime._edges import say
from shoal.runtime._live import Live
from shoal.runtime._scripting import draft_of, vetted
from shoal.runtime._words import EDITED
from shoal.runtime.context import CONVERSATION, NOTHING_SAID, Draft, Said, estimate
from shoal.runtime.events import (
    GrantGiven,
    MessageReceived,
    QuestionAnswered,
    QuestionAsked,
    TimerFired,
    ToolCallCompleted,
)
from shoal.runtime.journal import RunRow
from shoal.runtime.state import TALK, RunState, Turn
from shoal.runtime.tools import QUESTIONS, Tool, ToolResult, Verdict
from shoal.runtime.walk import folded

About: TypeAlias = Literal["text", "choice", "confirm", "review", "edit", "approval"]

APPROVALS = ("once", "stage", "run", "no")
"""How an approval is answered: this call only, this stage (re-entry included), the whole run, or not at all."""
_SCOPES: Mapping[str, Literal["stage", "run"]] = {"stage": "stage", "run": "run"}
_ONCE = ("once", "no")
_YES = ("yes", "no")
_SYNONYMS = {"y": "yes", "n": "no", "deny": "no", "allow": "once"}


@final
@dataclass(frozen=True, slots=True)
class Question:
    """What a run asks a person.

    Args:
        run_id: The run.
        seq: Its number in the run; an answer may name it.
        about: `text`, `choice`, `confirm`, `review`, `edit`, or `approval` of a call.
        prompt: What is asked, one paragraph.
        body: The document that it is about, or the arguments of a call; `None` for none.
        options: What may be answered; empty where any text may.
        tool: The tool that asks, or is to be approved; `None` for an interaction point.
        point: The interaction point that asks; `None` for none.
        stage: The stage that the run is in.
        expires_at: Unix seconds at which it counts as unanswered; `None` for never.
        required: An empty answer is refused.
    """

    run_id: str
    seq: int
    about: About
    prompt: str
    body: str | None
    options: tuple[str, ...]
    tool: str | None
    point: str | None
    stage: str
    expires_at: float | None
    required: bool

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"options": list(self.options)}


# --- reading


def questions_of(state: RunState) -> tuple[Question, ...]:
    """Return what the run asks, oldest first."""
    return tuple(_question(state, seq, asked) for seq, asked in sorted(state.questions.items()))


def _question(state: RunState, seq: int, asked: QuestionAsked) -> Question:
    stage = state.stage.stage
    required = False
    if asked.point:
        point = next((p for p in stage.interaction_points if p.name == asked.point), None)
        required = point is not None and point.required and asked.about != "edit"
        prompt, body, options, tool = _of_point(state, asked, point)
    else:
        prompt, body, options, tool = _of_call(state, asked)
        required = bool(options)
    return Question(
        state.run_id,
        seq,
        asked.about,
        prompt,
        body,
        options,
        tool,
        asked.point or None,
        stage.name,
        asked.expires_at,
        required,
    )


def _of_point(
    state: RunState, asked: QuestionAsked, point: InteractionPoint | None
) -> tuple[str, str | None, tuple[str, ...], None]:
    said = str(state.last_text)
    if point is None:
        return "What next? An empty answer ends the stage.", said, (), None
    if asked.about == "edit":
        return "Edit the text.", said, (), None
    options = _YES if point.style == "confirm" else point.options
    return point.prompt, None, options, None


def _of_call(state: RunState, asked: QuestionAsked) -> tuple[str, str | None, tuple[str, ...], str]:
    turn = state.turn
    assert turn is not None  # a question of a call is open as long as its turn is
    call = turn.calls[asked.index]
    args = cast("dict[str, Any]", json.loads(str(call.arguments) or "{}"))
    if asked.about == "approval":
        needs = asked.needs or f"`{call.name}` needs your approval"
        body = json.dumps(args, indent=2, ensure_ascii=False)
        return needs, body, APPROVALS if asked.keys else _ONCE, call.name
    prompt = str(args.get("prompt") or args.get("title") or "Edit the text.")
    document = args.get("markdown", args.get("content"))
    options = _YES if asked.about == "confirm" else tuple(str(option) for option in args.get("options", ()))
    return prompt, None if document is None else str(document), options, call.name


def asked_below(rows: Sequence[RunRow], run_id: str | None = None) -> Sequence[RunRow]:
    """Return those of *rows* that ask somebody; only the run *run_id* and those below it where one is named.

    *rows* are in the order in which the runs were spawned.
    """
    below = {run_id}
    for row in rows:  # parents first
        if row.parent in below:
            below.add(row.run_id)
    return [row for row in rows if row.questions and not row.ended and (run_id is None or row.run_id in below)]


# --- asking


def _expiry(live: Live) -> float | None:
    after_s = live.host.limits.question_s
    return None if after_s is None else live.host.clock.unix() + after_s


def approved(live: Live, turn: Turn, index: int, verdict: Verdict) -> bool | None:
    """Say whether a call may run that needs approval; `None` where somebody has been asked and has not answered.

    Where it may not, its result is journaled.
    """
    if live.state.granted(verdict.keys):
        return True
    answer = turn.answers.get(index)
    if answer is not None and answer.text is not None and str(answer.text) != "no":
        return True
    tool = verdict.tool
    assert tool is not None  # what asks is a tool of the stage
    if answer is None and not live.state.made_by.unattended:
        if index not in turn.asked:
            live.emit(QuestionAsked("approval", turn.seq, index, "", verdict.keys, verdict.said, _expiry(live)))
        return None
    needs = verdict.said or f"`{tool.name}` needs somebody's approval"
    if answer is None:
        said = f"[denied] {needs} and nobody is there; allow it with `--allow {tool.name}`"
    elif answer.text is None:
        said = f"[denied] {needs} and nobody answered"
    else:
        said = f"[denied] {needs}, and it was refused"
    live.emit(ToolCallCompleted(turn.seq, index, Text.of(said), is_error=True, gate="permission"))
    return False


def ask_person(live: Live, turn: Turn, index: int, tool: Tool) -> ToolResult | None:
    """Ask what a call asks, once, and return the answer; `None` while there is none."""
    answer = turn.answers.get(index)
    if answer is None:
        if index not in turn.asked:
            about = cast("About", QUESTIONS[tool.name])
            live.emit(QuestionAsked(about, turn.seq, index, expires_at=_expiry(live)))
        return None
    if answer.text is None:
        return ToolResult.of("Nobody answered. Go on without an answer.")
    return ToolResult(answer.text)


async def ask_point(live: Live, name: str, *, edit: bool) -> None:
    """Ask what an interaction point asks; its document region shows the text that the question is about."""
    state = live.state
    point = next((point for point in state.stage.stage.interaction_points if point.name == name), None)
    about: About = "text"
    if edit:
        about = "edit"
    elif point is not None and point.style != "free_text":
        about = "choice" if point.style == "multiple_choice" else "confirm"
    if point is not None and point.document_region is not None and not edit:
        _show(live, point.document_region, await _vetted_document(live, point.document_region))
    live.emit(QuestionAsked(about, point=name, expires_at=_expiry(live)))


def _document(live: Live) -> Draft:
    message = Message("user", (live.state.last_text,))
    return Draft("text", message, max(1, estimate(message)), live.state.last_text_seq, writer="routing")


def _held(live: Live, region: str) -> list[int]:
    return [entry.entry_id for entry in live.state.view.states[region].all_entries()]


async def _vetted_document(live: Live, region: str) -> Said:
    return await vetted(live, region, _document(live), replaces=_held(live, region))


def _show(live: Live, region: str, said: Said) -> None:
    """Have *region* hold the stage's newest text and nothing else."""
    plan = live.state.view.plan_write(region, _document(live), replaces=_held(live, region), said=said)
    live.change(plan.changes)


async def hear(live: Live, name: str) -> None:
    """Put what a person said at an interaction point into the conversation."""
    visit = live.state.visit
    assert visit is not None  # points stand at the end of a visit
    point = visit.points[name]
    said = None if point.answer is None else point.answer.text
    assert said is not None  # decided so
    region = _document_of(live.state, name) if point.edited else None
    parts = () if point.answer is None else point.answer.parts
    message = Message("user", (said,), blobs=live.state.shelf.blobs(parts))
    heard = draft_of(message, "user_message", point.answered, parts=parts, intake=live.state.view.intake)
    edited = Message("user", (Text.of(EDITED),))
    note = Draft("text", edited, max(1, estimate(edited)), writer="routing")
    vetted_talk = await vetted(live, CONVERSATION, heard)
    shown = NOTHING_SAID if region is None else await _vetted_document(live, region)
    noted = NOTHING_SAID if region is None else await vetted(live, region, note)
    live.write(CONVERSATION, heard, said=vetted_talk)
    if region is not None:
        _show(live, region, shown)
        live.write(region, note, said=noted)


def _document_of(state: RunState, name: str) -> str | None:
    points = state.stage.stage.interaction_points
    return next((point.document_region for point in points if point.name == name), None)


async def direct(live: Live, answer: int, text: str) -> None:
    """Send the stage back with what a person's answer stands for."""
    await say(live, "directive", text, answer=answer)


# --- answering


def answer(live: Live, text: str, seq: int | None) -> None:
    """Take *text* as the answer to the question *seq*, or to the only one that is open.

    Raises:
        AnswerRefused: There is no such question, or it takes no such answer.
    """
    found = questions_of(live.state)
    if seq is not None:
        found = tuple(question for question in found if question.seq == seq)
    if len(found) != 1:
        what = "asks nothing" if not found else f"asks {len(found)} questions; name one by its number"
        if seq is not None:
            what = f"does not ask a question {seq}; see `shoal answer {live.run_id}`"
        raise AnswerRefused(f"run {live.run_id} {what}", run_id=live.run_id)
    question = found[0]
    said = accepted(question, text)
    asked = live.state.questions[question.seq]
    live.emit(QuestionAnswered(question.seq, live.host.secrets.strike(Text.of(said))))
    scope = _SCOPES.get(said)
    if question.about == "approval" and scope is not None:
        live.emit(GrantGiven(asked.keys, scope, question.stage))


def accepted(question: Question, text: str) -> str:
    """Return *text* as the answer that *question* takes.

    Raises:
        AnswerRefused: It takes no such answer; the message lists those that it takes.
    """
    said = folded(text)
    if not said and question.required and not question.options:
        message = f"run {question.run_id} does not take an empty answer; say something"
        raise AnswerRefused(message, run_id=question.run_id)
    if not question.options or (not said and not question.required):
        return text
    if question.options in (_YES, APPROVALS, _ONCE):
        said = _SYNONYMS.get(said.lower(), said.lower())
        if question.options != _YES and said == "yes":
            said = "once"
    for number, option in enumerate(question.options, start=1):
        if folded(option) == said or str(number) == said:
            return option
    listed = ", ".join(f"`{option}`" for option in question.options)
    raise AnswerRefused(
        f"run {question.run_id} does not take the answer {text!r}; answer with one of {listed}", run_id=question.run_id
    )


def mail(live: Live, text: str, sender: str, region: str | None, parts: tuple[int, ...] = ()) -> None:
    """Give a run a message: the next word of a stage that talks, or mail for its next request."""
    talking = open_talk(live.state)
    if talking is not None and region is None:
        live.emit(QuestionAnswered(talking, live.host.secrets.strike(Text.of(text)), parts=parts))
    else:
        live.emit(MessageReceived(live.host.secrets.strike(Text.of(text)), sender, region, parts))


def expire(live: Live) -> None:
    """Close the questions whose time is over, and fire the timers whose time has come."""
    now = live.host.clock.unix()
    if live.state.phase == "running":
        for seq, timer in sorted(live.state.timers.items(), key=lambda each: (each[1].due_at, each[0])):
            if timer.due_at <= now:
                live.emit(TimerFired(seq))
                mail(live, str(timer.text), "timer", timer.region)
    for seq, asked in tuple(live.state.questions.items()):
        if asked.expires_at is not None and asked.expires_at <= now:
            live.emit(QuestionAnswered(seq, None, "timeout"))


def open_talk(state: RunState) -> int | None:
    """Return the seq of the question with which an interactive stage waits for the next word; `None` for none."""
    return next((seq for seq, asked in state.questions.items() if asked.point == TALK), None)
