"""One life of a run that is an agentic function: what it does once, and what it finds in the journal a second time."""

from __future__ import annotations

import datetime as dt
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import anyio
import anyio.to_thread

from shoal.blueprints import Blueprint
from shoal.errors import ReplayMismatch
from shoal.providers import EMPTY, Text
from shoal.runtime._faults import fault_of, revived
from shoal.runtime._function import MOST_PATH, AgenticCall, AgenticFunction, as_json, digest_of
from shoal.runtime._host import ChildRequest
from shoal.runtime._live import Late, Live
from shoal.runtime.events import ChildEnded, FrameEntered, FrameLeft, Payload, StepKind, StepRecorded
from shoal.runtime.state import Frame, Frames

if TYPE_CHECKING:
    from shoal.runtime._agentic import Context


@final
class Running:
    """One life of a run that is an agentic function.

    Args:
        live: The life.
        context: Makes the context of a frame.
    """

    def __init__(self, live: Live, context: Callable[[Running, int], Context]) -> None:
        self.live = live
        self._context = context
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
        calling = function.started(self._context(self, frame.seq), str(frame.entered.arguments))
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

    async def spawned(self, frame: int, number: int, wanted: ChildRequest) -> str:
        """Start a child and return its id, or that of the one that was started."""
        named = wanted.blueprint
        what = (
            (named.function.source.qualname, named.arguments)
            if isinstance(named, AgenticCall)
            else (named.name if isinstance(named, Blueprint) else str(named), "")
        )
        seeds = sorted((name, value) for name, value in wanted.seeds.items() if isinstance(value, str))
        asked = [wanted.task or "", json.dumps(seeds), str(wanted.detached)]
        # What came later is left out where it is not said: functions that were spawned before repeat.
        asked += [repr(each) for each in (wanted.output_schema, wanted.model, wanted.budget) if each is not None]
        digest = digest_of("spawn", *what, *asked)
        self.check(frame, number, "spawn", digest)
        found = self._child_of(frame, number)
        if found is not None:
            return found
        known = self.frames.frames[frame].steps.get(number)
        if known is not None and known.error:
            raise revived(known.error, known.reason)
        await self.ready()
        step = StepRecorded(frame, number, "spawn", digest) if known is None else None
        request = replace(wanted, source=frame, index=number, step=step)
        try:
            child = await self.live.host.spawn_child(self.live.run_id, request)
        except Exception as exc:
            self.emit(StepRecorded(frame, number, "spawn", digest, None, *fault_of(exc)))
            raise revived(*fault_of(exc)) from exc
        return child

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


def _shape(value: object) -> str:
    """Return what stands for an argument in a digest: its JSON, or its type where it has none."""
    try:
        return as_json(None, value)
    except TypeError:
        return type(value).__qualname__
