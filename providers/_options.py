"""Further fields of a request body: what may be asked for, and what could only be refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from shoal.errors import ProviderRefused
from shoal.providers._json import as_list, as_object, as_text
from shoal.providers._legality import tool_name
from shoal.providers._schemas import loose
from shoal.providers._values import EFFORTS, Request

_MADE_FROM_REQUEST = frozenset(
    {"max_completion_tokens", "max_tokens", "messages", "model", "stream", "stream_options", "tools"}
)
_SAMPLING = frozenset({"frequency_penalty", "presence_penalty", "temperature", "top_k", "top_p"})
_STOPS = frozenset({"logprobs", "stop", "top_logprobs"})
_MARKING = frozenset({"prompt_cache_options"})
_ONLY_WITH_TOOLS = frozenset({"parallel_tool_calls", "tool_choice"})
_LEFT_OUT: Mapping[tuple[bool, bool], frozenset[str]] = {
    (True, True): frozenset(),
    (True, False): _SAMPLING,
    (False, True): _ONLY_WITH_TOOLS,
    (False, False): _SAMPLING | _ONLY_WITH_TOOLS,
}
_RANGES: Mapping[str, tuple[float, float]] = {
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "temperature": (0, 2),
    "top_logprobs": (0, 20),
    "top_p": (0, 1),
}
_MAX_STOPS = 4
_SCHEMA_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def nearest(effort: str, taken: tuple[str, ...]) -> str:
    """Return *effort*, or the highest level below it among *taken*; the lowest where there is none."""
    rank = EFFORTS.index(effort)
    below = [level for level in taken if level in EFFORTS and EFFORTS.index(level) <= rank]
    return below[-1] if below else taken[0]


def fit_effort(options: dict[str, Any], name: str, taken: tuple[str, ...] | None) -> None:
    """Have the level of effort in *options* be one that the model takes, as near as it can be; take out one too many.

    Args:
        options: Holds the level, under *name*.
        name: The option.
        taken: What the model takes; `None` where that is unknown, which leaves the level as it is.
    """
    if taken is None or options.get(name) not in EFFORTS:
        return
    if taken:
        options[name] = nearest(options[name], taken)
    else:
        del options[name]


def fit_choice(options: dict[str, Any], names: Mapping[str, str], *, forced: bool) -> None:
    """Have a choice of tools in *options* be one that can be had, by the names under which the tools are sent.

    Args:
        options: Holds the choice; one of a tool that is not offered is taken out.
        names: Our name of each tool, by the name that is sent.
        forced: The model can be made to call a tool; where it cannot, the choice is its own.
    """
    choice = as_object(options.get("tool_choice"))
    function = as_object(choice.get("function"))
    if "name" in function:
        name = tool_name(as_text(function["name"]))
        if name not in names:
            del options["tool_choice"]
            return
        options["tool_choice"] = {**choice, "function": {**function, "name": name}}
    if not forced and (function or options.get("tool_choice") == "required"):
        options["tool_choice"] = "auto"


def checked_options(
    request: Request, *, tools: bool, sampling: bool, strict: bool, markers: bool, provider: str
) -> dict[str, Any]:
    """Return the options of *request* that go into the body.

    Args:
        request: The request.
        tools: The body has tools; without them no option about tools is sent.
        sampling: The model takes sampling parameters; without that none is sent.
        strict: The server enforces the documented ranges, so a value outside them is refused here already.
        markers: The model caches at markers; without them nothing is said of how.
        provider: Named in errors.

    Raises:
        ProviderRefused: An option would replace what the request itself says, or could only be refused.
    """
    left_out = _LEFT_OUT[tools, sampling]
    if strict and not sampling:
        left_out |= _STOPS  # models that reason take neither
    if not markers:
        left_out |= _MARKING
    options = {name: value for name, value in request.options.items() if name not in left_out}
    for name in sorted(_MADE_FROM_REQUEST.intersection(options)):
        why = f"the option `{name}` is made from the request itself; remove it from `options`"
        raise ProviderRefused(why, provider=provider, model=request.model)
    for problem in _problems(options, strict=strict):
        raise ProviderRefused(problem, provider=provider, model=request.model)
    if strict and as_object(options.get("response_format")).get("type") == "json_object" and not _says_json(request):
        why = "the option `response_format` asks for JSON, and nothing in the prompt says so; say `JSON` in it"
        raise ProviderRefused(why, provider=provider, model=request.model)
    return options


def _says_json(request: Request) -> bool:
    """Say whether the prompt has the word, without which the vendor refuses to be asked for nothing else."""
    texts = [text for block in request.system for text in block.texts]
    texts += [text for segment in request.messages for message in segment.messages for text in message.texts]
    return any(b"json" in text.body.lower() for text in [*texts, *([request.tail] if request.tail is not None else [])])


def _problems(options: Mapping[str, Any], *, strict: bool) -> list[str]:
    if options.get("n", 1) != 1:
        return [f"`n` is {options['n']!r}, but one reply is read; remove it from `options`"]
    if not strict:
        return []
    problems = [
        f"`{name}` is {options[name]!r}, but goes from {low} to {high}; change it"
        for name, (low, high) in _RANGES.items()
        if options.get(name) is not None and not _within(options[name], low, high)
    ]
    stops = len(as_list(options.get("stop")))
    if stops > _MAX_STOPS:
        problems.append(f"`stop` holds {stops!r} texts, but at most {_MAX_STOPS} are taken; remove some")
    response_format = as_object(options.get("response_format"))
    if response_format.get("type") == "json_schema":
        named = as_object(response_format.get("json_schema"))
        if not _SCHEMA_NAME.fullmatch(as_text(named.get("name"))):
            problems.append(f"the schema's `name` is {named.get('name')!r}; use 1 to 64 of a-z, A-Z, 0-9, _ and -")
        elif named.get("strict") and (path := loose(named.get("schema"), "schema")):
            problems.append(
                f"`strict` is set, but the object at `{path}` does not require all its properties "
                "and forbid others; list each in `required` and set `additionalProperties` to false"
            )
    return problems


def _within(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high
