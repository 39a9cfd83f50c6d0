"""An agentic function at work: what its context can do, what is recorded of it, and how a second run finds that again.

Every call on a context is numbered when it is made. Where the journal holds what came of a number, that is returned and
nothing is done; where it holds another call under it, the run ends, since the function does not repeat.
"""

from __future__ import annotations

import datetime as dt
import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, final, overload

import anyio
import anyio.to_thread

from shoal.blueprints import Blueprint
from shoal.errors import ReplayMismatch, SpawnRefused
from shoal.providers import EMPTY, Text
from shoal.runtime._asking import Asked, answered, menu_of, offered
from shoal.runtime._attachment import SeedValue
from shoal.runtime._contracts import Contract, Decision, PassedTo
from shoal.runtime._faults import ends_all, fault_of, revived
from shoal.runtime._frames import Frame, Frames
from shoal.runtime._function import MOST_PATH, AgenticCall, AgenticFunction, as_json, digest_of
from shoal.runtime._host import ChildRequest
from shoal.runtime._live import Late, Live
from shoal.runtime._orders import GivenTool, schema_of, validated
from shoal.runtime.events import ChildEnded, FrameEntered, FrameLeft, Payload, Status, StepKind, StepRecorded
from shoal.runtime.tools import as_tool

T = TypeVar("T")


@final
class Ended(Generic[T]):
    """How a run ended that a function spawned.

    Args:
        run_id: The run.
        status: `complete`, `complete_interactive`, `error` or `cancelled`.
        output: What it gave; `None` where it gave nothing.
        reason: Why it ended.
    """

    def __init__(self, run_id: str, status: Status, output: T | None, reason: str) -> None:
        self.run_id = run_id
        self.status: Status = status
        self.output = output
        self.reason = reason

    def __repr__(self) -> str:
        return f"<Ended {self.run_id} {self.status}>"

    @property
    def ok(self) -> bool:
        """It ended as it should."""
        return self.status in ("complete", "complete_interactive")


@final
class Spawned(Generic[T]):
    """A run that a function spawned.

    Args:
        running: The life that spawned it.
        run_id: The run.
        read: Returns the value that its output stands for.
    """

    def __init__(self, running: Running, run_id: str, read: Callable[[str], T]) -> None:
        self.run_id = run_id
        self._running = running
        self._read = read

    def __repr__(self) -> str:
        return f"<Spawned {self.run_id}>"

    async def result(self) -> Ended[T]:
        """Wait for its end and return that; a paused one is waited for."""
        ended = await self._running.child_ended(self.run_id)
        output = None if ended.output is None or ended.status == "error" else self._read(str(ended.output))
        return Ended(self.run_id, ended.status, output, ended.reason)


@final
class Context:
    """What an agentic function works with: it asks models, calls other functions, spawns runs, and records.

    Each call is numbered when it is made, also where several run at once; what is returned is awaited as any coroutine.

    Args:
        running: The life of its run.
        frame: Seq of its frame.
    """

    __module__ = "shoal"

    def __init__(self, running: Running, frame: int) -> None:
        self._running = running
        self._frame = frame
        self._made = 0

    def __repr__(self) -> str:
        return f"<Context of `{self._running.frames.frames[self._frame].entered.function}`, {self._made} calls>"

    @property
    def run_id(self) -> str:
        """The run."""
        return self._running.live.run_id

    def _number(self) -> int:
        self._made += 1
        return self._made

    # --- models

    @overload
    def infer(
        self,
        prompt: str,
        *,
        returns: None = None,
        output: Contract | None = None,
        position: str = "",
        tools: Sequence[GivenTool | AgenticFunction[..., Any] | str] = (),
        model: str | Sequence[str] = (),
        max_tokens: int | None = None,
        timestamp: bool = False,
    ) -> Coroutine[Any, Any, str]: ...

    @overload
    def infer(
        self,
        prompt: str,
        *,
        returns: type[T],
        output: Contract | None = None,
        position: str = "",
        tools: Sequence[GivenTool | AgenticFunction[..., Any] | str] = (),
        model: str | Sequence[str] = (),
        max_tokens: int | None = None,
        timestamp: bool = False,
    ) -> Coroutine[Any, Any, T]: ...

    def infer(
        self,
        prompt: str,
        *,
        returns: type[Any] | None = None,
        output: Contract | None = None,
        position: str = "",
        tools: Sequence[GivenTool | AgenticFunction[..., Any] | str] = (),
        model: str | Sequence[str] = (),
        max_tokens: int | None = None,
        timestamp: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        """Ask a model and return its answer, after the tools that it calls have run.

        Args:
            prompt: What is asked.
            returns: The type of the answer, anything pydantic can validate; the model is shown its JSON schema, and
                asked again where its answer does not fit. `None` for text.
            output: What becomes of the answer; `None` says that it is passed to the caller, where there is one.
            position: Where in the function the call stands, for the model.
            tools: What the model may call: typed async functions, functions declared with `as_tool`, and names of
                built-in tools.
            model: `provider:model`, or several of them, the best first; none takes whoever serves the run. A model that
                the spawn names goes before.
            max_tokens: Longest answer; `None` for as much as the model writes.
            timestamp: Tell the model the time.

        Raises:
            OutputInvalid: The answer does not fit, however often it was asked for.
            ProviderError: The vendor's last word.
            RunFailed: The model called tools without end.
            ToolInvalid: A tool cannot be offered.
        """
        toolset = offered(tools)
        schema = None if returns is None else schema_of(returns)
        asked = Asked(
            prompt, position, self._line(output), schema, toolset, _models(model), max_tokens, timestamp=timestamp
        )
        read = partial(validated, returns) if returns is not None else str
        return answered(self._running, self._frame, self._number(), asked, read)

    def decide(
        self,
        question: str,
        *,
        options: Sequence[T],
        position: str = "",
        tools: Sequence[GivenTool | AgenticFunction[..., Any] | str] = (),
        model: str | Sequence[str] = (),
    ) -> Coroutine[Any, Any, T]:
        """Have a model choose one of *options*, and return that.

        Args:
            question: What is to be decided.
            options: What may be chosen, 1 or more, each with a name of its own: texts, and functions, of which the
                model is told what they do.
            position: Where in the function the call stands, for the model.
            tools: What the model may call before it chooses.
            model: `provider:model`, or several of them, the best first; none takes whoever serves the run. A model that
                the spawn names goes before.

        Raises:
            OutputInvalid: No option was chosen, however often the model was asked.
            ValueError: There is no option, or two have one name.
            ProviderError: The vendor's last word.
        """
        menu = menu_of(options)
        whole = f"{question}\n\n{menu.text}"
        asked = Asked(whole, position, Decision().line, menu.schema, offered(tools), _models(model))
        return answered(self._running, self._frame, self._number(), asked, menu.read)

    def _line(self, output: Contract | None) -> str:
        if output is not None:
            return output.line
        parent = self._running.frames.frames[self._frame].entered.parent
        above = self._running.frames.frames.get(parent)
        return "" if above is None else PassedTo(above.entered.function).line

    # --- functions and runs

    def call(self, function: AgenticFunction[..., Any], arguments: str) -> Coroutine[Any, Any, Any]:
        """Call another function with *arguments*, a JSON object; `function(ctx, …)` does so with Python values."""
        return self._running.nested(self._frame, self._number(), function, arguments)

    @overload
    def spawn(
        self,
        blueprint: AgenticCall[T],
        *,
        task: None = None,
        seeds: None = None,
        tools: Sequence[GivenTool] = (),
        detached: bool = False,
    ) -> Coroutine[Any, Any, Spawned[T]]: ...

    @overload
    def spawn(
        self,
        blueprint: str | Path | Blueprint,
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        detached: bool = False,
    ) -> Coroutine[Any, Any, Spawned[str]]: ...

    def spawn(
        self,
        blueprint: str | Path | Blueprint | AgenticCall[Any],
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        detached: bool = False,
    ) -> Coroutine[Any, Any, Spawned[Any]]:
        """Start a child of the run, and return it once its first event is durable.

        Args:
            blueprint: A name of the library, a path, a `Blueprint`, or a function with its arguments (`bound`).
            task: Its task; `None` for none.
            seeds: Values by name for its regions that take a caller's value.
            tools: Functions that it may call.
            detached: It outlives this run; otherwise this run's end is its end too.

        Raises:
            SpawnRefused: It cannot run.
        """
        wanted = ChildRequest(
            blueprint, task, dict(seeds or {}), detached=detached, tools=[as_tool(tool) for tool in tools]
        )
        read = blueprint.function.given if isinstance(blueprint, AgenticCall) else str
        return self._running.spawned(self._frame, self._number(), wanted, read)

    # --- what is recorded

    def step(self, function: Callable[..., Any], *args: Any) -> Coroutine[Any, Any, Any]:
        """Call *function* once and return what it gave, the same whenever this place is reached again.

        For everything that would not come out the same in a second run: a file, a page, a database. What it returns
        comes back as plain JSON values, the first time too. Where a process dies while it runs, it runs again.

        Args:
            function: An async function, or one that may block, which runs in a thread.
            *args: Its arguments.

        Raises:
            TypeError: JSON cannot say what it returned.
        """
        return self._running.step(self._frame, self._number(), function, args)

    def now(self) -> Coroutine[Any, Any, dt.datetime]:
        """Return the time in UTC, the same whenever this place is reached again."""
        return self._running.now(self._frame, self._number())

    def random(self) -> Coroutine[Any, Any, float]:
        """Return a random number from 0 up to 1, the same whenever this place is reached again."""
        return self._running.random(self._frame, self._number())

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Sleep *seconds*, which count on while no process hosts the run."""
        return self._running.sleep(self._frame, self._number(), seconds)

    async def gather(self, *calls: Awaitable[T]) -> list[T]:
        """Await *calls* at once and return what they give, in their order; the first that fails ends the others.

        Calls that were made before are numbered already, so they repeat on every event loop.
        """
        results: dict[int, T] = {}

        async def one(index: int, call: Awaitable[T]) -> None:
            results[index] = await call

        try:
            async with anyio.create_task_group() as tasks:
                for index, call in enumerate(calls):
                    tasks.start_soon(one, index, call)
        except ExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
        return [results[index] for index in range(len(calls))]


@final
class Running:
    """One life of a run that is an agentic function.

    Args:
        live: The life.
    """

    def __init__(self, live: Live) -> None:
        self.live = live
        self.lost: ReplayMismatch | None = None
        """Why it cannot go on: it does not repeat."""
        self._cut_off: list[int] = []
        """Frames that were cancelled: they are said to be once the function goes on, for a life that ends cancels
        them too."""

    def __repr__(self) -> str:
        return f"<Running {self.live.run_id}, {self.frames!r}>"

    @property
    def frames(self) -> Frames:
        """What the run's events say of its functions."""
        return self.live.state.frames

    # --- writing

    def emit(self, payload: Payload) -> int:
        """Journal *payload*."""
        cut_off, self._cut_off = self._cut_off, []
        for frame in cut_off:
            self.live.emit(FrameLeft(frame, "cancelled"))
        return self.live.emit(payload)

    async def ready(self) -> None:
        """Return once something new may be begun: not while the run is paused.

        Raises:
            Late: The run is over.
        """
        while not self.live.over and self.live.state.phase == "paused":
            await self.live.next_move()
        if self.live.over:
            raise Late(f"run {self.live.run_id} is over; its function goes no further")

    def check(self, frame: int, number: int, kind: str, digest: str) -> None:
        """See that the journal holds nothing else under *number*.

        Raises:
            ReplayMismatch: It does.
        """
        if self.lost is not None:
            raise self.lost
        known = self.frames.frames[frame].kinds.get(number)
        if known is None or known == (kind, digest):
            return
        name = self.frames.frames[frame].entered.function
        self.lost = ReplayMismatch(
            f"call {number} of `{name}` (frame {frame}) is `{kind}` ({digest}) and the journal holds `{known[0]}` "
            f"({known[1]}); the function or what it works with is not what it was: record what may change with "
            "`ctx.step`, or spawn it anew",
            run_id=self.live.run_id,
            frame=frame,
            number=number,
            recorded=known,
            asked=(kind, digest),
        )
        raise self.lost

    # --- functions

    async def nested(self, frame: int, number: int, function: AgenticFunction[..., Any], arguments: str) -> Any:
        """Call *function* from a frame, or return what that call came to."""
        digest = digest_of(function.source.qualname, arguments)
        self.check(frame, number, function.name, digest)
        known = self.frames.frames[frame].called.get(number)
        if known is None:
            await self.ready()
            known = self.emit(entered(function, arguments, parent=frame, call=number, digest=digest))
        return await self.run(known, function)

    async def by_tool(self, frame: int, source: int, index: int, function: AgenticFunction[..., Any], args: str) -> Any:
        """Call *function* for a model that a frame asked, or return what that came to."""
        known = self.frames.frames[frame].by_tool.get((source, index))
        if known is None:
            known = self.emit(entered(function, args, parent=frame, source=source, index=index))
        return await self.run(known, function)

    async def run(self, seq: int, function: AgenticFunction[..., Any]) -> Any:
        """Run the function of a frame to its end, or return how it ended before."""
        frame = self.frames.frames[seq]
        if frame.left is not None:
            if frame.left[1].status == "cancelled":
                await anyio.sleep_forever()  # whatever cut it off before does so again
            return _outcome(frame.left[1], function)
        settled = False
        try:
            result = await self._result(frame, function)
            left = FrameLeft(seq, "done", Text.of(function.said(result)), function.key(result))
            settled = True
        except Exception as exc:
            settled = True
            if ends_all(exc):
                raise
            left = FrameLeft(seq, "error", None, "", *fault_of(exc))
            self._leave(left)
            raise revived(left.error, left.reason) from exc
        finally:
            if not settled:
                self._cut_off.append(seq)
        self._leave(left)
        return _outcome(left, function)

    def _leave(self, left: FrameLeft) -> None:
        if self.lost is not None:
            raise self.lost
        self.emit(left)

    async def _result(self, frame: Frame, function: AgenticFunction[..., Any]) -> Any:
        self._check_depth(frame, function)
        calling = function.started(Context(self, frame.seq), str(frame.entered.arguments))
        most = function.options.timeout_s
        if most is None:
            return await calling
        left_s = frame.at + most - self.live.host.clock.unix()
        with anyio.move_on_after(left_s) as scope:
            return await calling
        assert scope.cancelled_caught  # nothing else leads here
        raise TimeoutError(f"`{function.name}` took longer than {most:g} s; raise its `timeout_s`, or have it do less")

    def _check_depth(self, frame: Frame, function: AgenticFunction[..., Any]) -> None:
        path = [self.frames.frames[seq].entered.function for seq in frame.path]
        times, most = path.count(function.name), function.options.max_depth
        if times > most:
            raise RecursionError(
                f"`{function.name}` would stand {times} times in its call path and `max_depth` is {most}; have it call "
                "something lower, or raise that"
            )
        if len(path) > MOST_PATH:
            raise RecursionError(f"the call path of `{function.name}` is longer than {MOST_PATH}; nest functions less")

    # --- runs

    async def spawned(self, frame: int, number: int, wanted: ChildRequest, read: Callable[[str], Any]) -> Spawned[Any]:
        """Start a child, or return the one that was started."""
        named = wanted.blueprint
        if isinstance(named, AgenticCall) and (wanted.task or wanted.seeds or wanted.tools):
            raise SpawnRefused(f"`{named.function.name}` is a function; give it what it needs in `bound`")
        what = (
            (named.function.source.qualname, named.arguments)
            if isinstance(named, AgenticCall)
            else (named.name if isinstance(named, Blueprint) else str(named), "")
        )
        seeds = sorted((name, value) for name, value in wanted.seeds.items() if isinstance(value, str))
        digest = digest_of("spawn", *what, wanted.task or "", json.dumps(seeds), str(wanted.detached))
        self.check(frame, number, "spawn", digest)
        found = self._child_of(frame, number)
        if found is not None:
            return Spawned(self, found, read)
        known = self.frames.frames[frame].steps.get(number)
        if known is not None and known.error:
            raise revived(known.error, known.reason)
        await self.ready()
        step = StepRecorded(frame, number, "spawn", digest) if known is None else None
        request = replace(wanted, source=frame, index=number, step=step)
        try:
            child = await self.live.host.spawn_child(self.live.run_id, request)
        except Exception as exc:
            if ends_all(exc) or self.live.over:
                raise
            self.emit(StepRecorded(frame, number, "spawn", digest, None, *fault_of(exc)))
            raise revived(*fault_of(exc)) from exc
        return Spawned(self, child, read)

    def _child_of(self, frame: int, number: int) -> str | None:
        children = self.live.state.children.values()
        ids = (each.spawned.child for each in children if (each.spawned.source, each.spawned.index) == (frame, number))
        return next(ids, None)

    async def child_ended(self, run_id: str) -> ChildEnded:
        """Return how a child ended, once it has."""
        while True:
            known = self.live.state.children[run_id].ended
            if known is not None:
                return known
            await self.ready()
            await self.live.next_move()

    # --- steps

    async def step(self, frame: int, number: int, function: Callable[..., Any], args: Sequence[Any]) -> Any:
        """Return what *function* gives, or gave."""
        name = getattr(function, "__qualname__", type(function).__name__)
        digest = digest_of("step", name, *map(_shape, args))

        async def made() -> str:
            await self.live.durable()
            if inspect.iscoroutinefunction(function):
                return as_json(None, await function(*args))
            value = await anyio.to_thread.run_sync(_called, function, args, limiter=self.live.host.threads)
            return as_json(None, value)

        return json.loads(await self._recorded(frame, number, "step", digest, made))

    async def now(self, frame: int, number: int) -> dt.datetime:
        """Return the time of this place."""
        stamp = await self._recorded(frame, number, "now", "", self._stamp)
        return dt.datetime.fromtimestamp(float(stamp), dt.UTC)

    async def random(self, frame: int, number: int) -> float:
        """Return the random number of this place."""

        async def made() -> str:
            return repr(self.live.host.clock.random.random())

        return float(await self._recorded(frame, number, "random", "", made))

    async def sleep(self, frame: int, number: int, seconds: float) -> None:
        """Sleep until the time of this place."""

        async def made() -> str:
            return repr(self.live.host.clock.unix() + seconds)

        due = float(await self._recorded(frame, number, "sleep", repr(float(seconds)), made))
        await anyio.sleep(max(0.0, due - self.live.host.clock.unix()))
        await self.ready()

    async def _stamp(self) -> str:
        return repr(self.live.host.clock.stamp())

    async def _recorded(
        self, frame: int, number: int, step: StepKind, digest: str, made: Callable[[], Awaitable[str]]
    ) -> str:
        """Return the JSON that *made* gives, or gave."""
        self.check(frame, number, step, digest)
        known = self.frames.frames[frame].steps.get(number)
        if known is None:
            await self.ready()
            try:
                known = StepRecorded(frame, number, step, digest, Text.of(await made()))
            except Exception as exc:
                if ends_all(exc):
                    raise
                known = StepRecorded(frame, number, step, digest, None, *fault_of(exc))
                self.emit(known)
                raise revived(known.error, known.reason) from exc
            self.emit(known)
        if known.error:
            raise revived(known.error, known.reason)
        return str(known.value or EMPTY)


def entered(
    function: AgenticFunction[..., Any],
    arguments: str,
    *,
    parent: int = 0,
    call: int = 0,
    digest: str = "",
    source: int = 0,
    index: int = 0,
) -> FrameEntered:
    """Return the event that *function* begins with."""
    options = function.options
    return FrameEntered(
        function.name,
        Text.of(arguments),
        parent,
        call,
        digest,
        source,
        index,
        options.expose,
        options.callers,
        options.subcalls,
        function.job,
        options.system,
    )


async def run_function(live: Live) -> None:
    """Run the function that the run is, from its start; what it did before is not done again."""
    made_of = live.state.program.function
    assert made_of is not None  # decided so
    function = live.host.function(made_of.qualname)
    running, root = Running(live), live.state.frames.root
    try:
        await running.run(root, function)
    except Exception as exc:
        lost = running.lost
        if lost is not None and not live.over:
            live.emit(FrameLeft(root, "error", None, "", *fault_of(lost)))
        elif ends_all(exc) or live.state.frames.frames[root].left is None:
            raise


def _outcome(left: FrameLeft, function: AgenticFunction[..., Any]) -> Any:
    if left.status == "done":
        return function.read(str(left.output))
    raise revived(left.error, left.reason)


def _called(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    value = function(*args)
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError("a step was given a function that returns a coroutine; give it the async function itself")
    return value


def _models(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _shape(value: object) -> str:
    """Return what stands for an argument in a digest: its JSON, or its type where it has none."""
    try:
        return as_json(None, value)
    except TypeError:
        return type(value).__qualname__
