"""What is printed when hosting is over: the tree, the ledger, where things lie, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.text import Text

from shoal._environment import found_keys
from shoal.cli._hosted import INTERRUPTED, Ending, Hosting
from shoal.cli._places import journal_file, output_folder, write_output
from shoal.cli._print import complain, line, note, print_json, print_text, say, seconds, status
from shoal.cli._progress import Progress, RunView
from shoal.cli._trace import JAEGER
from shoal.cli._tree import drawn
from shoal.errors import ConfigInvalid, JournalFailed, RunIsPaused
from shoal.runtime import Outcome, Question, plain_usage

TREE_ROWS = 16
OUTPUT_LINES = 12

FAILED = 1
PAUSED = 3


def conclude(hosting: Hosting, ending: Ending) -> int:
    """Print how hosting ended, write the report, and return the exit status."""
    run = ending.progress.root
    if run is None:
        complain("interrupted before anything began")
        return INTERRUPTED
    if ending.outcome is None:
        return _unfinished(hosting, ending, run)
    outcome = ending.outcome
    folder = output_folder() if run.output_dir is None else Path(run.output_dir)
    text = None if outcome.output is None else (outcome.output.rstrip("\n") + "\n").encode()
    files = {
        "report": None if text is None else _written(folder, run, "report.md", text),
        "trace": None if ending.trace is None else _written(folder, run, "trace.json", ending.trace),
    }
    if hosting.as_json:
        print_json(plain_outcome(outcome, ending.progress))
    else:
        _show(hosting, ending, run, outcome, files)
    if not outcome.ok:
        complain(f"run {outcome.run_id} ended {outcome.status!r}: {run.reason}")
        return FAILED
    return 0


def plain_outcome(outcome: Outcome, progress: Progress) -> dict[str, Any]:
    """Return how a run ended as the command line prints it: its own usage and cost, and its children's cost."""
    return plain_run(progress, progress.runs[outcome.run_id], outcome.output, outcome.flags)


def plain_run(
    progress: Progress, run: RunView, output: str | None, flags: Mapping[str, int | tuple[str, ...]]
) -> dict[str, Any]:
    """Return a run as the command line prints it; see `plain_outcome`."""
    children = [progress.runs[child] for child in run.children if child in progress.runs]
    return {
        "run_id": run.run_id,
        "status": run.status,
        "output": output,
        "flags": {name: list(value) if isinstance(value, tuple) else value for name, value in flags.items()},
        "usage": plain_usage(run.usage),
        "cost_usd": None if run.cost is None else format(run.cost, "f"),
        "children": [
            {"run_id": child.run_id, "name": child.name, "status": child.status, "cost_usd": _cost(progress, child)}
            for child in children
        ],
    }


def _cost(progress: Progress, run: RunView) -> str | None:
    cost = progress.subtree_cost(run)
    return None if cost is None else format(cost, "f")


def _written(folder: Path, run: RunView, name: str, data: bytes) -> Path | None:
    """Write one file of a run and return where it is; `None` where it could not be written: the journal has it all."""
    try:
        return write_output(folder, run.run_id, name, data)
    except ConfigInvalid as error:
        complain(str(error))
        return None


def _show(hosting: Hosting, ending: Ending, run: RunView, outcome: Outcome, files: Mapping[str, Path | None]) -> None:
    progress = ending.progress
    head = Text(f"\n{line(run.label)} ").append_text(status(run.status))
    head.append(f" after {seconds((run.ended or run.began) - run.began)}, run {run.run_id}")
    say(head, *([f"flags: {', '.join(outcome.flags)}"] if outcome.flags else []))
    say("", *drawn(progress, run, TREE_ROWS), "")
    if ending.ledger is not None:
        say(*ending.ledger.table().splitlines(), "")
    report, trace = files["report"], files["trace"]
    if outcome.output is not None:
        _preview(outcome.output, OUTPUT_LINES if report is not None else None)
    for word, path in (("report", report), ("journal", hosting.journal), ("trace", trace)):
        if path is not None:
            say(f"{word:<8} {_short(path)}")
    say(f"again    shoal result {run.run_id}{_option(hosting)}   (also: tree, stages, events, context)")
    if trace is not None:
        json_is = "-H 'Content-Type: application/json'"
        say(f"Jaeger   curl -sS {json_is} --data-binary @{_short(trace)} {JAEGER}")
    if progress.simulated:
        say(
            "",
            "No language model was used: the offline provider wrote this text by rules, from sentences it read.",
        )
    for key in found_keys()[:1]:
        say(f"{key.variable} is set and was not used. To use it: {key.hint} shoal run …")


def _preview(text: str, most: int | None) -> None:
    """Show how *text* begins; all of it where *most* is `None`, since it stands in no file."""
    if most is None:
        print_text(text)
        say("")
        return
    lines = text.strip().splitlines()
    for each in lines[:most]:
        say(Text(f"  {line(each, 160)}", "dim"))
    if len(lines) > most:
        say(Text(f"  … {len(lines) - most} more lines", "dim"))
    say("")


def _short(path: Path) -> str:
    """Return *path* as it is typed: relative where it lies below the current directory."""
    with suppress(ValueError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def _option(hosting: Hosting) -> str:
    """Return what later commands need to find the journal: nothing where it is where they look by themselves."""
    return "" if hosting.journal == journal_file(None) else f" --journal {shlex.quote(str(hosting.journal))}"


def _unfinished(hosting: Hosting, ending: Ending, run: RunView) -> int:
    again = f"go on with `shoal resume {run.run_id}{_option(hosting)}`"
    if hosting.as_json:
        print_json(plain_run(ending.progress, run, None, {}))
    if ending.interrupted:
        complain(f"run {run.run_id} was interrupted and nothing is lost; {again}")
        return INTERRUPTED
    if ending.stop is None:
        complain(f"run {run.run_id} waits for {_count(len(ending.questions), 'answer')}")
        for question in ending.questions:
            complain_of(question, ending.progress.runs[question.run_id].label, _option(hosting))
    else:
        remedy = ending.stop.remedy if isinstance(ending.stop, RunIsPaused) else ""
        complain(str(ending.stop), *([remedy] if remedy else []))
    note(again)
    return FAILED if isinstance(ending.stop, JournalFailed) else PAUSED


def complain_of(question: Question, label: str, option: str) -> None:
    """Print to standard error what is asked, and the command that answers it."""
    takes = f" (one of {', '.join(f'`{line(each)}`' for each in question.options)})" if question.options else ""
    note(f"{line(label)} asks: {line(question.prompt)}{takes}")
    note(f"answer with `shoal answer {question.run_id} TEXT --question {question.seq}{option}`")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
