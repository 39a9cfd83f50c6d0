"""The sandbox: each call of a script is a fresh session in a worker process, under limits on time, memory and depth.

A global that outlived a call would carry one run's text into another, so nothing does. Same source, same arguments,
same time and same seed give the same answer: a journal that is replayed needs no script.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final

import anyio.to_thread
import msgspec

from shoal.errors import ConfigInvalid
from shoal.runtime.scripts._trusted import MARK, Functions, described

if TYPE_CHECKING:
    import pydantic_monty

Plain: TypeAlias = "str | int | float | bool | Sequence[Plain] | Mapping[str, Plain] | None"

_MOST_ARGUMENT_BYTES = 4 * 1024 * 1024
_SUSPENSIONS = 100
_MOST_LOOKED_AT = 1024


@final
@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """What one call may use.

    Args:
        seconds: Of running time.
        memory_bytes: Of heap.
        depth: Levels of recursion.
    """

    seconds: float = 0.25
    memory_bytes: int = 32 * 1024 * 1024
    depth: int = 200


@final
class ScriptError(Exception):
    """A call came to nothing: it raised, ran out of a limit, or gave what no script may give.

    Args:
        reason: `syntax`, `raised`, `time`, `memory`, `depth`, `argument`, `result`, or `crashed`.
        message: What went wrong, for people.
        line: Where in the script, 1 or more; `None` where there is no place.
        column: 1 or more; `None` where there is no place.
    """

    def __init__(self, reason: str, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.line = line
        self.column = column


@final
@dataclass(frozen=True, slots=True)
class Script:
    """A script as it was when its run was spawned.

    Args:
        path: Where it came from, for messages.
        source: Its text.
        functions: Functions of the program that stand in its place; `None` for a script of its own.
    """

    path: str
    source: str
    functions: Functions | None = None

    @property
    def digest(self) -> str:
        """Stands for its text."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:32]


@final
class Sandbox:
    """Runs scripts in worker processes, which start with the first call and end with `close`.

    Args:
        limits: What one call may use.
        threads: Limits the threads that wait for calls; `None` is the event loop's own limit.
        trusted: Functions of the program in the place of scripts, by the path that a blueprint names.

    Raises:
        ConfigInvalid: At the first call: the package that does the work is not installed.
    """

    def __init__(
        self,
        limits: ScriptLimits | None = None,
        *,
        threads: anyio.CapacityLimiter | None = None,
        trusted: Mapping[str, Functions] | None = None,
    ) -> None:
        self._trusted = {path: Script(path, described(own), own) for path, own in (trusted or {}).items()}
        self.limits = limits or ScriptLimits()
        self._stack = ExitStack()
        self._pool: pydantic_monty.Monty | None = None
        self._threads = threads
        self._defined: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}

    def __repr__(self) -> str:
        return f"<Sandbox {'idle' if self._pool is None else 'open'}>"

    def close(self) -> None:
        """End the worker processes. Closing twice is fine."""
        self._stack.close()
        self._pool = None

    def trusted(self, path: str) -> Script | None:
        """Return what stands in the place of the script at *path*; `None` for nothing."""
        return self._trusted.get(path)

    @property
    def every_trusted(self) -> Mapping[str, Script]:
        """What stands in the place of scripts, by path."""
        return self._trusted

    async def defines(self, script: Script, names: Sequence[str]) -> frozenset[str]:
        """Return which of *names* the script defines at its top level as functions; the same text is looked at once.

        Raises:
            ScriptError: It cannot be read, or fails before anything of it is called.
        """
        if script.functions is not None:
            return frozenset(name for name in names if name in script.functions)
        key = (script.digest, tuple(names))
        known = self._defined.get(key)
        if known is not None:
            return known
        probes = [_PROBE.format(name=name) for name in names]
        found = await self._in_thread(script, "\n".join(["__found = []", *probes, "__found"]), {}, 0.0, 0)
        known = self._defined[key] = frozenset(str(name) for name in cast("Sequence[object]", found))
        if len(self._defined) > _MOST_LOOKED_AT:
            del self._defined[next(iter(self._defined))]
        return known

    async def call(self, script: Script, function: str, argument: Plain, *, at: float, seed: int) -> Plain:
        """Call *function* of *script* with one *argument*, a plain copy, and return what it gives, plain again.

        Args:
            script: The script.
            function: A function at its top level.
            argument: What it is given.
            at: What its clock says, unix seconds.
            seed: What its random numbers come from.

        Raises:
            ScriptError: It came to nothing.
        """
        given = msgspec.json.encode(argument)
        if len(given) > _MOST_ARGUMENT_BYTES:
            raise ScriptError("argument", f"`{script.path}` would be given more than {_MOST_ARGUMENT_BYTES:,} bytes")
        if script.functions is not None:
            return plain(await self._in_program(script, function, given), script.path, function)
        if script.source.startswith(MARK):
            raise ScriptError("missing", f"no functions are registered for `{script.path}`; give them as `scripts`")
        result = await self._in_thread(script, f"{function}(__given)", {"__given": argument}, at, seed)
        return plain(result, script.path, function)

    async def _in_program(self, script: Script, function: str, given: bytes) -> object:
        """Call a function of the program with a copy of what it is given, in a thread: it may take its time."""
        assert script.functions is not None  # the caller looked
        called = script.functions[function]
        argument = msgspec.json.decode(given)
        try:
            return await anyio.to_thread.run_sync(called, argument, limiter=self._threads)
        except Exception as exc:
            raise ScriptError("raised", f"`{script.path}`: {type(exc).__name__}: {exc}") from exc

    async def _in_thread(self, script: Script, code: str, inputs: Mapping[str, Any], at: float, seed: int) -> object:
        return await anyio.to_thread.run_sync(self._run, script, code, inputs, at, seed, limiter=self._threads)

    def _run(self, script: Script, code: str, inputs: Mapping[str, Any], at: float, seed: int) -> object:
        monty = _engine()
        if self._pool is None:
            self._pool = self._stack.enter_context(monty.Monty())
        limits: pydantic_monty.ResourceLimits = {
            "max_feed_duration_secs": self.limits.seconds,
            "max_memory": self.limits.memory_bytes,
            "max_recursion_depth": self.limits.depth,
            "max_suspensions": _SUSPENSIONS,
        }
        policy: pydantic_monty.OSPolicy = {
            "datetime": dt.datetime.fromtimestamp(at, dt.UTC),
            "timezone": "UTC",
            "sleep": "zero",
            "process_time": "zero",
            "random_start": {"seed": seed},
        }
        try:
            with self._pool.checkout(script_name=script.path, limits=limits, os_policy=policy) as session:
                session.feed_run(script.source, print_callback=_unheard)
                return session.feed_run(code, inputs=dict(inputs), print_callback=_unheard)
        except monty.MontySyntaxError as exc:
            line, column = _place(exc)
            raise ScriptError("syntax", f"{_named(script, line)} cannot be read: {exc}", line, column) from exc
        except monty.MontyError as exc:
            line, column = _place(exc)
            raise ScriptError(_reason(exc), f"{_named(script, line)}: {exc}", line, column) from exc


_PROBE = """\
try:
    if str(type({name})) == "<class 'function'>":
        __found.append('{name}')
except NameError:
    pass"""


_FED_FIRST = "<python-input-0>"
"""How the sandbox calls the text of the script itself; what is fed behind it is ours."""


def _place(exc: Any) -> tuple[int | None, int | None]:
    """Return line and column of the innermost place in the script that *exc* came from; `None` for none."""
    frames: Sequence[Any] = exc.traceback() if hasattr(exc, "traceback") else ()
    own = [frame for frame in frames if frame.filename == _FED_FIRST]
    return (own[-1].line, own[-1].column) if own else (None, None)


def _named(script: Script, line: int | None) -> str:
    return f"`{script.path}`" if line is None else f"`{script.path}`, line {line}"


def _unheard(_stream: str, _text: str) -> None:
    """Drop what a script prints: it has nobody to speak to."""


def _engine() -> Any:
    try:
        import pydantic_monty  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigInvalid(
            "a script needs the sandbox `pydantic-monty`; install it with `pip install 'shoal[scripts]'`, "
            "or register a Python callable in the script's place"
        ) from exc
    return pydantic_monty


_REASONS = (("TimeoutError", "time"), ("MemoryError", "memory"), ("RecursionError", "depth"))


def _reason(exc: Exception) -> str:
    said = str(exc)
    if type(exc).__name__ == "MontyCrashedError":
        return "crashed"
    return next((reason for kind, reason in _REASONS if said.startswith(kind)), "raised")


def plain(value: object, path: str, function: str) -> Plain:
    """Return *value* as plain values.

    Raises:
        ScriptError: It holds what has no fixed form: a set, whose order is nobody's, bytes, an object, a number that is
            none.
    """
    kind = type(value).__name__
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and value == value and abs(value) != float("inf"):  # noqa: PLR0124 - NaN differs from itself
        return value
    if isinstance(value, list | tuple):
        return [plain(item, path, function) for item in cast("Sequence[object]", value)]
    if isinstance(value, dict):
        items = cast("Mapping[object, object]", value).items()
        if all(isinstance(key, str) for key, _ in items):
            return {str(key): plain(item, path, function) for key, item in items}
    raise ScriptError("result", f"`{function}` of `{path}` gives {kind!r}, which is no plain value")
