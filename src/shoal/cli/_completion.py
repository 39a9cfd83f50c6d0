"""`shoal completion`: the script that completes command lines."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter


def command(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(name="SHELL", help="Which shell.")], /) -> int:
    """Print the script that completes command lines of a shell, for its start-up file to read."""
    from shoal.cli._app import app  # noqa: PLC0415 - it names this command

    print(app.generate_completion(prog_name="shoal", shell=shell))
    return 0
