"""What an agentic function works with.

Every call on a context is numbered when it is made. Where the journal holds what came of a number, that is returned and
nothing is done; where it holds another call under it, the run ends, since the function does not repeat.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, final, overload

import anyio

from shoal.blueprints import Blueprint
from shoal.runtime._asked import Asked, menu_of, offered
from shoal.runtime._attachment import SeedValue
from shoal.runtime._births import child_of
from shoal.runtime._contracts import Contract, Decision, PassedTo
from shoal.runtime._function import AgenticCall, AgenticFunction
from shoal.runtime._live import Live
from shoal.runtime._orders import GivenTool, SpawnRequest, schema_of, typed, validated
from shoal.runtime._running import Running
from shoal.runtime.asking import answered
from shoal.runtime.events import ENDED_WELL, BudgetGiven, FrameLeft, Status

T = TypeVar("T")


@final
class Ended(Generic[T]):
    """How a run ended that a function spawned.

    Args:
        run_id: The run.
        status: `complete`, `complete_interactive`, `error` or `cancelled`.
        output: What it gave; `None` where it gave nothing.
        reason: Why it ended.
        flags: Names of what tells a forced end from a clean one, sorted.
    """

    def __init__(self, run_id: str, status: Status, output: T | None, reason: str, flags: tuple[str, ...] = ()) -> None:
        self.run_id = run_id
        self.status: Status = status
        self.output = output
        self.reason = reason
        self.flags = flags

    def __repr__(self) -> str:
        return f"<Ended {self.run_id} {self.status}>"

    @property
    def ok(self) -> bool:
        """It ended as it should."""
        return self.status in ENDED_WELL


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
        """Wait for its end and return that; a paused one is waited for.

        Raises:
            OutputInvalid: It is complete, and its answer is not of the type that its spawn asked for.
        """
        ended = await self._running.child_ended(self.run_id)
        whole = ended.status in ENDED_WELL
        # Of one that was cancelled it is what it said last: text, and nothing that stands for a value.
        given = ended.output is not None and (whole or (ended.status == "cancelled" and self._read is str))
        output = self._read(str(ended.output)) if given else None
        return Ended(self.run_id, ended.status, output, ended.reason, ended.flags)


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
        model: str | None = None,
        budget: BudgetGiven | None = None,
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
        model: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        returns: None = None,
    ) -> Coroutine[Any, Any, Spawned[str]]: ...

    @overload
    def spawn(
        self,
        blueprint: str | Path | Blueprint,
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        model: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        returns: type[T],
    ) -> Coroutine[Any, Any, Spawned[T]]: ...

    def spawn(
        self,
        blueprint: str | Path | Blueprint | AgenticCall[Any],
        *,
        task: str | None = None,
        seeds: Mapping[str, SeedValue] | None = None,
        tools: Sequence[GivenTool] = (),
        model: str | None = None,
        budget: BudgetGiven | None = None,
        detached: bool = False,
        returns: type[Any] | None = None,
    ) -> Coroutine[Any, Any, Spawned[Any]]:
        """Start a child of the run, and return it once its first event is durable.

        Args:
            blueprint: A name of the library, a path, a `Blueprint`, or a function with its arguments (`bound`).
            task: Its task; `None` for none.
            seeds: Values by name for its regions that take a caller's value.
            tools: Functions that it may call.
            model: `provider:model` that replaces every stage's; `None` for what replaces this run's.
            budget: Limits for it and everything below it, in place of its blueprint's; `None` leaves those.
            detached: It outlives this run; otherwise this run's end is its end too.
            returns: The type that the answer is to have; see `Swarm.spawn`.

        Raises:
            SpawnRefused: It cannot run.
            ConfigInvalid: A limit of the budget is none.
        """
        said = {
            "task": task,
            "seeds": seeds or {},
            "tools": tools,
            "model": model,
            "budget": budget,
            "returns": returns,
        }
        return self._spawned(self._number(), blueprint, said, detached=detached)

    async def _spawned(
        self,
        number: int,
        blueprint: str | Path | Blueprint | AgenticCall[Any],
        said: Mapping[str, Any],
        *,
        detached: bool,
    ) -> Spawned[Any]:
        request = SpawnRequest[Any](blueprint, **said)
        wanted = child_of(request, detached=detached, most_depth=None)
        run_id = await self._running.spawned(self._frame, number, wanted)
        if isinstance(blueprint, AgenticCall):
            return Spawned(self._running, run_id, blueprint.function.given)
        returns = request.returns
        return Spawned(
            self._running, run_id, str if returns is None else partial(typed, returns=returns, run_id=run_id)
        )

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


async def run_function(live: Live) -> None:
    """Run the function that the run is, from its start; what it did before is not done again."""
    made_of = live.state.program.function
    assert made_of is not None  # decided so
    function = live.host.programs.function(made_of.qualname)
    running, root = Running(live, Context), live.state.frames.root
    try:
        await running.run(root, function)
    except Exception:
        lost = running.lost
        if lost is not None:
            live.emit(FrameLeft(root, "error", None, "", type(lost).__name__, str(lost)))
        elif live.state.frames.frames[root].left is None:
            raise  # nothing can be written


def _models(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
