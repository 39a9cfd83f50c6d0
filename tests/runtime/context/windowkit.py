"""What tests of the window share: windows that keep a journal of their own, and texts of a given size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from shoal.blueprints import Blueprint, Region, Stage, StageContext
from shoal.providers import NO_TOOLS, TEXT_ONLY, Blob, Intake, Message, ProviderState, Text, ToolCall, ToolSet
from shoal.runtime._attachment import Attachment, prepare
from shoal.runtime._attachment import named as final
from shoal.runtime.context import (
    ACCEPTED,
    CONVERSATION,
    Answer,
    Change,
    Draft,
    Entry,
    EntryKind,
    EntryWritten,
    Epoch,
    Layout,
    Misread,
    Order,
    Origin,
    PartStored,
    Plan,
    Prompt,
    PromptAmended,
    PromptChange,
    PromptEpoch,
    RegionState,
    Said,
    ScriptCall,
    SeedBlock,
    SeedResolved,
    Shelf,
    Theme,
    Ways,
    Window,
    assemble,
    estimate,
    estimate_text,
    layout_of,
    materialise,
    names_of,
    operate,
    plan_prompt,
    read_overflow,
    read_render,
    read_write,
)
from shoal.runtime.events import NUMBERS, Payload, decode, encode


def text_of(tokens: int, tag: str = "x") -> str:
    """Return a text that is estimated at *tokens* tokens and begins with *tag*."""
    return f"{tag} ".ljust(tokens * 4, tag[:1])[: tokens * 4]


def layouts(*stages: Stage, regions: Sequence[Region] = (), **more: Any) -> tuple[Layout, ...]:
    """Return what each of *stages* sees in a blueprint of *regions*."""
    made = Blueprint("test", tuple(stages), regions=tuple(regions), **more)
    theme = Theme(names_of(made))
    return tuple(layout_of(made, stage, theme) for stage in made.stages)


def stage(
    name: str = "work", *, regions: Sequence[Region] | None = None, hide: Sequence[str] = (), **more: Any
) -> Stage:
    """Return a stage with a layout of its own where *regions* says so."""
    own = None if regions is None else tuple(regions)
    return Stage(name, context=StageContext(regions=own, hide=tuple(hide)), **more)


WAYS = Ways("scripted", "thinker", mid_system=True)


class Held:
    """A window with the events that made it, as a run would journal them.

    Args:
        regions: The blueprint's regions.
        window_tokens: The model's window.
        stages: The stages; it is in the first.
        scripts: What stands in for the scripts of custom regions: functions by hook, by region.
        more: Further fields of the blueprint.
        intake: What the model takes beside text.
    """

    def __init__(
        self,
        *regions: Region,
        window_tokens: int = 10_000,
        stages: Sequence[Stage] = (stage(),),
        scripts: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {},
        intake: Intake = TEXT_ONLY,
        **more: Any,
    ) -> None:
        self.layouts = {layout.stage: layout for layout in layouts(*stages, regions=regions, **more)}
        self.bytes: dict[str, bytes] = {}
        self.window = Window(
            self.layouts[stages[0].name], window_tokens, intake, Shelf(lambda digest: self.bytes[digest])
        )
        self.began = (self.window.layout, window_tokens, intake)
        self.seq = 0
        self.sources: dict[int, Message] = {}
        self.journal: list[Any] = []
        self.epoch: Epoch | None = None
        self.epochs = 0
        self.tools = NO_TOOLS
        self.scripts = scripts
        self.calls: list[ScriptCall] = []

    # --- scripts

    def make(self, call: ScriptCall) -> Any:
        """Make *call*; what has no function gives nothing."""
        self.calls.append(call)
        function = self.scripts.get(call.region, {}).get(call.hook)
        return None if function is None else function(call.ctx)

    def heard(self, call: ScriptCall, said: Said) -> Said:
        """Return *said* with what *call* gives, as a run reads it; what cannot be read is not said."""
        value = self.make(call)
        if call.hook == "on_overflow":
            try:
                return replace(said, frees=() if value is None else read_overflow(value, call))
            except Misread:
                return replace(said, frees=())
        try:
            return replace(said, wrote=read_write(value))
        except Misread:
            return replace(said, wrote=ACCEPTED)

    def vetted(self, region: str, draft: Draft, *, refusable: bool = True, **how: Any) -> Said:
        """Return what the script of *region* says of a write."""
        said = Said(refusable=refusable)
        while (call := self.window.write_call(region, draft, said, **how)) is not None:
            said = self.heard(call, said)
        return said

    def freed(self, calls: Iterable[ScriptCall]) -> dict[str, tuple[int, ...]]:
        """Return what the scripts of custom regions free, by region."""
        made = {call.region: self.heard(call, Said()).frees for call in calls}
        return {region: ids for region, ids in made.items() if ids is not None}

    def rendered(self) -> None:
        """Have the custom regions rendered, as before a request."""
        for call in self.window.render_calls("model", 0):
            value = self.make(call)
            try:
                self.window.show(call.region, None if value is None else read_render(value))
            except Misread:
                self.window.show(call.region, None)

    # --- writing

    def source(self, message: Message) -> int:
        """Journal an event that holds *message*, and return its seq."""
        self.seq += 1
        self.sources[self.seq] = message
        return self.seq

    def change(self, changes: Iterable[tuple[Change, Message | None]]) -> None:
        """Journal and apply *changes*."""
        for change, message in changes:
            self.seq += 1
            self.journal.append((self.seq, NUMBERS[type(change)], encode(change)))
            if self.epoch is not None:
                self.epoch.note(self.window, change)
            self.window.apply(change, self.seq, float(self.seq), message)

    def store(self, data: bytes, name: str = "") -> int:
        """Journal *data* as a stored part, and return the seq of its event."""
        part = prepare(Attachment(data, name), 1_000_000)
        self.bytes[part.stored.digest] = data
        stored = final(part.stored, self.window.shelf)
        self.seq += 1
        self.journal.append((self.seq, NUMBERS[PartStored], encode(stored)))
        self.window.shelf.keep(self.seq, stored)
        return self.seq

    def blobs(self, *parts: int) -> tuple[Blob, ...]:
        return self.window.shelf.blobs(parts)

    def draft(
        self, words: str, *, kind: EntryKind = "text", message: Message | None = None, sourced: bool = True, **more: Any
    ) -> Draft:
        """Return *words* (or *message*) as a draft that refers to an event; *parts* stand behind it."""
        blobs = self.blobs(*more.get("parts", ()))
        said = message or Message("user", (Text.of(words),) if words or not blobs else ())
        source = self.source(said) if sourced else 0
        whole = msgspec.structs.replace(said, blobs=blobs)
        return Draft(kind, whole, estimate(whole, self.window.intake), source, **more)

    def write(
        self,
        region: str,
        text: str | int,
        *,
        key: str | None = None,
        writer: Any = "model",
        sourced: bool = True,
        parts: tuple[int, ...] = (),
        **how: Any,
    ) -> Plan:
        """Write *text* (or a text of so many tokens) into *region*, and return what came of it."""
        words = text_of(text) if isinstance(text, int) else text
        draft = self.draft(words, key=key, writer=writer, sourced=sourced, parts=parts)
        asked = {name: value for name, value in how.items() if name in ("most_tokens", "replaces", "joins")}
        said = self.vetted(region, draft, refusable=writer in ("model", "routing"), **asked)
        plan = self.window.plan_write(region, draft, said=said, **how)
        self.change(plan.changes)
        return plan

    def say(self, text: str | int, *, parts: tuple[int, ...] = (), **how: Any) -> Plan:
        """Put a user message into the conversation."""
        said = text_of(text) if isinstance(text, int) else text
        draft = self.draft(said, kind="user_message", parts=parts)
        return self._record(draft, **how)

    def turn(
        self,
        text: str | int = "",
        *,
        calls: Sequence[str] = (),
        arguments: str = "{}",
        thought: str = "",
        parts: tuple[int, ...] = (),
    ) -> Plan:
        """Put an assistant turn with *calls* (their ids) into the conversation; *thought* is what it brings back."""
        said = text_of(text) if isinstance(text, int) else text
        made = tuple(ToolCall(call_id, "look", Text.of(arguments)) for call_id in calls)
        state = ProviderState(WAYS.provider, WAYS.model, thought.encode()) if thought else None
        message = Message("assistant", (Text.of(said),) if said else (), made, state=state)
        return self._record(self.draft(said, kind="assistant_turn", message=message, parts=parts))

    def answer(self, call_id: str, text: str | int = "found", *, parts: tuple[int, ...] = ()) -> Plan:
        """Put the result of a call into the conversation, behind the call."""
        said = text_of(text) if isinstance(text, int) else text
        message = Message("tool", (Text.of(said),), call_id=call_id, tool_name="look")
        return self._record(self.draft(said, kind="tool_result", message=message, parts=parts), joins=True)

    def _record(self, draft: Draft, **how: Any) -> Plan:
        said = self.vetted(CONVERSATION, draft, refusable=False, joins=bool(how.get("joins")))
        plan = self.window.plan_write(CONVERSATION, draft, said=said, **how)
        self.change(plan.changes)
        return plan

    def call(self, tool: str, **args: Any) -> Answer:
        """Have the model call *tool*, as a run would: apply what it plans, and remember what it was shown."""
        how = {name: args.pop(name) for name in ("in_flight", "may_wait") if name in args}
        origin = Origin(self.source(Message("user", (Text.of(str(args.get("content", ""))),))), 0)
        said = Said(refusable=True)
        answer = operate(self.window, tool, args, origin, **how)
        while answer.call is not None:
            said = self.heard(answer.call, said)
            answer = operate(self.window, tool, args, origin, said=said, **how)
        self.change(answer.changes)
        if tool == "context_list":
            self.window.note_listed(args.get("region", ""))
            self.journal.append(("listed", args.get("region", "")))
        return answer

    def seed(self, region: str, *blocks: SeedBlock, form: str = "files") -> None:
        """Put what a seed gave into *region*."""
        self.change([(SeedResolved(region, form, blocks), None)])

    def refresh(self, region: str, *blocks: SeedBlock, notes: tuple[str, ...] = ()) -> Sequence[Change]:
        """Put what a seed gives now into *region*, and return what changed."""
        changes = self.window.plan_refresh(region, "files", blocks, notes)
        self.change(changes)
        return [change for change, _ in changes]

    def summarise(self, region: str, ids: Sequence[int], summary: str) -> tuple[Change | None, tuple[Order, ...]]:
        """Put *summary* in place of the entries *ids*, where the window takes it."""
        text = Text.of(summary)
        change, orders = self.window.plan_summary(region, ids, text, estimate_text(text))
        self.change([] if change is None else [(change, None)])
        return change, orders

    def press(self, need_tokens: int, *, waited: Sequence[Order] = ()) -> tuple[Sequence[Change], tuple[Order, ...]]:
        """Put the window under pressure, and return what went and which summaries have to come first."""
        freed = self.freed(self.window.pressure_calls(need_tokens))
        changes, orders = self.window.plan_pressure(need_tokens, waited=waited, frees=freed)
        self.change((change, None) for change in changes)
        return changes, orders

    def enter(
        self, stage_name: str, window_tokens: int | None = None, intake: Intake | None = None
    ) -> Sequence[Change]:
        """Enter a stage, on a model with that window, and return what it cost."""
        tokens = self.window.window_tokens if window_tokens is None else window_tokens
        freed = self.freed(self.window.layout_calls(self.layouts[stage_name], tokens))
        changes = self.window.plan_layout(self.layouts[stage_name], "model", tokens, frees=freed)
        self.change((change, None) for change in changes)
        taken = self.window.intake if intake is None else intake
        self.seq += 1
        since = self.seq if self.layouts[stage_name].fresh else 0
        self.window.enter(self.layouts[stage_name], tokens, taken, since=since)
        self.journal.append(("enter", stage_name, tokens, taken, since))
        return changes

    def send(self, ways: Ways = WAYS, *, tools: ToolSet | None = None, most_tokens: int | None = None) -> Prompt:
        """Send the next request to an append-only model, as a run would, and return what it shows."""
        self.tools = self.tools if tools is None else tools
        self.journal.append(("sent", self.tools))
        first = not self.epochs
        for change in plan_prompt(self.epoch, self.window, self.tools, ways, first=first, most_tokens=most_tokens):
            self.seq += 1
            self.journal.append((self.seq, NUMBERS[type(change)], encode(change)))
            self._prompted(change)
        assert self.epoch is not None
        prompt = self.epoch.prompt(self.window)
        self.epoch.sent(self.window)
        self.journal.append(("over",))
        return prompt

    def forget(self) -> None:
        """Go on with another model."""
        self.epoch = None
        self.journal.append(("forget",))

    def _prompted(self, change: PromptChange) -> None:
        if isinstance(change, PromptEpoch):
            self.epoch = Epoch(self.window, self.tools, change, self.epoch)
            self.epochs += 1
        else:
            assert self.epoch is not None
            self.epoch.amend(self.window, change)

    def calibrate(self, ratio: float) -> None:
        """Let one estimated token cost *ratio* real ones."""
        self.window.ratio = ratio
        self.journal.append(("ratio", ratio))

    # --- reading

    def state(self, region: str) -> RegionState:
        return self.window.states[region]

    def entries(self, region: str) -> list[Entry]:
        return list(self.state(region).all_entries())

    def texts(self, region: str) -> list[str]:
        return [entry.text for entry in self.entries(region)]

    def ids(self, region: str) -> list[int]:
        return [entry.entry_id for entry in self.entries(region)]

    def tokens(self, region: str) -> int:
        return self.state(region).tokens

    def prompt(self, tools: ToolSet = NO_TOOLS) -> Prompt:
        self.rendered()
        return assemble(self.window, tools)

    def blocks(self, region: str) -> list[str]:
        """Return the blocks of *region* as the model reads them."""
        return [block.text for block in self.prompt().system if block.owner == region]

    def block(self, region: str) -> str:
        """Return the one block of *region* as the model reads it."""
        [text] = self.blocks(region)
        return text

    def owners(self) -> list[str]:
        """Return the owners of the system section's blocks, in order, each once."""
        return list(dict.fromkeys(block.owner for block in self.prompt().system))

    def talk(self) -> list[tuple[str, str]]:
        """Return role and text of each message of the prompt."""
        return [(m.role, m.text) for segment in self.prompt().messages for m in segment.messages]

    def changes(self, *wanted: type) -> list[Any]:
        """Return the journaled changes of these types, in order."""
        made = [decode(row[1], row[2]) for row in self.journal if isinstance(row[0], int)]
        return [change for change in made if isinstance(change, wanted)]

    def begun(self) -> Window:
        """Return the window as it was at the beginning, with a shelf of its own."""
        return Window(*self.began, Shelf(lambda digest: self.bytes[digest]))

    def replayed(self) -> Window:
        """Return a window to which only the journaled events were applied."""
        return self.replay()[0]

    def replay(self) -> tuple[Window, Epoch | None]:
        """Return window and epoch as the journaled events alone make them."""
        again = self.begun()
        epoch: Epoch | None = None
        tools = NO_TOOLS
        for row in self.journal:
            match row:
                case ("enter", name, tokens, intake, since):
                    again.enter(self.layouts[name], tokens, intake, since=since)
                case ("ratio", ratio):
                    again.ratio = ratio
                case ("listed", region):
                    again.note_listed(region)
                case ("sent", sent_tools):
                    tools = sent_tools
                case ("over",):
                    assert epoch is not None
                    epoch.sent(again)
                case ("forget",):
                    epoch = None
                case (seq, number, data):
                    change = decode(number, data)
                    if isinstance(change, PartStored):
                        again.shelf.keep(seq, change)
                    elif isinstance(change, PromptEpoch):
                        epoch = Epoch(again, tools, change, epoch)
                    elif isinstance(change, PromptAmended):
                        assert epoch is not None
                        epoch.amend(again, change)
                    else:
                        made = cast("Change", change)
                        if epoch is not None:
                            epoch.note(again, made)
                        again.apply(made, seq, float(seq), self.message_of(made))
                case _:
                    raise AssertionError(f"{row!r} stands in the journal")
        return again, epoch

    def message_of(self, change: Change | Payload) -> Message | None:
        if not isinstance(change, EntryWritten):
            return None
        if change.source:
            return materialise(self.sources[change.source], change.cut, change.text, self.blobs(*change.parts))
        return Message("user", () if change.text is None else (change.text,), blobs=self.blobs(*change.parts))


def block(name: str, text: str, *, ok: bool = True) -> SeedBlock:
    """Return one piece of what a seed gave, under a line that names it."""
    whole = Text.of(f"--- {name} ---\n{text}")
    return SeedBlock(name, whole, estimate_text(whole), ok)


def kinds(changes: Iterable[Change]) -> list[str]:
    """Return the kinds of *changes*."""
    return [type(change).__name__ for change in changes]


def budgets(window: Window) -> Mapping[str, int]:
    """Return the budget of each region."""
    return {name: state.limits.budget for name, state in window.states.items()}


def png(width: int, height: int) -> bytes:
    """Return the beginning of an image of that size."""
    sides = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + sides + b"\x08\x02"


SEES = Intake(("image/*",), "claude")
"""A model that takes images and counts a token for each 28 pixels squared."""
