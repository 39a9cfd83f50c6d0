"""The tests that a blueprint ships: `tests/*.toml` in its folder, each a run, and what to expect of it.

[[test]]
name = "a file is named in the answer"
task = "What is in here?"
files = { "boats.md" = "Boats are small." }
expect_contains = "boats"
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, final

import anyio
import anyio.to_thread
import msgspec
import tomli

from shoal.blueprints import Blueprint, tool_name
from shoal.errors import ConfigInvalid, ShoalError
from shoal.providers import Provider
from shoal.runtime import BudgetGiven, Event, McpServer, Outcome, Permissions, Swarm
from shoal.runtime.events import CallMade, InferenceCompleted, StageEntered

FOLDER = "tests"


@final
class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One test of a blueprint.

    Args:
        name: What it shows.
        task: The run's task; `None` for none. Also written `input`.
        seeds: The caller's values, by name.
        files: Files of its working directory: texts by path.
        folder: A folder beside the test that is copied into its working directory first; `None` for none.
        allow: Tools that may be called without asking. Nothing else is granted, whatever the settings say.
        max_tokens: Tokens that the run and all below it may use; `None` for no limit.
        timeout_s: Seconds that it may take.
        expect_status: How the run ends.
        expect_contains: What its output holds, whatever the case: a text, or several.
        expect_tool_call: Tools that it or a run below it calls: a name, or several.
        expect_stages: The stages that it enters, in order; none leaves them open.
        expect_files: What files of its working directory hold in the end: a piece of text by path.
    """

    name: str
    task: str | None = None
    input: str | None = None
    seeds: dict[str, str] = {}
    files: dict[str, str] = {}
    folder: str | None = None
    allow: tuple[str, ...] = ()
    max_tokens: int | None = None
    timeout_s: float = 300.0
    expect_status: Literal["complete", "complete_interactive", "error", "cancelled"] = "complete"
    expect_contains: str | tuple[str, ...] = ()
    expect_tool_call: str | tuple[str, ...] = ()
    expect_stages: tuple[str, ...] = ()
    expect_files: dict[str, str] = {}
    place: str = ""
    """The file that it stands in; filled in by `cases_of`."""


@final
class CaseResult(msgspec.Struct, frozen=True):
    """How a test went.

    Args:
        case: The test.
        failures: What was otherwise than expected, a sentence each; none where it passed.
        outcome: How its run ended; `None` where it did not.
        tokens: What the run and all below it used.
    """

    case: Case
    failures: tuple[str, ...]
    outcome: Outcome | None
    tokens: int = 0

    @property
    def passed(self) -> bool:
        """Everything was as expected."""
        return not self.failures


# --- reading


def cases_of(folder: Path) -> tuple[Case, ...]:
    """Return the tests of the blueprint in *folder*, file by file in sorted order; none where it ships none.

    Raises:
        ConfigInvalid: A file cannot be read, or says what is of no use.
    """
    found: list[Case] = []
    for path in sorted((folder / FOLDER).glob("*.toml")):
        found.extend(_read(path))
    return tuple(found)


def _read(path: Path) -> Iterator[Case]:
    try:
        said = tomli.loads(path.read_text("utf-8"))
        cases = msgspec.convert(said, dict[str, list[Case]])
    except (OSError, UnicodeDecodeError, tomli.TOMLDecodeError, msgspec.ValidationError) as exc:
        raise ConfigInvalid(f"the tests in {str(path)!r} cannot be read ({exc}); mend the file") from exc
    strange = next((table for table in cases if table != "test"), None)
    if strange is not None:
        raise ConfigInvalid(f"{str(path)!r} has the unknown table {strange!r}; write `[[test]]`")
    for case in cases.get("test", ()):
        if case.task is not None and case.input is not None:
            raise ConfigInvalid(f"the test {case.name!r} in {str(path)!r} has `task` and `input`; keep one of them")
        task = case.input if case.task is None else case.task
        yield msgspec.structs.replace(case, task=task, input=None, place=str(path))


# --- running


async def run_case(
    blueprint: Blueprint,
    case: Case,
    providers: Sequence[Provider],
    *,
    model: str | None = None,
    mcp: Sequence[McpServer] = (),
) -> CaseResult:
    """Run *blueprint* as *case* says, in a working directory and with a journal of its own, and compare.

    Args:
        blueprint: The blueprint.
        case: The test.
        providers: Who serves models.
        model: `provider:model` that replaces every stage's; `None` for none.
        mcp: MCP servers whose tools it may use.

    Raises:
        ConfigInvalid: A file of the test leads out of its working directory, or its folder is none.
    """
    with TemporaryDirectory(prefix="shoal-test-") as held:
        workdir = await anyio.to_thread.run_sync(_laid_out, case, held)
        return await _run(blueprint, case, providers, workdir, model, mcp)


def _laid_out(case: Case, held: str) -> Path:
    """Put what *case* begins with into the folder *held*, and return its real path."""
    workdir = Path(held).resolve()
    if case.folder is not None:
        base = Path(case.place).parent.resolve()
        source = (base / case.folder).resolve()
        if base not in source.parents or not source.is_dir():
            raise ConfigInvalid(f"the test {case.name!r} wants the folder {case.folder!r}, which is none beside it")
        link = next((path for path in source.rglob("*") if path.is_symlink()), None)
        if link is not None:
            raise ConfigInvalid(f"the folder of the test {case.name!r} holds the link {str(link)!r}; copy it")
        shutil.copytree(source, workdir, dirs_exist_ok=True)
    for name, text in case.files.items():
        path = _inside(case, workdir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return workdir


def _inside(case: Case, workdir: Path, name: str) -> Path:
    path = (workdir / name).resolve()
    if workdir not in path.parents:
        raise ConfigInvalid(f"the test {case.name!r} names the file {name!r}, which leads out of its working directory")
    return path


async def _run(
    blueprint: Blueprint,
    case: Case,
    providers: Sequence[Provider],
    workdir: Path,
    model: str | None,
    mcp: Sequence[McpServer],
) -> CaseResult:
    allowed = Permissions(launch={tool_name(name): "allow" for name in case.allow})
    budget = None if case.max_tokens is None else BudgetGiven(max_tokens=case.max_tokens)
    outcome: Outcome | None = None
    stopped = f"it was not over within {case.timeout_s:g} s"
    async with Swarm(providers, permissions=allowed, mcp=mcp) as swarm:
        try:
            with anyio.move_on_after(case.timeout_s):
                run = await swarm.spawn(
                    blueprint, task=case.task, seeds=case.seeds, workdir=workdir, model=model, budget=budget
                )
                outcome = await run.result()
        except ShoalError as error:
            stopped = str(error)
        events = [list(swarm.journal.read(each.run_id)) for each in swarm.runs()]
        usage = swarm.ledger().total.usage
        tokens = usage.input + usage.output
    if outcome is None:
        return CaseResult(case, (stopped,), None, tokens)
    failures = await anyio.to_thread.run_sync(lambda: tuple(_differences(case, outcome, events, workdir)))
    return CaseResult(case, failures, outcome, tokens)


def _differences(case: Case, outcome: Outcome, events: Sequence[Sequence[Event]], workdir: Path) -> Iterator[str]:
    """Yield what is otherwise than *case* expects. *events* are those of the run, and then of each below it."""
    if outcome.status != case.expect_status:
        yield f"it ended as {outcome.status!r} and not as {case.expect_status!r}: {outcome.reason}"
    said = str(outcome.output or "").casefold()
    wanted = _several(case.expect_contains)
    yield from (f"its output does not hold {text!r}" for text in wanted if text.casefold() not in said)
    called = {tool_name(call.name) for each in events for event in each for call in _calls(event)}
    yield from (f"nobody called `{name}`" for name in _several(case.expect_tool_call) if tool_name(name) not in called)
    entered = tuple([event.payload.stage for event in events[0] if isinstance(event.payload, StageEntered)])
    if case.expect_stages and entered != case.expect_stages:
        yield f"it went through {', '.join(entered)} and not through {', '.join(case.expect_stages)}"
    for name, text in case.expect_files.items():
        path = _inside(case, workdir, name)
        if not path.is_file():
            yield f"there is no file {name!r}"
        elif text not in path.read_text("utf-8", "replace"):
            yield f"the file {name!r} does not hold {text!r}"


def _several(said: str | tuple[str, ...]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else said


def _calls(event: Event) -> Sequence[CallMade]:
    return event.payload.calls if isinstance(event.payload, InferenceCompleted) else ()
