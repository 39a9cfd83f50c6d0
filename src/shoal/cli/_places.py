"""Where the command line keeps things: the journal, and the folder of reports."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from shoal._environment import journal_path
from shoal.blueprints import Blueprint
from shoal.errors import ConfigInvalid, RunNotFound
from shoal.runtime import Program, Reader, RunRow, SqliteReader, made_of, recorded
from shoal.runtime.events import RunSpawned

OUTPUT = "shoal-output"
"""Name of the folder of reports, in the current directory."""

JournalOption: TypeAlias = Annotated[
    Path | None,
    Parameter(name="--journal", help="The journal's file."),
]
JsonOption: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
RunArgument: TypeAlias = Annotated[str, Parameter(name="RUN", help="The run's id, or how it begins.")]


def journal_file(given: Path | None) -> Path:
    """Return the journal's file: *given*, else what the environment says."""
    return journal_path() if given is None else given.expanduser()


@contextmanager
def journal_reader(given: Path | None) -> Generator[SqliteReader | None]:
    """Open the journal for reading while the block runs; `None` where the default one was not made yet.

    Raises:
        ConfigInvalid: The file that was named is not there.
        JournalFailed: It is no journal.
    """
    path = journal_file(given)
    if not path.exists():
        if given is not None or os.environ.get("SHOAL_JOURNAL"):
            raise ConfigInvalid(f"there is no journal at {str(path)!r}; check the path, or make one with `shoal run`")
        yield None
        return
    with closing(SqliteReader(path)) as reader:
        yield reader


@contextmanager
def run_reader(run: str, given: Path | None) -> Generator[tuple[SqliteReader, RunRow]]:
    """Open the journal and find *run* in it.

    Raises:
        RunNotFound: There is no such run, or more than one.
    """
    with journal_reader(given) as reader:
        if reader is None:
            raise RunNotFound(f"there is no run {run!r}: nothing has run yet; `shoal run` makes the first", run_id=run)
        yield reader, reader.find(run)


def program_of(reader: Reader, run_id: str) -> Program:
    """Return what a run of the journal was spawned as, for those who only look, and read its events from the first on.

    Raises:
        DefinitionMissing: It cannot be had.
    """
    spawned = next(iter(reader.read(run_id))).payload
    assert isinstance(spawned, RunSpawned)  # the first event of every run
    return recorded(reader.definition(spawned.definition))


def blueprint_of(reader: Reader, run_id: str) -> Blueprint:
    """Return the blueprint that a run of the journal is made of now.

    Raises:
        DefinitionMissing: It cannot be had.
    """
    return recorded(reader.definition(made_of(reader, run_id).definition)).blueprint


def status_of(row: RunRow, owners: dict[str, str]) -> str:
    """Return where a run stands; `interrupted` where it is not over and no process hosts it any more."""
    return "interrupted" if row.status == "running" and row.run_id not in owners else row.status


def output_folder() -> Path:
    """Return where reports go: a folder of the current directory, as an absolute path."""
    return Path.cwd() / OUTPUT


def write_output(folder: Path, run_id: str, name: str, data: bytes) -> Path:
    """Write *data* to the file *name* of a run, keep the folder out of version control, and return the file's path.

    Raises:
        ConfigInvalid: It cannot be written.
    """
    path = folder / run_id / name
    try:
        if folder.is_symlink():
            raise ConfigInvalid(f"{str(folder)!r} is a link to somewhere else; take it away, or run in another folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", "utf-8")
        half = path.with_name(f".{name}.part")
        half.write_bytes(data)
        half.replace(path)
    except OSError as exc:
        raise ConfigInvalid(f"{str(path)!r} cannot be written: {exc.strerror or exc}") from exc
    return path
