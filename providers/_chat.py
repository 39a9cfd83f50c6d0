"""Requests as Chat Completions bodies.

Each part of a request keeps what was made of it in its `_wire` slot, under the key of the encoder that made it. So
a request touches its segments and blocks, not its messages, and the texts in it are those of the window, uncopied.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeAlias, final

import msgspec

from shoal.errors import ProviderRefused
from shoal.providers._breakpoints import (
    ANTHROPIC,
    NO_MARKERS,
    ONCE,
    OPENAI,
    Front,
    Marker,
    MarkerRules,
    Markers,
    plan_breakpoints,
)
from shoal.providers._chat_messages import API, BLANK_LINE, END, ChatMessages, with_tail
from shoal.providers._conversation import Conversation, keep, kept
from shoal.providers._elements import Placed, Spoken, bodies, in_array
from shoal.providers._fronts import Fronts, sent_of
from shoal.providers._legality import object_schema, tail_of, tool_names
from shoal.providers._options import checked_options, fit_choice, fit_effort
from shoal.providers._outline import NO_OUTLINE, Outline, outline
from shoal.providers._schemas import is_strict
from shoal.providers._sent import Heads, Sent
from shoal.providers._servers import Capabilities
from shoal.providers._states import Reader
from shoal.providers._text import Text
from shoal.providers._values import Block, ModelProfile, Request, Segment, ToolSet
from shoal.providers._wire import Wire

_COMMA = b","
_RULES: Mapping[str, tuple[MarkerRules, bytes]] = {
    "cache_control": (ANTHROPIC, b',"cache_control":{"type":"ephemeral"}'),
    "prompt_cache_breakpoint": (OPENAI, b',"prompt_cache_breakpoint":{"mode":"explicit"}'),
}
_json = msgspec.json.Encoder(order="sorted").encode

Pieces: TypeAlias = "list[bytes | Wire]"


def _quoted(text: str) -> bytes:
    return Text.of(text).quoted


@final
class Tools(msgspec.Struct, frozen=True, gc=False):
    """An encoded tool set.

    Args:
        wire: The JSON array; empty where there are no tools.
        names: Our name of each tool, by the name that was sent.
    """

    wire: Wire
    names: dict[str, str]


def chat_encoder(
    capabilities: Capabilities, provider: str = "", model: str = "", profile: ModelProfile | None = None
) -> ChatEncoder:
    """Return the encoder for what *capabilities* takes; one object for equal arguments, since it is its own cache key.

    Args:
        capabilities: The server's record.
        provider: Name of the provider; only matters where reasoning is sent back.
        model: The model; only matters where reasoning is sent back.
        profile: What is known of the model; `None` for nothing, which sends text only.
    """
    reads = capabilities.reasoning_field is not None
    return _encoder(capabilities, provider if reads else "", model if reads else "", profile)


@functools.lru_cache(maxsize=256)
def _encoder(capabilities: Capabilities, provider: str, model: str, profile: ModelProfile | None) -> ChatEncoder:
    return ChatEncoder(capabilities, Reader(provider, model, API), profile or ModelProfile(model))


@final
class ChatEncoder:
    """Encodes requests for one server; get it from `chat_encoder`.

    Args:
        capabilities: What the server takes.
        reader: Whose reasoning is sent back.
        profile: What is known of the model.
    """

    def __init__(self, capabilities: Capabilities, reader: Reader, profile: ModelProfile) -> None:
        self.capabilities = capabilities
        self._profile = profile
        self._marker = b""
        self._rules = MarkerRules(most=0)
        if capabilities.marker is not None and profile.cache == "markers":
            self._rules, self._marker = _RULES[capabilities.marker]
        self._least_shared = profile.min_cacheable_tokens if profile.cache == "prefix" else None
        self._fronts = Fronts()
        self._heads = Heads()
        said = ChatMessages(capabilities, profile, reader, parts=bool(self._marker))
        self._conversation = Conversation(self, say=said.say, between=_between)

    def __repr__(self) -> str:
        return f"<ChatEncoder for {self.capabilities.server} {self._profile.model}>"

    # --- whole requests

    def encode(self, request: Request, *, provider: str = "", temperature: bool = True, stream: bool = True) -> Wire:
        """Return the body of *request*; see `sent`."""
        return self.sent(request, provider=provider, temperature=temperature, stream=stream).body

    def sent(
        self,
        request: Request,
        *,
        provider: str = "",
        temperature: bool = True,
        stream: bool = True,
        cache_key: str | None = None,
    ) -> Sent:
        """Return what *request* is to the server.

        Args:
            request: The request.
            provider: Named in errors.
            temperature: The model takes a temperature, and other parameters of sampling.
            stream: Ask for a stream.
            cache_key: What requests with this prefix have in common; `None` for nothing.

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
        tail = tail_of(request)
        spoken = self._conversation.whole(request.messages, tailed=tail is not None)
        plan = self._outline(request, tools, spoken, tail)
        markers = self._markers(request, plan)
        asked = (cache_key if self.capabilities.cache_key else None, markers.explicit, temperature, stream, provider)
        if "response_format" in request.options:
            settings = self._settings(request, tools, asked)  # whether it may be asked for depends on what is said
        else:
            settings = self._heads.of(request, tools, asked, self._settings)
        if plan.front.spots:
            wire, prefixes = plan.encoded(
                markers.ahead, tools, self._front, key=cache_key, least_tokens=self._least_shared
            )
            system: Pieces = [wire] if wire.size else []
        else:  # nobody looked at the blocks
            system, prefixes = self._system(sent_of(request.system)), ()
        said = self._said(spoken, plan.placed(markers.behind, self._marker), tail)
        body = Wire.of(*self._head(request, tools), b',"messages":[', *_joined(system, said), b"],", settings)
        return Sent(body, tools.names, prefixes)

    def messages(self, request: Request) -> Wire:
        """Return the elements of the `messages` array, without markers: system section, conversation, tail."""
        tail = tail_of(request)
        spoken = self._conversation.whole(request.messages, tailed=tail is not None)
        return Wire.of(*_joined(self._system(sent_of(request.system)), self._said(spoken, (), tail)))

    def _head(self, request: Request, tools: Tools) -> Pieces:
        model = b'{"model":' + _quoted(request.model)
        return [model + b',"tools":', tools.wire] if tools.names else [model]

    def _said(self, spoken: Sequence[Spoken], placed: Sequence[Placed], tail: Text | None) -> Pieces:
        """Return *spoken* with *tail* in its last message, or in one behind it where that cannot be."""
        if tail is None:
            return [in_array(spoken, _between, placed)] if spoken else []
        tailed = with_tail(spoken[-1], tail) if spoken and not placed else None
        if tailed is not None:
            return _joined([in_array(spoken[:-1], _between)] if len(spoken) > 1 else [], tailed)
        alone: Pieces = [b'{"role":"user","content":"', tail.body, END]
        return _joined([in_array(spoken, _between, placed)] if spoken else [], alone)

    def _settings(self, request: Request, tools: Tools, asked: tuple[str | None, bool, bool, bool, str]) -> bytes:
        """Return the settings of *request*, which end its body."""
        cache_key, explicit, temperature, stream, provider = asked
        settings = self._own_settings(request, temperature=temperature, stream=stream)
        if cache_key is not None:
            settings["prompt_cache_key"] = cache_key
        if explicit:
            # Otherwise the vendor itself would write at the end, which no later request begins with.
            settings["prompt_cache_options"] = {"mode": "explicit"}
        options = checked_options(
            request,
            tools=bool(tools.names),
            sampling=temperature,
            strict=self.capabilities.strict_options,
            markers=self._rules is OPENAI,
            provider=provider,
        )
        fit_effort(options, "reasoning_effort", self._profile.efforts)
        fit_choice(options, tools.names, forced=self._profile.forced_tools)
        return _json({**settings, **options})[1:]

    def _own_settings(self, request: Request, *, temperature: bool, stream: bool) -> dict[str, Any]:
        most = max(1, min(request.max_tokens, self._profile.max_output_tokens))
        settings: dict[str, Any] = {self.capabilities.max_tokens_field: most, "stream": stream}
        if temperature and request.temperature is not None:
            settings["temperature"] = request.temperature
        if stream and self.capabilities.include_usage:
            settings["stream_options"] = {"include_usage": True}
        if request.output is not None and self._profile.structured_output:
            schema = msgspec.json.decode(request.output.schema)
            named = {"name": request.output.name, "schema": schema, "strict": is_strict(schema)}
            settings["response_format"] = {"type": "json_schema", "json_schema": named}
        return settings

    def _outline(self, request: Request, tools: Tools, spoken: Sequence[Spoken], tail: Text | None) -> Outline:
        if self._profile.cache == "none":
            return NO_OUTLINE
        # No field of a tool takes a marker here; the first block behind them does.
        front = self._fronts.of(request, tools.wire.size if tools.names else 0, self.block)
        if not self._marker:
            return Outline(front)
        return outline(front, spoken, request.purpose, tail)

    def _markers(self, request: Request, plan: Outline) -> Markers:
        if not self._marker:
            return NO_MARKERS
        markers = plan_breakpoints(
            plan.front,
            plan.said,
            self._profile,
            self._rules,
            once=request.purpose in ONCE,
            ended=plan.ended,
            far=plan.far,
        )
        self._fronts.mark(request, plan.front, markers)
        return markers

    # --- parts

    def tools(self, tools: ToolSet) -> Tools:
        """Return *tools* as a JSON array, encoded once."""
        made: Tools | None = kept(tools, self)
        if made is not None:
            return made
        by_name = tool_names(tools.specs)
        wires = [
            b'{"function":{"description":%b,"name":%b,"parameters":%b},"type":"function"}'
            % (_quoted(spec.description), _quoted(name), object_schema(spec.schema))
            for name, spec in by_name.items()
        ]
        array = b"[" + b",".join(wires) + b"]"
        names = {name: spec.name for name, spec in by_name.items()}
        return keep(tools, self, Tools(Wire((array,), len(array)), names))

    def block(self, block: Block) -> Wire:
        """Return the text of *block*, encoded once; without quotes, as it stands inside a JSON string."""
        made: Wire | None = kept(block, self)
        if made is not None:
            return made
        leaves = bodies(block.texts)
        return keep(block, self, Wire(leaves, sum(map(len, leaves))))

    def segment(self, segment: Segment) -> Spoken:
        """Return the messages of *segment*, encoded once."""
        return self._conversation.segment(segment)

    def _front(self, _tools: Tools, front: Front, ahead: tuple[Marker, ...]) -> Wire:
        """Return the system section, which is all of the front in the array of messages."""
        return Wire.of(*self._system(front.blocks, front.on_blocks(ahead)))

    def _system(self, blocks: Sequence[Block], marked: Container[int] = ()) -> Pieces:
        if not blocks:
            return []
        head = b'{"role":"%b","content":' % self.capabilities.system_role.encode()
        if self._marker:
            opening, between, closing = head + b'[{"type":"text","text":"', b"}]},", b"}]}"
        elif self.capabilities.system_blocks == "joined":
            opening, between, closing = head + b'"', BLANK_LINE, END
        else:
            opening, between, closing = head + b'"', END + _COMMA, END
        pieces: Pieces = []
        for index, block in enumerate(blocks):
            if index:
                pieces.append(between)
            if not index or between != BLANK_LINE:
                pieces.append(opening)
            pieces.append(self.block(block))
            if self._marker:
                pieces.append(b'"' + self._marker if index in marked else b'"')
        return [*pieces, closing]


def _joined(before: Pieces, after: Pieces) -> Pieces:
    """Return two stretches of an array as one."""
    return [*before, _COMMA, *after] if before and after else before or after


def _between(_before: str, _after: str) -> bytes:
    return _COMMA
