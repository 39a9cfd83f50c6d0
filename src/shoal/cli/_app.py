"""The commands by name. Each is loaded when it is called, so that `shoal --help` waits for none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from shoal.errors import AnswerRefused, BlueprintError, PartMissing, RunEnded, RunNotFound, RunOwned, ShoalError

USAGE = 2
FAILED = 1
INTERRUPTED = 130

COMMANDS = {
    "run": "Run a blueprint and write its report.",
    "resume": "Go on with a run that was interrupted or is paused.",
    "fork": "Copy a run up to one of its events, and go on with the copy.",
    "answer": "List what runs ask a person, and answer it.",
    "msg": "Send a run a message.",
    "pause": "Let a run and all below it wait.",
    "cancel": "End a run and all below it.",
    "ps": "List live and recent runs.",
    "runs": "List runs by what they used.",
    "top": "Watch runs, live.",
    "tree": "Show who spawned whom, and what each used.",
    "result": "Print what a run submitted.",
    "stages": "Show what each stage of a run used.",
    "events": "Print the events of a run.",
    "report": "Write a run as one HTML file.",
    "context": "Show what a run's next request shows the model.",
    "blobs": "List the stored parts of a run, or write one out.",
    "trace": "Export the spans of a tree of runs.",
    "new": "Write a blueprint to begin with.",
    "export": "Write a tree of runs to a file, for another machine.",
    "import": "Take over a tree of runs that another machine exported.",
    "prune": "Delete old runs from the journal, and let its file shrink.",
    "validate": "Check a blueprint.",
    "test": "Run the tests of a blueprint, or show its first request.",
    "library": "List the bundled blueprints.",
    "models": "Show what is known of models, and who says so.",
    "doctor": "Check that everything is there that runs need.",
    "completion": "Print the script that completes command lines.",
}


def _version() -> str:
    from importlib.metadata import version  # noqa: PLC0415 - only those who ask wait for it

    return version("shoal")


app = App(
    name="shoal",
    help="Run swarms of language-model agents, each with a context window cut into regions.",
    version=_version,
    help_format="plaintext",
    default_parameter=Parameter(negative=""),
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
for _order, (_name, _help) in enumerate(COMMANDS.items()):
    _object = "app" if _name == "trace" else "command"
    app.command(f"shoal.cli._{_name}:{_object}", name=_name, help=_help, sort_key=_order)


_WRONG = (BlueprintError, RunNotFound, RunOwned, RunEnded, AnswerRefused, PartMissing)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command line and return its exit status.

    Args:
        arguments: What stands behind the program's name; `None` takes the process's.
    """
    try:
        status = app(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    except CycloptsError as error:
        return _refused(str(error), USAGE, "`shoal --help` lists the commands, `shoal COMMAND --help` their options")
    except ShoalError as error:
        # What was asked for cannot be had, as opposed to what was tried and failed.
        wrong = isinstance(error, _WRONG)
        return _refused(str(error), USAGE if wrong else FAILED)
    except KeyboardInterrupt:
        return _refused("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read standard output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return status if isinstance(status, int) else 0


def _refused(message: str, status: int, *more: str) -> int:
    from shoal.cli._print import complain  # noqa: PLC0415 - only those who are refused wait for it

    complain(message, *more)
    return status
