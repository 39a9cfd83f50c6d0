"""How an agentic function asks a model: the call is opened, sent, its tools are run, and its answer is read.

Everything that was said is in the journal, so the next step follows from that alone; a call that a process left in the
middle goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shoal.errors import OutputInvalid, ProviderError, RunFailed, SpawnRefused
from shoal.providers import OWN_WORD, Text
from shoal.runtime._asked import Asked, bare
from shoal.runtime._faults import fault_of, revived
from shoal.runtime._running import Running
from shoal.runtime.asking._asking import Asking
from shoal.runtime.asking._opening import open_call
from shoal.runtime.asking._sending import send
from shoal.runtime.asking._tools import run_calls
from shoal.runtime.events import StepRecorded
from shoal.runtime.state import Again, Call, Round

T = TypeVar("T")


async def answered(running: Running, frame: int, number: int, asked: Asked, read: Callable[[str], T]) -> T:
    """Return what a model answers, or answered, as *read* reads it; that raises `ValueError` where it does not fit.

    Raises:
        OutputInvalid, ProviderError, RunFailed: See `Context.infer`.
    """
    asking = Asking(running, frame, number, asked, asked.digest)
    running.check(frame, number, "infer", asking.digest)
    refused = running.frames.frames[frame].steps.get(number)
    if refused is not None:
        raise revived(refused.error, refused.reason)
    call = await _opened(asking)
    while call.failed is None:
        last = call.said[-1] if call.said else None
        if isinstance(last, Round) and not last.calls:
            try:
                return read(bare(str(last.reply.text)) if asked.schema is not None else str(last.reply.text))
            except ValueError as problem:
                await running.ready()
                _ask_again(asking, call, problem)
        elif isinstance(last, Round) and last.open_calls:
            await run_calls(asking, last)
        else:
            await _step(asking, call)
    raise revived(call.failed.error, call.failed.reason)


async def _opened(asking: Asking) -> Call:
    """Return the call as it stands in the journal, opened where it is not yet."""
    running = asking.running
    opened = running.frames.frames[asking.frame].calls.get(asking.number)
    if opened is None:
        await running.ready()
        try:
            opened = await open_call(asking)
        except SpawnRefused as refusal:  # nobody can serve it
            asking.fail(refusal)
            raise revived(*fault_of(refusal)) from refusal
    return running.frames.calls[opened]


def _ask_again(asking: Asking, call: Call, problem: ValueError) -> None:
    times = sum(isinstance(each, Again) for each in call.said)
    if times >= asking.live.host.limits.asks:
        asking.fail(OutputInvalid(f"the model's answer does not fit after {times + 1} tries: {problem}"))
        return
    said = Text.of(f"{OWN_WORD}Your answer cannot be used: {problem}\nAnswer again, with nothing but the JSON.")
    asking.running.emit(StepRecorded(asking.frame, asking.number, "again", asking.digest, said))


async def _step(asking: Asking, call: Call) -> None:
    """Send the next request of a call; what ends the call is journaled."""
    most = asking.live.host.limits.max_iterations
    if call.rounds >= most:
        asking.fail(
            RunFailed(f"the model called tools in {call.rounds} turns and gave no answer; `{most}` is the most")
        )
        return
    try:
        await send(asking, call)
    except (ProviderError, SpawnRefused) as error:
        asking.fail(error)
