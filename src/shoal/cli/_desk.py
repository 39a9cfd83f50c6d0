"""Somebody at the terminal: is shown what runs ask, and answers."""

from __future__ import annotations

import os
import shlex
import sys
import termios
from collections.abc import Awaitable, Callable
from typing import TypeVar, final

import anyio
from rich.text import Text

import shoal
from shoal.cli._print import complain, line, print_text, say
from shoal.cli._progress import Progress
from shoal.cli._texts import text_of
from shoal.errors import AnswerRefused, ConfigInvalid, RunIsPaused
from shoal.errors import RunEnded as RunIsOver
from shoal.runtime import Question, Run

T = TypeVar("T")

_SCOPES = {
    "once": "this call alone",
    "stage": "calls like it, as long as the run is in this stage, also when it comes back to it",
    "run": "calls like it, in the whole run",
    "no": "the model is told that it was refused",
}
_MOST_BYTES = 64 * 1024


@final
class Desk:
    """The person at the terminal that standard input and output are."""

    def __init__(self) -> None:
        self._typed = b""

    async def line(self, mark: str = "> ") -> str:
        """Return the next line that is typed, without its end.

        Raises:
            EOFError: The person typed Ctrl-D: they want to leave.
        """
        print(mark, end="", flush=True)
        while b"\n" not in self._typed:
            await anyio.wait_readable(sys.stdin)
            data = os.read(sys.stdin.fileno(), _MOST_BYTES)
            if not data:
                print()
                raise EOFError
            self._typed += data
        typed, _, self._typed = self._typed.partition(b"\n")
        return typed.decode("utf-8", "replace").rstrip("\r")

    async def let_go_on(self, run: Run, paused: RunIsPaused, progress: Progress) -> bool:
        """Ask whether a paused run is to go on; false where the person leaves it paused."""
        complain(str(paused), *([paused.remedy] if paused.remedy else []))
        say("Press Enter once that is done and the run goes on; Ctrl-C leaves it paused.")
        try:
            typed = await unless(lambda: self.line(""), lambda: progress.wait(lambda: not progress.held()))
        except EOFError:
            return False
        if typed is not None:
            await run.resume()
        return True

    async def settle(self, swarm: shoal.Swarm, question: Question, progress: Progress) -> bool:
        """Show *question* and ask until it is answered, here or elsewhere; false where the person leaves it open."""
        run = progress.runs[question.run_id]
        show(question, run.label)
        try:
            while True:
                text = await unless(
                    lambda: self._answer(question), lambda: progress.wait(lambda: question.seq not in run.questions)
                )
                if text is None:
                    say("That was answered elsewhere, or nobody waits for it any more.")
                    return True
                if await taken(swarm, question, text):
                    return True
        except EOFError:
            return False

    async def _answer(self, question: Question) -> str:
        if question.about == "edit":
            edited = await edit(question.body or "")
            if edited is not None:
                return edited
            say("Type the new text on one line, or `@FILE` for what a file holds; an empty line keeps it as it is.")
        while True:
            try:
                text = text_of(await self.line())
            except ConfigInvalid as error:
                complain(str(error))
                continue
            return question.body or "" if question.about == "edit" and not text else text


async def taken(swarm: shoal.Swarm, question: Question, text: str) -> bool:
    """Give *text* as the answer; false where the question does not take it and still stands."""
    try:
        await swarm.answer(question.run_id, text, question=question.seq)
    except RunIsOver:
        return True  # cancelled from elsewhere, just now; the screen says so
    except AnswerRefused as error:
        complain(str(error))
        return question.seq not in {each.seq for each in swarm.questions(question.run_id)}
    return True


async def unless(work: Callable[[], Awaitable[T]], over: Callable[[], Awaitable[None]]) -> T | None:
    """Return what *work* returns; `None` where *over* returned before."""
    result: list[T] = []
    ended: list[EOFError] = []
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            await over()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            result.append(await work())
        except EOFError as error:
            ended.append(error)
        tasks.cancel_scope.cancel()
    if ended:
        raise ended[0]
    return result[0] if result else None


def show(question: Question, label: str) -> None:
    """Print what is asked, what it is about, and how it can be answered."""
    say(Text(f"\n{line(label)} asks, in stage {line(question.stage)}:", "bold"))
    if question.body is not None and question.body.strip():
        print_text(question.body.rstrip("\n"))
    say(line(question.prompt))
    scopes = _SCOPES if question.about == "approval" else {}
    for number, option in enumerate(question.options, start=1):
        said = f"  {number}  {line(option)}"
        say(f"{said:<12}{scopes[option]}" if option in scopes else said)


async def edit(text: str) -> str | None:
    """Return *text* as somebody left it in their editor; `None` where they have named none, or it failed."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        return None
    async with anyio.TemporaryDirectory(prefix="shoal-") as folder:
        path = anyio.Path(folder) / "text.md"
        await path.write_text(text, "utf-8")
        before = termios.tcgetattr(sys.stdin)
        try:
            command = [*shlex.split(editor), str(path)]
            opening = anyio.open_process(command, stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr)
            async with await opening as process:
                status = await process.wait()
        except (OSError, ValueError) as error:
            complain(f"{editor!r} cannot be started: {error}; set `VISUAL` or `EDITOR` to an editor")
            return None
        finally:
            # One that is stopped, since the question was answered elsewhere, leaves the terminal as it had it.
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        if status != 0:
            complain(f"{editor!r} ended with status {status}; its text is left aside")
            return None
        return await path.read_text("utf-8")
