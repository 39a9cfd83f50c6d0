"""How an agentic function asks a model: the call is opened, sent, its tools are run, and its answer is read.

Everything that was said is in the journal, so the next step follows from that alone; a call that a process left in the
middle goes on where it was.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, final

import anyio
import msgspec

from shoal.blueprints import ModelChoice, ModelSettings, Permission, tool_name
from shoal.errors import (
    ContextOverflow,
    HardCapExceeded,
    OutputInvalid,
    ProviderError,
    ProviderSetup,
    RunFailed,
    SpawnRefused,
)
from shoal.providers import Request, Text
from shoal.runtime._ask import completion, exchanged, failed, overflow
from shoal.runtime._asked import Asked, bare
from shoal.runtime._budget import Account, Worst
from shoal.runtime._call_prompt import around_call, call_prompt, inside_of, offer_bytes
from shoal.runtime._calls import end_leftovers, interrupted, line_rules, run_one, stopped
from shoal.runtime._failures import failure_text
from shoal.runtime._faults import fault_of, revived
from shoal.runtime._host import Serving
from shoal.runtime._live import Live
from shoal.runtime._measure import Size, measure, size_of
from shoal.runtime._parts import made_by_model
from shoal.runtime._people import approved
from shoal.runtime.context import INPUT, MEMORY_PREFETCH, Prompt, opening, stand
from shoal.runtime.events import (
    CallOpened,
    InferenceStarted,
    RunPaused,
    ScriptFailed,
    StepRecorded,
    ToolCallCompleted,
    ToolCallStarted,
)
from shoal.runtime.state import BUILD, Again, Call, Round, Turn
from shoal.runtime.tools import SHELL, Tool, ToolResult, as_result, judge, summary, with_line

if TYPE_CHECKING:
    from shoal.runtime._running import Running

T = TypeVar("T")
RECALLED_TOKENS = 500
"""What a call is shown of memory beside what every call is, at most."""


@final
@dataclass(slots=True)
class _Asking:
    """A call that is under way in this life.

    Args:
        running: The life.
        frame: Seq of the frame.
        number: Number of the call in it.
        asked: What is asked.
        digest: What stands for that.
        tried: Who could not serve it.
    """

    running: Running
    frame: int
    number: int
    asked: Asked
    digest: str
    tried: list[str] = field(default_factory=list[str])

    @property
    def live(self) -> Live:
        return self.running.live

    def fail(self, error: Exception) -> None:
        """Journal that the call failed."""
        self.running.emit(StepRecorded(self.frame, self.number, "failed", self.digest, None, *fault_of(error)))


async def answered(running: Running, frame: int, number: int, asked: Asked, read: Callable[[str], T]) -> T:
    """Return what a model answers, or answered, as *read* reads it; that raises `ValueError` where it does not fit.

    Raises:
        OutputInvalid, ProviderError, RunFailed: See `Context.infer`.
    """
    asking = _Asking(running, frame, number, asked, asked.digest)
    running.check(frame, number, "infer", asking.digest)
    refused = running.frames.frames[frame].steps.get(number)
    if refused is not None:
        raise revived(refused.error, refused.reason)
    opened = running.frames.frames[frame].calls.get(number)
    if opened is None:
        await running.ready()
        try:
            opened = await _open(asking)
        except SpawnRefused as refusal:  # nobody can serve it
            asking.fail(refusal)
            raise revived(*fault_of(refusal)) from refusal
    call = running.frames.calls[opened]
    while call.failed is None:
        last = call.said[-1] if call.said else None
        if isinstance(last, Round) and not last.calls:
            try:
                return read(bare(str(last.reply.text)) if asked.schema is not None else str(last.reply.text))
            except ValueError as problem:
                await running.ready()
                _ask_again(asking, call, problem)
        elif isinstance(last, Round) and last.open_calls:
            await _run_calls(asking, last)
        else:
            await _step(asking, call)
    raise revived(call.failed.error, call.failed.reason)


def _ask_again(asking: _Asking, call: Call, problem: ValueError) -> None:
    times = sum(isinstance(each, Again) for each in call.said)
    if times >= asking.live.host.limits.asks:
        asking.fail(OutputInvalid(f"the model's answer does not fit after {times + 1} tries: {problem}"))
        return
    said = Text.of(f"[System] Your answer cannot be used: {problem}\nAnswer again, with nothing but the JSON.")
    asking.running.emit(StepRecorded(asking.frame, asking.number, "again", asking.digest, said))


async def _step(asking: _Asking, call: Call) -> None:
    """Send the next request of a call; what ends the call is journaled."""
    most = asking.live.host.limits.max_iterations
    if call.rounds >= most:
        asking.fail(
            RunFailed(f"the model called tools in {call.rounds} turns and gave no answer; `{most}` is the most")
        )
        return
    try:
        await _send(asking, call)
    except (ProviderError, SpawnRefused) as error:
        asking.fail(error)


# --- opening


async def _open(asking: _Asking) -> int:
    """Journal that a call begins, with what opens its message."""
    live, asked = asking.live, asking.asked
    serving = _candidates(asking)[0]
    recalled = await _recalled(live, asked.prompt)
    state = live.state
    tools = ""
    if asked.tools.tools:
        data = offer_bytes(asked.tools.offered)
        tools = hashlib.sha256(data).hexdigest()[:32]
        live.host.journal.define(tools, data)
    at = live.host.clock.stamp()
    named = (serving.provider.name, serving.model, serving.profile.append_only)
    opened = CallOpened(asking.frame, asking.number, (), at, asking.digest, tools, *named)
    inside = replace(
        inside_of(state.frames, state.frames.frames[asking.frame]),
        position=asked.position,
        output=asked.line,
        recalled=recalled,
        input=asked.prompt,
        schema=asked.schema or "",
        time=dt.datetime.fromtimestamp(int(at), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if asked.timestamp else "",
    )
    around = around_call(state, opened, asked.tools.offered, inside)
    blocks, left_out = opening(state.stage.components, around)
    _, also = stand(state.stage.components, around)
    for each in (*left_out, *also):
        _complain(live, each.name, each.error)
    if INPUT not in {name for name, _ in blocks}:
        blocks = (*blocks, (INPUT, Text.of(asked.prompt)))
    return asking.running.emit(msgspec.structs.replace(opened, blocks=blocks))


def _complain(live: Live, component: str, why: str) -> None:
    if component not in live.state.complained:
        live.emit(ScriptFailed(component, BUILD, "raised", why))


async def _recalled(live: Live, prompt: str) -> str:
    """Return what memory holds of *prompt*; nothing where there is none, or it fails, which is journaled."""
    memory = live.host.memory
    if memory is None or not any(each.name == MEMORY_PREFETCH for each in live.state.stage.components):
        return ""
    try:
        return summary(await memory.recall(prompt), RECALLED_TOKENS) if prompt.strip() else ""
    except Exception as exc:  # noqa: BLE001 - a memory that fails takes no run down, whatever it raises
        _complain(live, MEMORY_PREFETCH, f"{type(exc).__name__}: {exc}")
        return ""


def _candidates(asking: _Asking) -> list[Serving]:
    live = asking.live
    choices = tuple([ModelChoice.of(name) for name in asking.asked.models])
    # An order that stands in code is meant.
    settings = ModelSettings(choices, allow_user_default=not choices)
    found = live.host.serving(settings, live.state.made_by.model, live.state.made_by.default_model)
    return [each for each in found if each.label not in asking.tried]


# --- sending


async def _send(asking: _Asking, call: Call) -> None:
    await asking.running.ready()
    live, asked = asking.live, asking.asked
    serving = _candidates(asking)[0]
    prompt = call_prompt(live.state, call, asked.tools.offered)
    _keep_hard_cap(live, prompt)
    size = size_of(prompt)
    tokens = size.corrected(live, serving)
    most = serving.profile.max_output_tokens
    wanted = most if asked.max_tokens is None else min(asked.max_tokens, most)
    request = Request(
        serving.model,
        prompt.system,
        prompt.messages,
        prompt.tail,
        prompt.tools,
        min(wanted, max(1, serving.profile.window_tokens - tokens)),
        None,
        "stage",
        live.run_id,
        timeout_s=live.host.limits.request_timeout_s,
    )
    over = await measure(live, serving, request, size, call=call.seq)
    if over:
        raise overflow(serving, tokens, wanted)
    sending = _Sending(serving, prompt, request, size, tokens, wanted)
    if not live.state.made_by.budgets:
        await _exchange(asking, call, sending, ())
        return
    worst = Worst.of(serving, tokens, request.max_tokens)
    async with live.host.home.purses.aside(live, worst) as accounts:
        if accounts is not None:  # else the run is paused, or over
            await _exchange(asking, call, sending, accounts)


@final
@dataclass(frozen=True, slots=True)
class _Sending:
    """A request that may be sent."""

    serving: Serving
    prompt: Prompt
    request: Request
    size: Size
    tokens: int
    wanted: int


def _keep_hard_cap(live: Live, prompt: Prompt) -> None:
    knobs = live.state.stage.layout.knobs
    if knobs is not None and prompt.chars > knobs.hard_cap:
        raise HardCapExceeded(
            f"the request has {prompt.chars} characters and the most is {knobs.hard_cap}; have the function see less "
            "with `render_range`, or ask for less"
        )


async def _exchange(asking: _Asking, call: Call, sending: _Sending, accounts: Sequence[Account]) -> None:
    """Send a request and journal what comes of it."""
    live, serving, request = asking.live, sending.serving, sending.request
    started = live.emit(
        InferenceStarted(
            "stage",
            serving.provider.name,
            serving.model,
            sending.prompt.chars,
            sending.tokens,
            request.digest.hex(),
            request.max_tokens,
            0,
            sending.size.regions,
            sending.size.base,
            (),
            sending.wanted if sending.wanted > request.max_tokens else 0,
            call.seq,
        )
    )
    try:
        completed = await exchanged(live, serving, request, "stage", started)
    except ProviderError as error:
        live.emit(failed("stage", started, error))
        if isinstance(error, ContextOverflow):
            raise
        asking.tried.append(serving.label)
        if _candidates(asking):
            return
        if not isinstance(error, ProviderSetup):
            raise
        asking.tried.clear()
        live.emit(RunPaused("needs setup", f"{str(error).rstrip('.')}. {error.remedy}".strip()))
        live.host.home.moved(live)
        return
    made = completed.reply.parts
    seqs = tuple([live.keep(part) for part in await made_by_model(live, made)]) if made else ()
    framing = sending.prompt.framing_tokens
    payload = completion(completed, "stage", started, serving, sending.prompt.parts, framing, seqs)
    for account in accounts:
        account.spend(payload)
    asking.running.emit(payload)


# --- tools


async def _run_calls(asking: _Asking, made: Round) -> None:
    """Run the open calls of a reply; each is journaled as it ends."""
    await asking.running.ready()
    live, tools = asking.live, asking.asked.tools.tools
    state = live.state
    permitted: dict[str, Permission] = {
        name: live.host.permissions.of(tool, state.stage.stage, state.program.blueprint) for name, tool in tools.items()
    }
    to_run: list[tuple[int, Tool, Mapping[str, Any]]] = []
    for index in made.open_calls:
        call = made.calls[index]
        before = _cut_short(asking, made, index)
        if before is not None:
            await end_leftovers(live, call, before)
            live.emit(before)
            continue
        verdict = judge(tools, call.name, str(call.arguments), permitted)
        if verdict.tool is not None and verdict.tool.name == SHELL:
            verdict = await with_line(verdict, line_rules(live), live.host.threads)
        if verdict.asks and approved(live, Turn(made.seq, made.reply), index, verdict) is not True:
            continue
        gated = stopped(verdict, made.seq, index)
        if gated is not None or verdict.tool is None:
            live.emit(gated or ToolCallCompleted(made.seq, index, Text.of(verdict.said), is_error=True))
        else:
            to_run.append((index, verdict.tool, verdict.args))
    if not to_run:
        return
    for index, _, _ in to_run:
        if index not in made.started:
            live.emit(ToolCallStarted(made.seq, index))
    await live.durable()
    await asking.running.ready()
    async with anyio.create_task_group() as tasks:
        for index, tool, args in to_run:
            tasks.start_soon(_run_one, asking, made, index, tool, args)


def _cut_short(asking: _Asking, made: Round, index: int) -> ToolCallCompleted | None:
    """Return the result of a call that is not to run: one too many, or one that a dead process was in the middle of."""
    most = asking.live.host.limits.max_calls_per_turn
    if index >= most:
        said = f"[error] a turn runs at most {most} calls, and this was number {index + 1}; make it again"
        return ToolCallCompleted(made.seq, index, Text.of(said), is_error=True)
    tool = asking.asked.tools.tools.get(tool_name(made.calls[index].name))
    return interrupted(tool, made.seq, index) if index in made.started else None


async def _run_one(asking: _Asking, made: Round, index: int, tool: Tool, args: Mapping[str, Any]) -> None:
    function = asking.asked.tools.functions.get(tool.name)
    if function is None:
        await run_one(asking.live, made.seq, index, tool, args)
        return
    try:
        value = await asking.running.by_tool(
            asking.frame, made.seq, index, function, json.dumps(dict(args), ensure_ascii=False)
        )
        result = as_result(value)
    except Exception as exc:  # noqa: BLE001 - whatever a function raises is for the model to read
        fault_of(exc)  # but for what ends the life, which this raises
        result = ToolResult.error(failure_text(exc))
    asking.running.emit(ToolCallCompleted(made.seq, index, result.text, result.is_error, result.note))
