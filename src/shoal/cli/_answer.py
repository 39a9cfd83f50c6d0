"""`shoal answer`: lists what runs ask a person, and answers it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from shoal.cli._places import JournalOption, JsonOption, journal_reader, program_of
from shoal.cli._print import line, print_json, print_text, say
from shoal.cli._steer import steer, tell
from shoal.cli._texts import text_of
from shoal.errors import AnswerRefused, RunEnded, RunNotFound
from shoal.runtime import Question, Reader, Run, RunState, asked_below, fold, questions_of


def command(
    run: Annotated[str | None, Parameter(name="RUN", help="The run that asks, or one above it.")] = None,
    text: Annotated[
        str | None, Parameter(name="TEXT", help="The answer, or @FILE; lists questions without it.")
    ] = None,
    /,
    *,
    question: Annotated[int | None, Parameter(name="--question", help="Its number, where several are open.")] = None,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Answer what a run asks; without a text, list what is asked."""
    open_now = open_questions(run, journal)
    if run is None or text is None:
        return _list(open_now, as_json=as_json)
    said = text_of(text)
    picked = chosen(open_now, run, question)

    async def reply(live: Run) -> None:
        await live.answer(said, question=picked.seq)

    return tell(*steer(picked.run_id, journal, reply), "has the answer", as_json=as_json)


def open_questions(run: str | None, journal: Path | None) -> Sequence[Question]:
    """Return what *run* and the runs below it ask, or all runs of the journal.

    Raises:
        RunNotFound: There is no such run.
        RunEnded: It is over.
    """
    with journal_reader(journal) as reader:
        if reader is None:
            if run is not None:
                raise RunNotFound(f"there is no run {run!r}: nothing has run yet; `shoal run` makes the first")
            return ()
        row = None if run is None else reader.find(run)
        if row is not None and row.ended:
            raise RunEnded(f"run {row.run_id} is over ({row.status}); it asks nothing any more", run_id=row.run_id)
        rows = reader.runs(root=None if row is None else row.root)
        asking = asked_below(rows, None if row is None else row.run_id)
        states = (_folded(reader, each.run_id) for each in asking)
        return [question for state in states for question in questions_of(state)]


def _folded(reader: Reader, run_id: str) -> RunState:
    return fold(run_id, program_of(reader, run_id), reader.read(run_id), definition=reader.definition, load=reader.part)


def chosen(questions: Sequence[Question], run: str, number: int | None) -> Question:
    """Return the one of *questions* that is to be answered.

    Args:
        questions: What *run* and the runs below it ask.
        run: How the run was named.
        number: Number of the question; `None` for the only one.

    Raises:
        AnswerRefused: There is no such question, or several.
    """
    fitting = [question for question in questions if number is None or question.seq == number]
    if len(fitting) == 1:
        return fitting[0]
    if not questions:
        raise AnswerRefused(f"run {run!r} asks nothing; `shoal answer` lists what is asked")
    if not fitting:
        raise AnswerRefused(f"run {run!r} does not ask a question {number}; see `shoal answer {run}`")
    raise AnswerRefused(
        f"{len(fitting)} questions could be meant; name the run that asks, and the question with `--question`: "
        + ", ".join(f"`shoal answer {each.run_id} TEXT --question {each.seq}`" for each in fitting)
    )


def _list(questions: Sequence[Question], *, as_json: bool) -> int:
    if as_json:
        print_json([question.plain() for question in questions])
        return 0
    if not questions:
        say("Nobody is asked anything.")
    for each in questions:
        what = line(each.tool or each.point or each.about)
        say(Text(f"run {each.run_id} asks question {each.seq} ({what}, stage {line(each.stage)}):", "bold"))
        if each.body is not None and each.body.strip():
            print_text(each.body.rstrip("\n"))
        say(line(each.prompt))
        if each.options:
            say("one of " + ", ".join(f"`{line(option)}`" for option in each.options))
        say(f"answer with `shoal answer {each.run_id} TEXT --question {each.seq}`", "")
    return 0
