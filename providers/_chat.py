"""Requests as Chat Completions bodies.

Each part of a request keeps what was made of it in its `_wire` slot, under the key of the encoder that made it. So
a request touches its segments and blocks, not its messages, and the texts in it are those of the window, uncopied.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, cast, final

import msgspec

from shoal.errors import ProviderRefused
from shoal.providers._legality import (
    CLOSING,
    OPENING,
    Turn,
    arguments,
    call_id,
    leaves_open,
    legal,
    needs_closing,
    needs_opening,
    starts_answering,
    tool_name,
    tool_names,
)
from shoal.providers._options import checked_options
from shoal.providers._servers import Capabilities
from shoal.providers._text import Text
from shoal.providers._values import Block, Message, Request, Role, Segment, ToolCall, ToolSet
from shoal.providers._wire import Flat, Fragments, Wire

_COMMA = b","
_END = b'"}'
_BLANK_LINE = b"\\n\\n"
_json = msgspec.json.Encoder(order="sorted").encode


def _quoted(text: str) -> bytes:
    return Text.of(text).quoted


Part: TypeAlias = Message | Segment | Block | ToolSet
P = TypeVar("P", Wire, "Spoken", "Tools")


@final
class Tools(msgspec.Struct, frozen=True):
    """An encoded tool set.

    Args:
        wire: The JSON array; empty where there are no tools.
        names: Our name of each tool, by the name that was sent.
    """

    wire: Wire
    names: dict[str, str]


@final
class Spoken(msgspec.Struct, frozen=True):
    """Encoded messages.

    Args:
        wire: The messages, n, each a tuple of its own, with a comma between two of them.
        first: Role of the first; `None` where there is none.
        last: Role of the last; `None` where there is none.
        open: A call of the last assistant turn has no result yet.
    """

    wire: Wire
    first: Role | None
    last: Role | None
    open: bool


@functools.lru_cache(maxsize=256)
def chat_encoder(capabilities: Capabilities, provider: str = "", model: str = "") -> ChatEncoder:
    """Return the encoder for what *capabilities* takes; one object for equal arguments, since it is its own cache key.

    Args:
        capabilities: The server's record.
        provider: Name of the provider; only matters where reasoning is sent back.
        model: The model; only matters where reasoning is sent back.
    """
    if capabilities.reasoning_field is None and (provider or model):
        return chat_encoder(capabilities)
    return ChatEncoder(capabilities, provider, model)


@final
class ChatEncoder:
    """Encodes requests for one server; get it from `chat_encoder`.

    Args:
        capabilities: What the server takes.
        provider: Whose reasoning is sent back.
        model: Which model's reasoning is sent back.
    """

    def __init__(self, capabilities: Capabilities, provider: str, model: str) -> None:
        self.capabilities = capabilities
        self._provider = provider
        self._model = model

    def __repr__(self) -> str:
        return f"<ChatEncoder for {self.capabilities.server} {self._model}>"

    # --- whole requests

    def encode(self, request: Request, *, provider: str = "", temperature: bool = True, stream: bool = True) -> Wire:
        """Return the body of *request*.

        Args:
            request: The request.
            provider: Named in errors.
            temperature: The model takes a temperature, and other parameters of sampling.
            stream: Ask for a stream.

        Raises:
            ProviderRefused: An option in `Request.options`, or the number of tools, could only be refused.
        """
        tools = self.tools(request.tools)
        most = self.capabilities.max_tools
        if most is not None and len(tools.names) > most:
            raise ProviderRefused(
                f"the request offers {len(tools.names)!r} tools, but {self.capabilities.server} takes {most}; "
                "defer some, or offer fewer in this stage",
                provider=provider,
                model=request.model,
            )
        head = b'{"model":' + _quoted(request.model)
        if tools.names:
            opened = Wire.of(head, b',"tools":', tools.wire, b',"messages":[')
        else:
            opened = Wire.of(head, b',"messages":[')
        settings = self._settings(request, temperature=temperature, stream=stream)
        settings.update(
            checked_options(
                request,
                tools=bool(tools.names),
                sampling=temperature,
                strict=self.capabilities.strict_options,
                provider=provider,
            )
        )
        return Wire.of(opened, self.messages(request), b"],", _json(settings)[1:])

    def messages(self, request: Request) -> Wire:
        """Return the elements of the `messages` array: system section, conversation, tail."""
        spoken = self._conversation(request.messages)
        parts = [part.wire for part in spoken]
        first, last = (spoken[0].first, spoken[-1].last) if spoken else (None, None)
        if spoken and needs_opening(first):
            parts.insert(0, _user(OPENING))
        if request.tail and not needs_closing(last) and last != "system":
            parts[-1] = _with_tail(parts[-1], request.tail)
        elif request.tail:
            parts.append(_user(request.tail))
        elif needs_closing(last):
            parts.append(_user(CLOSING if spoken else OPENING))
        return _between([*self._system(request.system), *parts])

    def _settings(self, request: Request, *, temperature: bool, stream: bool) -> dict[str, Any]:
        settings: dict[str, Any] = {self.capabilities.max_tokens_field: request.max_tokens, "stream": stream}
        if temperature and request.temperature is not None:
            settings["temperature"] = request.temperature
        if stream and self.capabilities.include_usage:
            settings["stream_options"] = {"include_usage": True}
        return settings

    # --- parts

    def tools(self, tools: ToolSet) -> Tools:
        """Return *tools* as a JSON array, encoded once."""
        kept = tools._wire  # pyright: ignore[reportPrivateUsage] # the slot is there for encoders
        if kept is not None and kept[0] is self:
            made: Tools = kept[1]
            return made
        by_name = tool_names(tools.specs)
        wires = [
            b'{"function":{"description":%b,"name":%b,"parameters":%b},"type":"function"}'
            % (_quoted(spec.description), _quoted(name), spec.schema)
            for name, spec in by_name.items()
        ]
        array = b"[" + b",".join(wires) + b"]"
        return self._keep(tools, Tools(Wire((array,), len(array)), {name: spec.name for name, spec in by_name.items()}))

    def block(self, block: Block) -> Wire:
        """Return the text of *block*, encoded once; without quotes, as it stands inside a JSON string."""
        kept = block._wire  # pyright: ignore[reportPrivateUsage] # the slot is there for encoders
        if kept is not None and kept[0] is self:
            made: Wire = kept[1]
            return made
        bodies = tuple([text.body for text in block.texts])
        return self._keep(block, Wire(bodies, sum(map(len, bodies))))

    def segment(self, segment: Segment) -> Spoken:
        """Return the messages of *segment*, encoded once."""
        kept = segment._wire  # pyright: ignore[reportPrivateUsage] # the slot is there for encoders
        if kept is not None and kept[0] is self:
            made: Spoken = kept[1]
            return made
        spoken = self._speak(segment.messages)
        if segment.closed and spoken.wire.size:
            spoken = msgspec.structs.replace(spoken, wire=_flattened(spoken.wire))
            for message in segment.messages:
                # The segment has their bytes now, and nothing will ask for them one by one.
                msgspec.structs.force_setattr(message, "_wire", None)
        return self._keep(segment, spoken)

    def message(self, message: Message) -> Wire:
        """Return *message*, encoded once; an assistant's calls keep their own ids."""
        kept = message._wire  # pyright: ignore[reportPrivateUsage] # the slot is there for encoders
        if kept is not None and kept[0] is self:
            made: Wire = kept[1]
            return made
        return self._keep(message, self._encode(message, [call.call_id for call in message.calls]))

    def _keep(self, part: Part, made: P) -> P:
        msgspec.structs.force_setattr(part, "_wire", (self, made))
        return made

    # --- the system section

    def _system(self, blocks: Sequence[Block]) -> list[Wire]:
        wires = [wire for wire in map(self.block, blocks) if wire.size]
        if wires and self.capabilities.system_blocks == "joined":
            wires = [_between(wires, _BLANK_LINE)]
        head = b'{"role":"%b","content":"' % self.capabilities.system_role.encode()
        return [Wire.of(head, wire, _END) for wire in wires]

    # --- the conversation

    def _conversation(self, segments: Sequence[Segment]) -> list[Spoken]:
        """Return the encoded *segments*; where results stand in the segment behind their call's, both become one."""
        spoken: list[Spoken] = []
        held: tuple[Message, ...] = ()
        for index, segment in enumerate(segments):
            part = self._speak(held + segment.messages) if held else self.segment(segment)
            if part.open and any(starts_answering(ahead.messages) for ahead in segments[index + 1 : index + 2]):
                held += segment.messages
                continue
            held = ()
            if part.wire.size:
                spoken.append(part)
        return spoken

    def _speak(self, messages: Sequence[Message]) -> Spoken:
        turns = legal(messages)
        wires = [wire for turn in turns for wire in self._turn(turn)]
        first = turns[0].message.role if turns else None
        last = ("tool" if turns[-1].answers else turns[-1].message.role) if turns else None
        return Spoken(_between(wires), first, last, leaves_open(messages))

    def _turn(self, turn: Turn) -> Iterator[Wire]:
        keys = [answer.key for answer in turn.answers]
        own = keys == [call.call_id for call in turn.message.calls]
        yield self.message(turn.message) if own else self._encode(turn.message, keys)
        for answer in turn.answers:
            yield self.message(answer.result) if own else self._result(answer.result, answer.key)

    def _encode(self, message: Message, keys: Sequence[str]) -> Wire:
        if message.role == "tool":
            return self._result(message, message.call_id)
        text = _joined(message)
        role = self.capabilities.system_role if message.role == "system" else message.role
        head = b'{"role":"%b",%b"content":' % (role.encode(), self._reasoning(message))
        if not message.calls:
            return Wire.of(head + b'"', text, _END)
        content = Wire.of(b'"', text, b'"') if text.size else Wire.of(b"null")
        calls = _between([self._call(call, key) for call, key in zip(message.calls, keys, strict=True)])
        return Wire.of(head, content, b',"tool_calls":[', calls, b"]}")

    def _call(self, call: ToolCall, key: str) -> Wire:
        name = _quoted(tool_name(call.name))
        head = b'{"id":%b,"type":"function","function":{"name":%b,"arguments":"' % (self._id(key), name)
        return Wire.of(head, arguments(call.arguments).body, b'"}}')

    def _result(self, message: Message, key: str) -> Wire:
        return Wire.of(b'{"role":"tool","tool_call_id":%b,"content":"' % self._id(key), _joined(message), _END)

    def _id(self, key: str) -> bytes:
        capabilities = self.capabilities
        return _quoted(call_id(key, length=capabilities.call_id_length, exact=capabilities.call_id_exact))

    def _reasoning(self, message: Message) -> bytes:
        """Return the reasoning of *message* as a field, where it is this model's own and the server wants it back."""
        field, state = self.capabilities.reasoning_field, message.state
        if field is None or state is None or (state.provider, state.model) != (self._provider, self._model):
            return b""
        return b'"%b":%b,' % (field.encode(), state.data)


def _joined(message: Message) -> Wire:
    bodies = tuple([text.body for text in message.texts])
    return Wire(bodies, sum(map(len, bodies)))


def _user(text: Text) -> Wire:
    """Return a user message as a list of one, as segments are lists of messages."""
    return Wire.of(Wire.of(b'{"role":"user","content":"', Wire.of(text.body), _END))


def _flattened(messages: Wire) -> Wire:
    """Return *messages* without a tree, but for the last one, which a tail may stand in."""
    *before, last = messages.fragments
    flat = Flat(Wire(tuple(before), 0).leaves())
    return Wire((flat, last), messages.size)


def _with_tail(messages: Wire, tail: Text) -> Wire:
    """Return *messages* with *tail* behind the text of the last one, which is a user or tool message."""
    *before, last = cast("tuple[tuple[bytes, Fragments, bytes], ...]", messages.fragments)
    head, text, end = last
    more = (_BLANK_LINE, tail.body) if any(text) else (tail.body,)
    return Wire((*before, (head, (*text, *more), end)), messages.size + sum(map(len, more)))


def _between(wires: Sequence[Wire], separator: bytes = _COMMA) -> Wire:
    """Return *wires* with *separator* between each two of them."""
    if not wires:
        return Wire((), 0)
    fragments: list[bytes | Fragments] = [separator] * (2 * len(wires) - 1)
    fragments[::2] = [wire.fragments for wire in wires]
    return Wire(tuple(fragments), sum([wire.size for wire in wires]) + len(separator) * (len(wires) - 1))
