"""`shoal new`: writes a blueprint to begin with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from shoal.cli._places import JsonOption
from shoal.cli._print import print_json, say
from shoal.errors import ConfigInvalid

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

TEMPLATE = '''\
# Reads what its task is about and answers. Check it with `shoal validate`, run it with `shoal run`.

[agent]
name = "@NAME@"
version = "0.1.0"
description = "Reads the files that its task is about and answers"

# Who serves it: the first of these that is there, with its default model; `"openai:MODEL"` names a model. The offline
# provider needs no key and no language model: it follows the `offline` steps below.
[defaults]
model = [
  { provider = "anthropic" }, { provider = "openai" }, { provider = "google" }, { provider = "compatible" },
  { provider = "offline" },
]

# The context window, cut into regions: each has a budget and a rule for what goes first.
[context.regions]
task = { kind = "pinned", max_tokens = 2000, seed = "task_input", volatility = "stable", required = true }
sources = { kind = "compacting", max_tokens = 40000, volatility = "grows" }
stage_instructions = { kind = "pinned", max_tokens = 1000 }
conversation = { kind = "sliding_window", max_tokens = 20000, max_items = 40, strategy = "bulk" }

# A stage is one step; `output` makes it submit an answer. `[stages.answer.transitions.NAME]` would lead to another.
[stages.answer]
description = "Read what the task is about, and answer"
mode = "output"
max_iterations = 30
available_tools = ["list_dir", "read_file", "context_read"]
system_prompt = """
Do what `task` asks for: list the working directory, read the files that matter (what was read stands in `sources`),
and answer in Markdown, from what you read alone. Submit the answer with `submit_output`."""

[stages.answer.output]
format = "markdown"

# Where the results of tools go.
[stages.answer.tool_routing]
overrides = { list_dir = "sources", read_file = "sources" }

# What the offline provider does in place of a model, step by step.
[[stages.answer.offline.policy]]
call = "list_dir"
args = { path = "." }

[[stages.answer.offline.policy]]
call = "submit_output"
args = { content = """
# {task}

*The offline provider wrote this; no language model was used.*

{region(sources)}
""" }

[[stages.answer.offline.policy]]
say = "The answer is submitted."
'''


TEST = """\
# What `shoal test` runs: each test is a run in a folder of its own.

[[test]]
name = "what is in the folder stands in the answer"
task = "What is in here?"
files = { "boats.md" = "Boats are small ships." }
expect_tool_call = ["list_dir", "submit_output"]
expect_contains = ["What is in here?", "boats.md"]
"""


def command(
    name: Annotated[str, Parameter(name="NAME", help="The new folder; its last part is the blueprint's name.")],
    /,
    *,
    as_json: JsonOption = False,
) -> int:
    """Write a blueprint to begin with: it has nothing to complain about, and runs on the offline provider."""
    folder = Path(name).expanduser()
    file, test = written(folder)
    if as_json:
        files = [str(each.relative_to(folder)) for each in (file, test)]
        print_json({"name": folder.name, "path": str(folder.absolute()), "files": files})
        return 0
    shown = folder if folder.is_absolute() else f"./{folder}"
    say(
        f"wrote {file}",
        f"wrote {test}",
        "",
        f"check it  shoal validate {shown}",
        f"test it   shoal test {shown}",
        f'run it    shoal run {shown} --task "What is in here?"',
    )
    return 0


def written(folder: Path) -> tuple[Path, Path]:
    """Write the blueprint into the new *folder* and return its file, and that of its tests.

    Raises:
        ConfigInvalid: The name is none for a blueprint, or the folder is there already or cannot be made.
    """
    if not _NAME.fullmatch(folder.name):
        raise ConfigInvalid(
            f"{folder.name!r} is no name for a blueprint; take letters, digits, `.`, `_` and `-`, no sign first"
        )
    file, test = folder / "blueprint.toml", folder / "tests" / f"{folder.name}.toml"
    try:
        folder.mkdir(parents=True)
        test.parent.mkdir()
        test.write_text(TEST, "utf-8")
        file.write_text(TEMPLATE.replace("@NAME@", folder.name), "utf-8")
    except FileExistsError as exc:
        raise ConfigInvalid(f"{str(folder)!r} is there already; name a folder that is not") from exc
    except OSError as exc:
        raise ConfigInvalid(f"{str(folder)!r} cannot be written: {exc.strerror or exc}") from exc
    return file, test
