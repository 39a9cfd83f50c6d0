"""How a typed function becomes a tool, and what it returned a result."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, ParamSpec, TypeVar, cast, final, overload

import msgspec

from shoal.blueprints import Permission
from shoal.errors import ToolInvalid
from shoal.providers import EMPTY, Text
from shoal.runtime._attachment import attachment
from shoal.runtime.tools._tool import Effects, Tool, ToolContext, ToolResult

P = ParamSpec("P")
R = TypeVar("R")


@final
class FunctionTool(Generic[P, R]):
    """An async function that is also a tool: call it as before, or give it to `spawn(tools=[…])`.

    Args:
        function: The function.
        tool: What it is as a tool.
    """

    def __init__(self, function: Callable[P, Awaitable[R]], tool: Tool) -> None:
        self.function = function
        self.tool = tool
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<FunctionTool {self.tool.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[P, Awaitable[R]], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    permission: Permission = "allow",
    reads: bool = False,
    writes: bool = False,
    network: bool = False,
    asks_human: bool = False,
    idempotent: bool | None = None,
    deferred: bool = False,
) -> Callable[[Callable[P, Awaitable[R]]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Awaitable[Any]] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    permission: Permission = "allow",
    reads: bool = False,
    writes: bool = False,
    network: bool = False,
    asks_human: bool = False,
    idempotent: bool | None = None,
    deferred: bool = False,
) -> Any:
    """Make an async function a tool. The schema comes from its signature, the descriptions from its docstring.

    Its result is text, bytes (or an `Attachment`, which has a name), a list of both, or any value that JSON can say. An
    exception becomes an error result that the model reads.

    Args:
        function: The function, where the decorator is used without arguments.
        name: Its name; the function's unless given.
        description: What it does, for the model; the docstring's first part unless given.
        permission: What happens where no blueprint, configuration or launch flag says anything else.
        reads: It looks at something outside the run.
        writes: It changes something outside the run.
        network: It reaches beyond this machine.
        asks_human: It waits for a person.
        idempotent: Calling it again does no harm; `None` is true for a tool that only reads.
        deferred: Its schema is sent only after the model has loaded it with `load_tools`; until then it stands by name.

    Raises:
        ToolInvalid: It is not an async function, or a parameter has no type that a schema can say.
    """
    effects = Effects(reads, writes, network, asks_human, idempotent)

    def made(wrapped: Callable[..., Awaitable[Any]]) -> FunctionTool[..., Any]:
        made = _function_tool(wrapped, name, description, permission, effects)
        return FunctionTool(wrapped, replace(made, deferred=deferred))

    return made if function is None else made(function)


def as_tool(given: Tool | FunctionTool[..., Any] | Callable[..., Awaitable[Any]]) -> Tool:
    """Return *given* as a tool; a bare async function is taken as one without declared effects.

    Raises:
        ToolInvalid: It cannot be a tool.
    """
    if isinstance(given, Tool):
        return given
    return given.tool if isinstance(given, FunctionTool) else tool(given).tool


def _function_tool(
    function: Callable[..., Awaitable[Any]],
    name: str | None,
    description: str | None,
    permission: Permission,
    effects: Effects,
) -> Tool:
    if not (inspect.isroutine(function) and inspect.iscoroutinefunction(function)):
        shown = getattr(function, "__qualname__", repr(function))
        raise ToolInvalid(f"{shown!r} is not an async function; declare it with `async def` to make it a tool")
    # Imported here: only those who write tools in code pay for it, and then once.
    from shoal.runtime.tools._arguments import arguments_of  # noqa: PLC0415

    arguments = arguments_of(function)

    async def call(context: ToolContext, args: Mapping[str, Any]) -> ToolResult:
        try:
            values = arguments.parse(args)
        except ToolInvalid as exc:
            return ToolResult.error(str(exc))
        return as_result(await function(**values))

    return Tool(
        function.__name__ if name is None else name,
        arguments.description if description is None else description,
        arguments.schema,
        call,
        permission,
        effects,
        (f"{function.__module__}:{function.__qualname__}", source_digest(function)),
    )


def as_result(value: object) -> ToolResult:
    """Return what a function returned as a result: text and bytes as they are, nothing as empty text, the rest as JSON.

    A list or tuple that holds bytes is taken apart: its texts stand below each other, its bytes behind them.

    Raises:
        TypeError: JSON cannot say it.
    """
    part = attachment(value)
    if part is not None:
        return ToolResult(EMPTY, parts=(part,))
    match value:
        case ToolResult():
            return value
        case Text():
            return ToolResult(value)
        case None:
            return ToolResult.of("")
        case str():
            return ToolResult.of(value)
        case list() | tuple() if any(attachment(each) is not None for each in cast("Sequence[object]", value)):
            return _mixed(cast("Sequence[object]", value))
        case _:
            return ToolResult.of(_json(value))


def _mixed(values: Sequence[object]) -> ToolResult:
    parts = [part for part in map(attachment, values) if part is not None]
    said = [each for each in values if attachment(each) is None]
    lines = [each if isinstance(each, str) else _json(each) for each in said]
    return ToolResult(Text.of("\n".join(lines)), parts=tuple(parts))


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value, enc_hook=_plain).decode()
    except UnicodeEncodeError:  # half a character, such as in the name of a file; escaped it can be said
        return json.dumps(msgspec.to_builtins(value, enc_hook=_plain))


def _plain(value: object) -> object:
    """Return a value of a pydantic model, or of a type that only pydantic knows, as plain values."""
    import pydantic_core  # noqa: PLC0415 - only those who give tools in code pay for it

    try:
        return pydantic_core.to_jsonable_python(value)
    except pydantic_core.PydanticSerializationError as exc:
        kind = type(value).__name__
        raise TypeError(f"a tool returned {kind!r}, which JSON cannot say; return text or plain values") from exc


def source_digest(function: Callable[..., Any]) -> str:
    """Return a digest of the source of *function*; of its byte code where there is no source."""
    try:
        source = inspect.getsource(function).encode()
    except (OSError, TypeError):
        source = function.__code__.co_code
    return hashlib.sha256(source).hexdigest()[:16]
