"""What the user grants beyond permissions. Nothing of it can come from a blueprint or from a working directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from shoal.blueprints import read_path_problem
from shoal.errors import ConfigInvalid
from shoal.runtime.tools._lines import command_problem


@final
@dataclass(frozen=True, slots=True)
class Grants:
    """What the user grants beyond permissions.

    Args:
        safe_commands: Keys of shell lines that run without a question: `make`, `git status`, `python -m pytest`,
            `env:CI`, `>build.log`; see `keys_of`.
        allow_looking: Programs that only look run without a question too, while they stay in the working directory.
        allow_blueprint_commands: What a blueprint lists in `[safe_commands]` counts as if the user had listed it.
        allow_seed_commands: False refuses every seed that runs a command.
        read_paths: What may be read outside the working directory, where a blueprint asks for it too: paths whose
            whole subtree is meant, or patterns behind `glob:` or `regex:`.
        allow_env_vars: Environment variables that commands and `environment_info` get although their name or value
            looks like a credential.

    Raises:
        ConfigInvalid: An entry can never match anything.
    """

    safe_commands: tuple[str, ...] = ()
    allow_looking: bool = True
    allow_blueprint_commands: bool = False
    allow_seed_commands: bool = True
    read_paths: tuple[str, ...] = ()
    allow_env_vars: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problems = [f"`safe_commands`: {said}" for entry in self.safe_commands if (said := command_problem(entry))]
        problems += [
            f"`read_paths`: {entry!r} {said}" for entry in self.read_paths if (said := read_path_problem(entry))
        ]
        if problems:
            raise ConfigInvalid("; ".join(problems))
