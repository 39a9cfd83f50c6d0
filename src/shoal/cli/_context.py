"""`shoal context`: the prompt of a run at any moment, and who owns which part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, final

from cyclopts import Parameter

from shoal.cli._places import JournalOption, JsonOption, RunArgument, program_of, run_reader
from shoal.cli._print import line, print_json, print_table, print_text, say
from shoal.errors import ConfigInvalid, ProviderRefused
from shoal.providers import Breakpoint, Marking, Message, Request, ToolSpec, shipped_profile
from shoal.runtime import Reader, RunState, newest_prompt
from shoal.runtime.context import Prompt, load_rendering
from shoal.runtime.events import InferenceStarted, StageEntered


def command(
    run: RunArgument,
    /,
    *,
    at: Annotated[int | None, Parameter(name="--at", help="As it was behind the event of this seq.")] = None,
    explain: Annotated[bool, Parameter(name="--explain", negative="", help="Show who owns which part.")] = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show what a run's next request shows the model, now or at an earlier event."""
    with run_reader(run, journal) as (reader, row):
        show_prompt(reader, row.run_id, at, explain=explain, as_json=as_json)
    return 0


def show_prompt(reader: Reader, run_id: str, at: int | None, *, explain: bool, as_json: bool) -> None:
    """Print the prompt of a run behind the event *at*; `None` for the newest.

    Raises:
        ConfigInvalid: The run had entered no stage by then, or has no such event.
        DefinitionMissing: What the run is made of cannot be had.
    """
    marks = Marks()
    state = state_at(reader, run_id, at, watch=marks.see if as_json or explain else None)
    show_rendered(reader, state)
    prompt = _prompt(state)
    breakpoints = marks.of(state, prompt) if as_json or explain else ()
    if as_json:
        print_json(_plain(state, prompt, breakpoints))
    elif explain:
        _explain(state, prompt, breakpoints)
    else:
        _show(state, prompt)


def state_at(
    reader: Reader, run_id: str, at: int | None, *, watch: Callable[[RunState], None] | None = None
) -> RunState:
    """Return the state of a run behind the event *at*; `None` for the newest.

    Args:
        reader: The journal.
        run_id: The run.
        at: Seq of the event.
        watch: Called with the state at each request of a stage that was sent until then.

    Raises:
        ConfigInvalid: The run had entered no stage by then, or has no such event.
        DefinitionMissing: What the run is made of cannot be had.
    """
    events = [event for event in reader.read(run_id) if at is None or event.seq <= at]
    if at is not None and (not events or events[-1].seq < at):
        raise ConfigInvalid(f"run {run_id} has no event {at}; its last is {events[-1].seq if events else 0}")
    if not any(isinstance(event.payload, StageEntered) for event in events):
        raise ConfigInvalid(f"run {run_id} had entered no stage by event {at}; give a later one")
    state = RunState(run_id, program_of(reader, run_id), definition=reader.definition)
    for event in events:
        state.apply(event)
        if watch is not None and isinstance(event.payload, InferenceStarted) and event.payload.purpose == "stage":
            show_rendered(reader, state)
            watch(state)
    return state


def show_rendered(reader: Reader, state: RunState) -> None:
    """Let custom regions be seen as scripts rendered them for the newest request."""
    for region, digest in state.renders.items():
        state.view.show(region, load_rendering(reader.definition(digest)))


@final
class Marks:
    """The cache markers of a run's requests: where the next ones go depends on those before."""

    def __init__(self) -> None:
        self._marking: dict[tuple[str, str], Marking] = {}

    def __repr__(self) -> str:
        return f"<Marks for {len(self._marking)} models>"

    def see(self, state: RunState) -> None:
        """Take note of the request that was just sent."""
        self.of(state, _prompt(state))

    def of(self, state: RunState, prompt: Prompt) -> tuple[Breakpoint, ...]:
        """Return where the markers of *prompt* go; none where the provider sets none, or is none of ours."""
        provider, model = _serving(state)
        marking = self._marking.get((provider, model))
        if marking is None:
            marking = self._marking[provider, model] = Marking(provider, shipped_profile(model))
        try:
            return marking.see(_request(state, prompt))
        except ProviderRefused:  # it would not be sent, so there is nothing to mark
            return ()


def _prompt(state: RunState) -> Prompt:
    """Return what the next request shows: of the stage, or of the call that an agentic function was last at."""
    return newest_prompt(state) or state.prompt()


def _serving(state: RunState) -> tuple[str, str]:
    """Return who serves that request, and the model."""
    call = state.frames.calls.get(state.frames.newest)
    return state.serving[:2] if call is None else (call.opened.provider, call.opened.model)


def _request(state: RunState, prompt: Prompt) -> Request:
    return Request(
        _serving(state)[1],
        prompt.system,
        prompt.messages,
        prompt.tail,
        prompt.tools,
        run_id=state.run_id,
        stages_ahead=state.stage.stages_ahead,
    )


def _plain(state: RunState, prompt: Prompt, breakpoints: Sequence[Breakpoint]) -> dict[str, Any]:
    view = state.view
    (provider, model), window_tokens = _serving(state), state.serving[2]
    return {
        "run_id": state.run_id,
        "seq": state.seq,
        "stage": state.stage.name,
        "provider": provider,
        "model": model,
        "window_tokens": window_tokens,
        "approx_tokens": state.costs(prompt),
        "counted": _counted(state),
        "approx_context_chars": prompt.chars,
        "prompt_digest": _request(state, prompt).digest.hex(),
        "tools": [_tool(spec) for spec in prompt.tools.specs],
        "system": [{"owner": block.owner, "tokens": block.tokens, "text": block.text} for block in prompt.system],
        "messages": [_message(seg.owner, message) for seg in prompt.messages for message in seg.messages],
        "tail": None if prompt.tail is None else str(prompt.tail),
        "parts": [dict(row) for row in prompt.explain(breakpoints)],
        "breakpoints": [
            {"section": m.section, "index": m.index, "tokens": m.tokens, "lifetime": m.lifetime} for m in breakpoints
        ],
        "regions": [
            {
                "region": name,
                "kind": view.states[name].region.kind,
                "tokens": view.fill()[name][0],
                "budget_tokens": view.states[name].limits.budget,
                "entries": view.states[name].entries,
            }
            for name in view.layout.regions
        ],
    }


def _tool(spec: ToolSpec) -> dict[str, str]:
    return {"name": spec.name, "description": spec.description, "schema": spec.schema.decode()}


def _message(owner: str, message: Message) -> dict[str, Any]:
    return {
        "owner": owner,
        "role": message.role,
        "text": message.text,
        "calls": [{"name": call.name, "arguments": str(call.arguments)} for call in message.calls],
        "tool": message.tool_name or None,
        "is_error": message.is_error,
    }


def _explain(state: RunState, prompt: Prompt, breakpoints: Sequence[Breakpoint]) -> None:
    say(_head(state, prompt), "")
    print_table(
        ("block", "owner", "tokens", "offset", "cacheable", "marker", "why"),
        [
            (
                str(row["block"]),
                line(str(row["owner"])),
                str(row["tokens"]),
                str(row["offset"]),
                "yes" if row["cacheable"] else "no",
                str(row["breakpoint"] or ""),
                line(str(row["why"])),
            )
            for row in prompt.explain(breakpoints)
        ],
        right=("tokens", "offset"),
    )
    say("", _marked(breakpoints), "")
    fill = state.view.fill()
    states = [(name, state.view.states[name]) for name in state.view.layout.regions]
    print_table(
        ("region", "kind", "tokens", "budget", "fill", "entries"),
        [
            (
                line(name),
                held.region.kind,
                str(fill[name][0]),
                str(held.limits.budget),
                f"{fill[name][0] / max(1, held.limits.budget):.0%}",
                str(held.entries),
            )
            for name, held in states
        ],
        right=("tokens", "budget", "fill", "entries"),
    )


def _marked(breakpoints: Sequence[Breakpoint]) -> str:
    """Return where the cache markers stand, a line."""
    if not breakpoints:
        return "cache markers: none"
    places = [f"{mark.section}[{mark.index}] ({mark.lifetime}, about {mark.tokens} tokens)" for mark in breakpoints]
    return f"cache markers: behind {', '.join(places)}"


def _head(state: RunState, prompt: Prompt) -> str:
    (provider, model), window = _serving(state), state.serving[2]
    return (
        f"run {state.run_id} at event {state.seq}, stage {line(state.stage.name)} on {provider}:{model}: "
        f"about {state.costs(prompt)} of {window} tokens ({_how(state)})"
    )


def _counted(state: RunState) -> dict[str, Any]:
    """Return how the numbers of tokens come about."""
    known = state.now_calibration
    return {
        "how": "estimate" if state.tokenizer is None else state.tokenizer,
        "ratio": round(known.ratio, 4),
        "measurements": known.seen,
    }


def _how(state: RunState) -> str:
    """Return how the number of tokens came about, for people."""
    said = _counted(state)
    if not said["measurements"]:
        return f"{said['how']}, not measured yet"
    return f"{said['how']}, corrected by {said['ratio']:.2f} after {said['measurements']} measurements"


def _show(state: RunState, prompt: Prompt) -> None:
    say(_head(state, prompt))
    for spec in prompt.tools.specs:
        say(f"[tool] {spec.name}: {line(spec.description, 100)}")
    for block in prompt.system:
        say("", f"[system] {line(block.owner)}, {block.tokens} tokens")
        print_text(block.text)
    for segment in prompt.messages:
        for message in segment.messages:
            say("", f"[{message.role}] {line(segment.owner)}{_answers(message)}")
            if message.text:
                print_text(message.text)
            for call in message.calls:
                say(f"calls {call.name} {line(str(call.arguments))}")
    if prompt.tail is not None:
        say("", "[tail]")
        print_text(str(prompt.tail))


def _answers(message: Message) -> str:
    if not message.tool_name:
        return ""
    return f", {message.tool_name}{' failed' if message.is_error else ''}"
