"""What an agentic function asks a model: the question, what may be called, and what may be chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast, final

from shoal.blueprints import tool_name
from shoal.errors import ToolInvalid
from shoal.providers import ToolSet
from shoal.runtime._function import AgenticFunction, digest_of
from shoal.runtime._orders import GivenTool
from shoal.runtime.program import offer
from shoal.runtime.tools import BUILT_IN, Tool, as_tool

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class Tools:
    """What the model of a call may call.

    Args:
        tools: Tools by name.
        functions: Those of them that are agentic functions.
        offered: What a request offers.
    """

    tools: Mapping[str, Tool]
    functions: Mapping[str, AgenticFunction[..., Any]]
    offered: ToolSet


def offered(given: Sequence[GivenTool | AgenticFunction[..., Any] | str]) -> Tools:
    """Return *given* as a call offers it.

    Raises:
        ToolInvalid: One cannot be offered, or two have one name.
    """
    tools: dict[str, Tool] = {}
    functions: dict[str, AgenticFunction[..., Any]] = {}
    for each in given:
        if isinstance(each, AgenticFunction):
            functions[each.name] = each
            tool = each.tool
        else:
            tool = _built_in(each) if isinstance(each, str) else as_tool(each)
        if tool.name in tools:
            raise ToolInvalid(f"two tools of one call are called `{tool.name}`; rename one of them")
        tools[tool.name] = tool
    return Tools(tools, functions, offer(tools))


def _built_in(name: str) -> Tool:
    tool = BUILT_IN.get(tool_name(name))
    if tool is None:
        raise ToolInvalid(f"there is no built-in tool `{name}`; give a function of your own as itself")
    if tool.call is None:
        raise ToolInvalid(
            f"`{name}` works on the stages and regions of a blueprint, which a function has not; take it out, or spawn "
            "a blueprint with `ctx.spawn`"
        )
    return tool


@final
@dataclass(frozen=True, slots=True)
class Menu(Generic[T]):
    """What may be chosen.

    Args:
        options: The options by name.
        text: How they are told.
        schema: JSON schema of a choice.
    """

    options: Mapping[str, T]
    text: str
    schema: str

    def read(self, answer: str) -> T:
        """Return the option that *answer* chooses.

        Raises:
            ValueError: It chooses none.
        """
        chosen: object = json.loads(bare(answer))
        name = cast("dict[str, object]", chosen).get("choice") if isinstance(chosen, dict) else None
        if not isinstance(name, str) or name not in self.options:
            listed = ", ".join(map(repr, self.options))
            raise ValueError(f"`choice` is {name!r}; take one of {listed}")
        return self.options[name]


def menu_of(options: Sequence[T]) -> Menu[T]:
    """Return *options* as a menu.

    Raises:
        ValueError: There are none, or two have one name.
    """
    named: dict[str, T] = {}
    lines: list[str] = []
    for each in options:
        name = each if isinstance(each, str) else str(getattr(each, "__name__", each))
        if name in named:
            raise ValueError(f"two options are called {name!r}; give each a name of its own")
        named[name] = each
        job = each.job if isinstance(each, AgenticFunction) else ""
        lines.append(f"- {name}: {job}" if job else f"- {name}")
    if not named:
        raise ValueError("there is nothing to choose from; give `options` 1 or more")
    schema = {
        "additionalProperties": False,
        "properties": {"choice": {"enum": [*named]}},
        "required": ["choice"],
        "type": "object",
    }
    return Menu(named, "Menu:\n" + "\n".join(lines), json.dumps(schema, ensure_ascii=False))


def bare(answer: str) -> str:
    """Return the JSON of *answer*, which may stand in a fence."""
    text = answer.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text[text.index("\n") + 1 : -3].strip()
    return text


@final
@dataclass(frozen=True, slots=True)
class Asked:
    """What a function asks a model.

    Args:
        prompt: What is asked.
        position: Where in the function that is; empty where it does not say.
        line: What becomes of the answer; empty where nothing is said.
        schema: JSON schema of the answer; `None` for text.
        tools: What may be called.
        models: Who may serve it, as `provider:model`, best first; empty for whoever serves the run.
        max_tokens: Longest answer; `None` for no limit of its own.
        timestamp: The model is told the time.
    """

    prompt: str
    position: str
    line: str
    schema: str | None
    tools: Tools
    models: tuple[str, ...]
    max_tokens: int | None = None
    timestamp: bool = False

    @property
    def digest(self) -> str:
        """What stands for all of it."""
        return digest_of(
            "infer",
            self.prompt,
            self.position,
            self.line,
            self.schema or "",
            self.tools.offered.digest.hex(),
            *self.models,
            str(self.max_tokens),
            str(self.timestamp),
        )
