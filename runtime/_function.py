"""Agentic functions: agents that are written as code. What one is, how it is declared, and what it is called with."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from importlib import import_module
from types import SimpleNamespace
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    cast,
    final,
    get_args,
    get_type_hints,
    overload,
)

from shoal.errors import ConfigInvalid, DefinitionMissing, SpawnRefused, ToolInvalid
from shoal.runtime._bundle import Source
from shoal.runtime.events import Expose
from shoal.runtime.tools import Effects, Tool, source_digest

if TYPE_CHECKING:
    import pydantic

    from shoal.runtime._agentic import Context

P = ParamSpec("P")
R = TypeVar("R")
MOST_OF_ONE = 5
"""How often one function may stand in a call path, unless it says something else."""
MOST_PATH = 50
"""How many functions may stand in a call path."""
KEY_CHARS = 400
"""How much of a function's result its line in the call tree keeps, unless it says what to keep."""


@final
@dataclass(frozen=True, slots=True)
class Options:
    """How a function is treated.

    Args:
        expose: What others see of it.
        callers: Exchanges from before it began that it sees; `None` for no cap.
        subcalls: Exchanges made since, below it, that it sees; `None` for no cap.
        system: What it says of itself to every model that it asks; empty for nothing.
        as_tool: A function may give it to its model as a tool.
        timeout_s: Seconds that it may take; `None` for no limit.
        max_depth: How often it may stand in a call path.
        key_output: Returns what its line in the call tree keeps; `None` for how its result begins.
    """

    expose: Expose = "io"
    callers: int | None = None
    subcalls: int | None = None
    system: str = ""
    as_tool: bool = False
    timeout_s: float | None = None
    max_depth: int = MOST_OF_ONE
    key_output: Callable[[Any], str] | None = None


@final
class AgenticFunction(Generic[P, R]):
    """An agent that is written as an async function.

    Call it with a `Context` inside another one; `bound` gives what a swarm spawns.

    Args:
        function: The function.
        options: How it is treated.

    Raises:
        ToolInvalid: It is no async function whose first parameter takes a `Context`.
    """

    def __init__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], options: Options) -> None:
        shown = getattr(function, "__qualname__", repr(function))
        if not (inspect.isfunction(function) and inspect.iscoroutinefunction(function)):
            raise ToolInvalid(f"{shown!r} is not an async function; declare it with `async def` to make it agentic")
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters:
            raise ToolInvalid(f"{shown!r} takes no context; give it a first parameter, such as `ctx: Context`")
        odd = [each for each in parameters[1:] if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)]
        if odd:
            raise ToolInvalid(f"{shown!r} takes `{odd[0]}`; the arguments of an agentic function need a name each")
        self.function = function
        self.options = options
        self.name = function.__name__
        self.job = _first_sentence(function)
        self.signature = inspect.Signature(parameters[1:])
        update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<AgenticFunction {self.name}>"

    def __call__(self, ctx: Context, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call it inside another function; the call is numbered at once and made when it is awaited."""
        return cast("Coroutine[Any, Any, R]", ctx.call(self, self.arguments(*args, **kwargs)))

    def bound(self, *args: P.args, **kwargs: P.kwargs) -> AgenticCall[R]:
        """Return it with its arguments, as a swarm spawns it.

        Raises:
            SpawnRefused: They are not what it takes, or no JSON can say them.
        """
        try:
            given = self.arguments(*args, **kwargs)
        except TypeError as exc:
            raise SpawnRefused(f"{self.name!r} cannot be called like that: {exc}") from exc
        return AgenticCall(self, given)

    @cached_property
    def source(self) -> Source:
        """Where it is, and what its source is."""
        function = self.function
        return Source(f"{function.__module__}:{function.__qualname__}", source_digest(function))

    def arguments(self, *args: Any, **kwargs: Any) -> str:
        """Return its arguments as a JSON object.

        Raises:
            TypeError: They are not what it takes, or no JSON can say them.
        """
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = {name: as_json(self._types.get(name), value) for name, value in bound.arguments.items()}
        return json.dumps({name: json.loads(value) for name, value in values.items()}, ensure_ascii=False)

    def started(self, ctx: Context, arguments: str) -> Coroutine[Any, Any, R]:
        """Return it called with *arguments*, a JSON object."""
        given: dict[str, Any] = json.loads(arguments)
        values = {name: from_json(self._types.get(name), json.dumps(value)) for name, value in given.items()}
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            if name in values and parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(values[name])
            elif name in values:
                named[name] = values[name]
        function: Callable[..., Coroutine[Any, Any, R]] = self.function
        return function(ctx, *positional, **named)

    @cached_property
    def _types(self) -> Mapping[str, Any]:
        """The types of its parameters, and of its result under `return`, as far as it says them."""
        function = self.function
        said = {name: kind for name, kind in function.__annotations__.items() if name in self.signature.parameters}
        # That of the context is left out: many import it for type checkers only.
        if "return" in function.__annotations__:
            said["return"] = function.__annotations__["return"]
        try:
            holder = SimpleNamespace(__annotations__=said)
            hints = get_type_hints(holder, globalns=function.__globals__, include_extras=True)
        except (NameError, TypeError) as exc:
            shown = self.function.__qualname__
            raise ToolInvalid(f"{shown!r} has an annotation that means nothing where it stands: {exc}") from exc
        return hints

    @property
    def returns(self) -> Any:
        """The type of its result; `None` for text, and where it does not say."""
        found = self._types.get("return")
        return None if found in (str, Any, type(None)) else found

    def said(self, result: object) -> str:
        """Return *result* as JSON.

        Raises:
            TypeError: No JSON can say it.
        """
        return as_json(self._types.get("return"), result)

    def given(self, output: str) -> R:
        """Return the result that the *output* of a run of it stands for, which is a text as it is."""
        return self.read(output if self.returns is not None else json.dumps(output))

    def read(self, output: str) -> R:
        """Return the result that *output*, JSON, stands for."""
        return cast("R", from_json(self._types.get("return"), output))

    def key(self, result: R) -> str:
        """Return what its line in the call tree keeps of *result*."""
        if self.options.key_output is not None:
            return self.options.key_output(result)
        if result is None:
            return ""
        text = result if isinstance(result, str) else json.dumps(json.loads(self.said(result)), ensure_ascii=False)
        return text[:KEY_CHARS]

    @cached_property
    def tool(self) -> Tool:
        """It as a tool, which nobody but a function's call can run.

        Raises:
            ToolInvalid: It is not declared with `as_tool`, or a parameter has no type that a schema can say.
        """
        if not self.options.as_tool:
            raise ToolInvalid(f"{self.name!r} is no tool; declare it with `@agentic(as_tool=True)` to make it one")
        # Imported here: only those who give functions to models pay for it.
        from shoal.runtime.tools._arguments import arguments_of  # noqa: PLC0415

        arguments = arguments_of(self.function, skip=1)
        effects = Effects(idempotent=True)  # what it did is recorded, and not done again
        where = self.source
        return Tool(
            self.name,
            arguments.description,
            arguments.schema,
            None,
            "allow",
            effects,
            (where.qualname, where.digest),
        )


@final
@dataclass(frozen=True, slots=True)
class AgenticCall(Generic[R]):
    """An agentic function with its arguments, as a swarm spawns it.

    Args:
        function: The function.
        arguments: Its arguments, a JSON object.
    """

    function: AgenticFunction[..., R]
    arguments: str


@overload
def agentic(function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AgenticFunction[P, R]: ...


@overload
def agentic(
    *,
    expose: Expose = "io",
    render_range: Mapping[str, int] | None = None,
    system: str = "",
    as_tool: bool = False,
    timeout_s: float | None = None,
    max_depth: int = MOST_OF_ONE,
    key_output: Callable[[Any], str] | None = None,
) -> Callable[[Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]], AgenticFunction[P, R]]: ...


def agentic(
    function: Callable[..., Coroutine[Any, Any, Any]] | None = None,
    /,
    *,
    expose: Expose = "io",
    render_range: Mapping[str, int] | None = None,
    system: str = "",
    as_tool: bool = False,
    timeout_s: float | None = None,
    max_depth: int = MOST_OF_ONE,
    key_output: Callable[[Any], str] | None = None,
) -> Any:
    """Make an async function an agent: one that asks models, calls other such functions, and is resumed where it was.

    Args:
        function: The function, where the decorator is used without arguments; its first parameter takes a `Context`.
        expose: What others see of it: `io` its arguments and result, `llm` what it says to models, `full` both and
            everything below it, `hidden` nothing.
        render_range: How much it sees itself: `callers` exchanges from before it began, and `subcalls` exchanges made
            since by what it calls; 0 is none, and what is not named has no cap.
        system: What it says of itself to every model that it asks.
        as_tool: Functions may give it to their models as a tool.
        timeout_s: Seconds that it may take, from its begin on; `None` for no limit.
        max_depth: How often it may stand in one call path, 1 or more.
        key_output: Returns what its line in the call tree keeps of its result once it is over; `None` for its first 400
            characters.

    Raises:
        ToolInvalid: It is no async function, or takes no context.
        ConfigInvalid: An option has a value that means nothing.
    """
    options = Options(
        _one_of(expose),
        *_caps(render_range or {}),
        system,
        as_tool,
        timeout_s,
        max_depth,
        key_output,
    )
    if max_depth < 1:
        raise ConfigInvalid(f"`max_depth` is {max_depth!r}; a function stands in its own path, so take 1 or more")

    def made(wrapped: Callable[..., Coroutine[Any, Any, Any]]) -> AgenticFunction[..., Any]:
        return AgenticFunction(wrapped, options)

    return made if function is None else made(function)


def _one_of(expose: str) -> Expose:
    known = next((each for each in get_args(Expose) if each == expose), None)
    if known is None:
        raise ConfigInvalid(f"`expose` is {expose!r}; take `io`, `llm`, `full` or `hidden`")
    return cast("Expose", known)


def _caps(render_range: Mapping[str, int]) -> tuple[int | None, int | None]:
    unknown = [key for key in render_range if key not in ("callers", "subcalls")]
    if unknown:
        raise ConfigInvalid(f"`render_range` has the key {unknown[0]!r}; it takes `callers` and `subcalls`")
    wrong = [key for key, value in render_range.items() if value < (0 if key == "callers" else -1)]
    if wrong:
        raise ConfigInvalid(f"`render_range` has {wrong[0]!r} at {render_range[wrong[0]]!r}; take 0 or more")
    below = render_range.get("subcalls", -1)
    return render_range.get("callers"), None if below < 0 else below


def _first_sentence(function: Callable[..., Any]) -> str:
    text = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
    first, dot, _ = text.partition(". ")
    return f"{first}." if dot else text


# --- values


def as_json(kind: Any, value: object) -> str:
    """Return *value*, of the type *kind* (`None` where that is not said), as JSON.

    Raises:
        TypeError: No JSON can say it.
    """
    if isinstance(value, str) and kind in (None, str, Any):
        return json.dumps(value, ensure_ascii=False)
    import pydantic  # noqa: PLC0415 - only those who write functions pay for it

    try:
        return _adapter(kind).dump_json(value, warnings="error").decode()
    except (pydantic.errors.PydanticUserError, ValueError) as exc:
        raise TypeError(f"{value!r:.80} cannot be kept as JSON: {exc}") from exc


def from_json(kind: Any, source: str) -> Any:
    """Return the value of the type *kind* that the JSON *source* stands for."""
    return json.loads(source) if kind in (None, str, Any, type(None)) else _adapter(kind).validate_json(source)


def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    import pydantic  # noqa: PLC0415 - see `as_json`

    return pydantic.TypeAdapter(Any if kind is None else kind)


def digest_of(*parts: str) -> str:
    """Return what stands for *parts*, hex."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


# --- finding it again


def find(qualname: str) -> AgenticFunction[..., Any]:
    """Return the agentic function of a qualified name, such as `agents.papers:literature`.

    Raises:
        DefinitionMissing: There is none; it is named.
    """
    module, _, path = qualname.partition(":")
    why = "nothing of that name can be imported"
    found: Any = None
    if "<locals>" not in path and module != "__main__":
        try:
            found = sys.modules.get(module) or import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as exc:
            found, why = None, str(exc)
    if isinstance(found, AgenticFunction):
        return cast("AgenticFunction[..., Any]", found)
    raise DefinitionMissing(f"this run is the agentic function {qualname!r} ({why}); give it again with `tools=[…]`")
