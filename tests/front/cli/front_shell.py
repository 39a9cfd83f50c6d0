"""What one command line comes to, and what the tests of the command line share."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from shoal.providers import Provider


class Said(NamedTuple):
    """What one command came to."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)


Shell: TypeAlias = Callable[..., Said]
Serve: TypeAlias = Callable[[Provider], None]

BLUEPRINT = """
[agent]
name = "answers"
description = "Answers at once"

[context.regions]
task = { kind = "pinned", max_tokens = 500, seed = "task_input", volatility = "stable" }
brief = { kind = "pinned", max_tokens = 500, seed = { caller = "brief" }, volatility = "stable" }
house_rules = { kind = "pinned", max_tokens = 500, seed = { caller = "house_rules" }, volatility = "stable" }

[stages.answer]
mode = "output"
available_tools = ["read_file"]
system_prompt = "Answer the task."

[[stages.answer.offline.policy]]
call = "submit_output"
args = { content = "brief: {region(brief)} rules: {region(house_rules)}" }

[[stages.answer.offline.policy]]
say = "done"
"""

CLERK = """
[agent]
name = "clerk"

[context.regions]
stage_instructions = { kind = "pinned", max_tokens = 500 }
side = { kind = "pinned", max_tokens = 500 }

[stages.work]
mode = "output"
available_tools = ["write_file"]
system_prompt = "Write the note."

[[stages.work.offline.policy]]
call = "write_file"
args = { path = "note.md", content = "Written." }

[[stages.work.offline.policy]]
call = "submit_output"
args = { content = "{result(1)}" }
"""

POINT = """
[agent]
name = "editor"

[context.regions]
stage_instructions = { kind = "pinned", max_tokens = 500 }
side = { kind = "pinned", max_tokens = 500 }

[stages.write]
mode = "interactive_points"
system_prompt = "Write."

[[stages.write.interaction_points]]
name = "look"
prompt = "Is it good?"
style = "multiple_choice"
options = ["print it", "edit it", "drop it", "again"]
directives = { again = "Write it once more." }
abort_options = ["drop it"]
edit_options = ["edit it"]
unattended = "ask"

[[stages.write.offline.policy]]
say = "A first draft."
"""


def written(tmp_path: Path, name: str, source: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "blueprint.toml").write_text(source)
    return folder


def newest(shell: Shell, *more: str) -> dict[str, Any]:
    """Return the newest run as `shoal ps` lists it."""
    rows: Sequence[dict[str, Any]] = shell("ps", "--json", *more).json
    return rows[-1]
