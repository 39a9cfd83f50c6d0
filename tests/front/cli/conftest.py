"""A command line of its own for each test: places in a temporary folder, and no variable of the machine's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import main
from shoal.providers import Provider

sys.path.insert(0, str(Path(__file__).parent))

from front_shell import BLUEPRINT, CLERK, POINT, Said, Serve, Shell, newest, written
from front_terminal import Terminal


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """Call `shoal` in this process, in the folder `here`, with its state in `state` and settings in `config`."""
    for name in list(os.environ):
        if name.startswith(("SHOAL_", "OTEL_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(*arguments: str | Path) -> Said:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Said(status, *capsys.readouterr())

    return call


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Have a provider of the test's serve `run` and `resume`."""

    def by(provider: Provider) -> None:
        monkeypatch.setattr("shoal.cli._run.providers_from", lambda: (provider,))
        monkeypatch.setattr("shoal.cli._resume.providers_from", lambda: (provider,))
        monkeypatch.setattr("shoal.cli._fork.providers_from", lambda: (provider,))

    return by


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder of three text files, one of them in a folder below."""
    folder = tmp_path / "pages"
    (folder / "more").mkdir(parents=True)
    (folder / "harbour.md").write_text("The harbour has two piers. Boats wait outside when both are taken.\n")
    (folder / "tide.md").write_text("The tide turns twice a day. Pilots know the hour by heart.\n")
    (folder / "more" / "crane.md").write_text("A crane stands on the north pier. It lifts forty tons.\n")
    return folder


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """A blueprint that repeats its seeds."""
    folder = tmp_path / "answers"
    folder.mkdir()
    (folder / "blueprint.toml").write_text(BLUEPRINT)
    return folder


@pytest.fixture
def clerk(tmp_path: Path) -> Path:
    """A blueprint that writes `note.md` in its working directory, which needs approval, and says what came of it."""
    folder = tmp_path / "clerk"
    folder.mkdir()
    (folder / "blueprint.toml").write_text(CLERK)
    return folder


@pytest.fixture
def editor(shell: Shell, tmp_path: Path) -> str:
    """A run that nobody hosts and that waits for an answer."""
    shell("run", written(tmp_path, "editor", POINT))
    return str(newest(shell)["run_id"])


@pytest.fixture
def terminals(shell: Shell) -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()
