"""What a spawn asks for: checked once, whichever way it comes."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal, InvalidOperation
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, final

import msgspec
from typing_extensions import TypeVar

from shoal.blueprints import Blueprint
from shoal.errors import ConfigInvalid, OutputInvalid, SpawnRefused
from shoal.runtime._attachment import SeedValue
from shoal.runtime.events import BudgetGiven
from shoal.runtime.tools import FunctionTool, Tool

if TYPE_CHECKING:
    from shoal.runtime._function import AgenticCall

OutputT_co = TypeVar("OutputT_co", default="str | None", covariant=True)
"""What a run gives: text, or a value of the type that its spawn asked for."""

GivenTool: TypeAlias = Tool | FunctionTool[..., Any] | Callable[..., Awaitable[Any]]
"""A function that a run may call: a typed async function, what `shoal.tool` makes of one, or a `Tool`."""


@final
@dataclass(frozen=True)  # with slots, `SpawnRequest[Answer](…)` raises: a frozen class of those has no `__orig_class__`
class SpawnRequest(Generic[OutputT_co]):
    """One run to start, for `Swarm.spawn_many` and `Run.spawn_many`.

    Args:
        blueprint: A name of the library, a path, a `Blueprint`, or an agentic function with its arguments (`bound`).
        task: Its task; `None` for none.
        seeds: Values by name for the regions that take a caller's value. The run sees nothing else of its caller.
        tools: Functions that it may call; stages that list them see them, and all stages do if none lists them.
        workdir: Its working directory: what its tools and seeds may read.
        model: `provider:model` that replaces every stage's; `None` for none.
        unattended: Nobody is there to ask.
        output_dir: A folder that listings of the working directory leave out; `None` for none.
        trace: A W3C `traceparent` whose trace the run joins; `None` for none.
        key: A second spawn under the same key returns the same run, in a later process too; `None` for no key.
        output_format: How the answer is to be written, such as `markdown`; `None` for what its blueprint says.
        output_instructions: What the answer is to look like; `None` for what its blueprint says.
        budget: Limits for it and everything below it, in place of its blueprint's; `None` leaves those.
        returns: The type that the answer is to have, anything pydantic can validate; `None` for text.
    """

    blueprint: str | Path | Blueprint | AgenticCall[OutputT_co]
    _: KW_ONLY
    task: str | None = None
    seeds: Mapping[str, SeedValue] = field(default_factory=dict[str, SeedValue])
    tools: Sequence[GivenTool] = ()
    workdir: str | Path = "."
    model: str | None = None
    unattended: bool = True
    output_dir: str | Path | None = None
    trace: str | None = None
    key: str | None = None
    output_format: str | None = None
    output_instructions: str | None = None
    budget: BudgetGiven | None = None
    returns: type[OutputT_co] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", budget_of(self.budget))


_LIMITS: tuple[tuple[str, type | tuple[type, ...], float, str], ...] = (
    ("max_cost_usd", Decimal, 0, "dollars, 0 or more, such as `Decimal('2.50')`"),
    ("max_tokens", int, 1, "a whole number, 1 or more"),
    ("max_wall_s", (int, float), sys.float_info.min, "seconds above 0"),
)


def budget_of(given: BudgetGiven | None) -> BudgetGiven | None:
    """Return the limits that somebody gave in code, dollars as the decimal that they are written as.

    Raises:
        ConfigInvalid: One of them is no limit.
    """
    if given is None:
        return None
    dollars = cast("object", given.max_cost_usd)
    if isinstance(dollars, int | float | str) and not isinstance(dollars, bool):
        with suppress(InvalidOperation):
            given = msgspec.structs.replace(given, max_cost_usd=Decimal(str(dollars)))
    for name, kinds, least, wanted in _LIMITS:
        value: Any = getattr(given, name)
        number = isinstance(value, kinds) and not isinstance(value, bool)
        if value is not None and not (number and _within(value, least)):
            raise ConfigInvalid(f"`{name}` of the budget is {value!r}; give {wanted}, or `None` for no such limit")
    return given


def _within(value: Any, least: float) -> bool:
    """Say whether *value* is at least *least*, and a number that there is an end to."""
    with suppress(ValueError, OverflowError):  # a signalling NaN, a whole number longer than any float
        return least <= float(value) < inf
    return False


def check_child(wanted: SpawnRequest[Any]) -> None:
    """Refuse what a spawn says of a child that its parent decides.

    Raises:
        SpawnRefused: It is named.
    """
    said = {
        "workdir": str(wanted.workdir) != ".",
        "output_dir": wanted.output_dir is not None,
        "trace": wanted.trace is not None,
        "unattended": not wanted.unattended,
    }
    odd = next((name for name, value in said.items() if value), None)
    if odd is not None:
        raise SpawnRefused(f"a child has the `{odd}` of its parent; leave it out, or spawn it from the swarm")


def check_call(wanted: SpawnRequest[Any], function: str) -> None:
    """Refuse what a spawn says of an agentic *function* that the function says itself.

    Raises:
        SpawnRefused: It is named.
    """
    said = {
        "task": wanted.task,
        "seeds": wanted.seeds,
        "tools": wanted.tools,
        "returns": wanted.returns,
        "output_format": wanted.output_format,
        "output_instructions": wanted.output_instructions,
    }
    odd = next((name for name, value in said.items() if value), None)
    if odd is not None:
        raise SpawnRefused(
            f"{function!r} is an agentic function, of which a spawn says no `{odd}`; give it what it needs in `bound`"
        )


def typed(output: str, returns: type[Any], run_id: str) -> Any:
    """Return what a run gave as a value of the type that its spawn asked for.

    Raises:
        OutputInvalid: It is none.
    """
    try:
        return validated(returns, output)
    except ValueError as exc:
        name = getattr(returns, "__name__", str(returns))  # a union has none
        message = f"the answer of run {run_id} is no {name}: {exc}; read it with `shoal result`"
        raise OutputInvalid(message, run_id=run_id) from exc


def schema_of(returns: type[Any]) -> str:
    """Return the JSON schema of an answer of that type, as JSON source."""
    import pydantic  # noqa: PLC0415 - only those who ask for typed answers pay for it

    return json.dumps(pydantic.TypeAdapter(returns).json_schema(), sort_keys=True)


def validated(returns: type[Any], output: str) -> Any:
    """Return *output* as a value of that type.

    Raises:
        ValueError: It is none; the message says what is wrong with it, in one line.
    """
    import pydantic  # noqa: PLC0415 - see `schema_of`

    try:
        return pydantic.TypeAdapter(returns).validate_json(output)
    except pydantic.ValidationError as exc:
        found = exc.errors(include_url=False, include_input=False, include_context=False)
        said = [": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found]
        raise ValueError("; ".join(said)) from exc
