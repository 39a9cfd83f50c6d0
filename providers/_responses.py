"""Requests as OpenAI Responses bodies, stateless: nothing is stored, and reasoning travels encrypted.

A body is a list of items. System blocks are developer messages, one each, since only parts of messages take markers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import msgspec

from shoal.errors import ProviderRefused
from shoal.providers._breakpoints import NO_MARKERS, ONCE, OPENAI, Front, Marker, Markers, plan_breakpoints
from shoal.providers._conversation import Conversation, keep, kept
from shoal.providers._elements import Spoken, bodies, in_array
from shoal.providers._fronts import Fronts
from shoal.providers._json import as_list, as_object, as_text
from shoal.providers._legality import OPENING, object_schema, tail_of, tool_name, tool_names
from shoal.providers._options import fit_effort
from shoal.providers._outline import Outline, outline
from shoal.providers._responses_items import API, TEXT_OPEN, Items
from shoal.providers._schemas import is_strict
from shoal.providers._sent import Heads, Sent
from shoal.providers._states import Reader
from shoal.providers._text import Text
from shoal.providers._values import Block, ModelProfile, Request, ToolSet
from shoal.providers._wire import Wire

MIN_REPLY = 16

_MADE_FROM_REQUEST = frozenset(
    {"background", "input", "instructions", "max_output_tokens", "model", "store", "stream", "tools"}
) | {"conversation", "previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"}
_SAMPLING = frozenset({"temperature", "top_logprobs", "top_p"})
_UNKNOWN_TO_CODEX = frozenset({"metadata", "safety_identifier", "truncation"})
_ONLY_WITH_TOOLS = frozenset({"max_tool_calls", "parallel_tool_calls", "tool_choice"})
_COUNTED = frozenset({"model", "parallel_tool_calls", "reasoning", "text", "tool_choice"})
_MARKER = b',"prompt_cache_breakpoint":{"mode":"explicit"}'
_ENCRYPTED = "reasoning.encrypted_content"
_json = msgspec.json.Encoder(order="sorted").encode


@final
@dataclass(frozen=True, slots=True)
class ResponsesServer:
    """What one server of this API takes, where servers differ.

    Args:
        server: What it is called.
        instructions: The first system block is sent as `instructions`, which this server demands.
        limits: It takes `max_output_tokens`, sampling parameters, metadata and what else only the public API knows.
        markers: It takes cache markers.
        marks_results: A marker in a result has an effect.
        cache_key: It takes a `prompt_cache_key`: of the shared prefix, or of the run; `None` for none.
        hides_limit: A reply that reached its limit is called complete.
        counts: It counts what a request shows.
        allows: It can be told which of the tools may be called.
    """

    server: str
    instructions: bool = False
    limits: bool = True
    markers: bool = True
    marks_results: bool = False
    cache_key: Literal["prefix", "run"] | None = "prefix"
    hides_limit: bool = False
    counts: bool = False
    allows: bool = False


OPENAI_SERVER = ResponsesServer("openai", counts=True, allows=True)
LLAMA_SERVER = ResponsesServer("llama.cpp", markers=False, cache_key=None, hides_limit=True)


def _allowed(allowed: Sequence[str], names: Mapping[str, str]) -> object:
    """Return the choice that lets a model call only *allowed*, by the names under which tools are sent."""
    tools = [{"type": "function", "name": sent} for sent, own in names.items() if own in allowed]
    return {"type": "allowed_tools", "mode": "auto", "tools": tools} if tools else "none"


@final
class Tools(msgspec.Struct, frozen=True, gc=False):
    """An encoded tool set: the definitions with commas between them, and our name of each by the one that was sent."""

    wire: Wire
    names: dict[str, str]


@final
class ResponsesEncoder:
    """Encodes requests for one model; the key under which parts keep what it made.

    Args:
        provider: Name of the provider, for errors and for what is read back.
        profile: What is known of the model.
        server: What the server takes.
    """

    def __init__(self, provider: str, profile: ModelProfile, server: ResponsesServer = OPENAI_SERVER) -> None:
        self.profile = profile
        self.server = server
        self._provider = provider
        shares = profile.cache == "prefix" and server.markers
        self._least_shared = profile.min_cacheable_tokens if shares else None
        self._fronts = Fronts()
        self._heads = Heads()
        items = Items(profile, Reader(provider, profile.model, API), marks_results=server.marks_results)
        self._conversation = Conversation(self, say=items.say, between=_between)

    def __repr__(self) -> str:
        return f"<ResponsesEncoder for {self.profile.model}>"

    def encode(self, request: Request, *, cache_key: str | None = None, counting: bool = False) -> Sent:
        """Return the body of *request*.

        Args:
            request: The request.
            cache_key: What requests with this prefix have in common; `None` for nothing.
            counting: The body is to be counted: without markers and what only generating needs.

        Raises:
            ProviderRefused: It could only be refused.
        """
        tools = self.tools(request.tools)
        tail = tail_of(request)
        spoken = self._conversation.whole(request.messages, tailed=tail is not None)
        known = self._fronts.of(request, tools.wire.size if tools.names else 0, self.block)
        plan = outline(known, spoken, request.purpose, tail)
        markers = NO_MARKERS if counting else self._markers(request, plan)
        head = self._heads.of(request, tools, (cache_key, markers.explicit, counting), self._head)
        front, prefixes = plan.encoded(
            markers.ahead, tools, self._front, key=cache_key, least_tokens=self._least_shared
        )
        said = in_array(spoken, _between, plan.placed(markers.behind, _MARKER))
        body = Wire.of(head, front, said, b"]}" if tail is None else _with_tail(spoken, tail))
        return Sent(body, tools.names, prefixes)

    def _head(self, request: Request, tools: Tools, more: tuple[str | None, bool, bool]) -> bytes:
        cache_key, explicit, counting = more
        made = self._settings(request, tools.names)
        if counting:
            made = {name: value for name, value in made.items() if name in _COUNTED}
        if cache_key is not None:
            made["prompt_cache_key"] = cache_key
        if explicit:
            # Otherwise the vendor itself would write at the end, which no later request begins with.
            made["prompt_cache_options"] = {"mode": "explicit"}
        return _json(made)[:-1] + b","

    def _markers(self, request: Request, plan: Outline) -> Markers:
        if not self.server.markers:
            return NO_MARKERS
        markers = plan_breakpoints(
            plan.front, plan.said, self.profile, OPENAI, once=request.purpose in ONCE, ended=plan.ended, far=plan.far
        )
        self._fronts.mark(request, plan.front, markers)
        return markers

    # --- settings

    def _settings(self, request: Request, names: Mapping[str, str]) -> dict[str, Any]:
        options = dict(request.options)
        for name in sorted(_MADE_FROM_REQUEST.intersection(options)):
            why = f"the option `{name}` is made from the request itself; remove it from `options`"
            raise ProviderRefused(why, provider=self._provider, model=request.model)
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if as_object(options.get("reasoning")):
            options["reasoning"] = dict(options["reasoning"])
            fit_effort(options["reasoning"], "effort", self.profile.efforts)
        self._leave_out(options, names)
        if self.server.allows and request.allowed_tools is not None and names and "tool_choice" not in options:
            options["tool_choice"] = _allowed(request.allowed_tools, names)
        settings: dict[str, Any] = {**options, "model": request.model, "store": False, "stream": True}
        if self.server.limits:
            settings["max_output_tokens"] = max(MIN_REPLY, min(request.max_tokens, self.profile.max_output_tokens))
        if not self.profile.temperature or "reasoning" in options:
            wanted = filter(None, map(as_text, as_list(options.get("include"))))
            settings["include"] = list(dict.fromkeys([*wanted, _ENCRYPTED]))
        if request.output is not None and self.profile.structured_output:
            schema = msgspec.json.decode(request.output.schema)
            form = {"type": "json_schema", "name": request.output.name, "schema": schema, "strict": is_strict(schema)}
            settings["text"] = {**as_object(options.get("text")), "format": form}
        return settings

    def _leave_out(self, options: dict[str, Any], names: Mapping[str, str]) -> None:
        unwanted: set[str] = set()
        if not self.profile.temperature:
            unwanted |= _SAMPLING
        if not names:
            unwanted |= _ONLY_WITH_TOOLS
        if not self.server.limits:
            unwanted |= _SAMPLING | _UNKNOWN_TO_CODEX
        choice = as_object(options.get("tool_choice"))
        if "name" in choice:
            named = tool_name(as_text(choice["name"]))
            options["tool_choice"] = {**choice, "name": named}
            if named not in names:
                unwanted.add("tool_choice")
        if not self.profile.forced_tools and options.get("tool_choice") not in ("auto", "none", None):
            options["tool_choice"] = "auto"
        for name in unwanted & options.keys():
            del options[name]

    # --- parts

    def tools(self, tools: ToolSet) -> Tools:
        """Return *tools*, encoded once."""
        made: Tools | None = kept(tools, self)
        if made is not None:
            return made
        by_name = tool_names(tools.specs)
        wires = [
            b'{"type":"function","name":%b,"description":%b,"parameters":%b,"strict":false}'
            % (Text.of(name).quoted, Text.of(spec.description).quoted, object_schema(spec.schema))
            for name, spec in by_name.items()
        ]
        text = b",".join(wires)
        return keep(tools, self, Tools(Wire((text,), len(text)), {name: spec.name for name, spec in by_name.items()}))

    def block(self, block: Block) -> Wire:
        """Return the text of *block*, encoded once; without quotes, as it stands inside a JSON string."""
        made: Wire | None = kept(block, self)
        if made is not None:
            return made
        leaves = bodies(block.texts)
        return keep(block, self, Wire(leaves, sum(map(len, leaves))))

    def _front(self, tools: Tools, front: Front, ahead: tuple[Marker, ...]) -> Wire:
        """Return what stands in front of the conversation."""
        blocks, marked = front.blocks, front.on_blocks(ahead)
        parts: list[bytes | Wire] = [b'"tools":[', tools.wire, b"],"] if tools.names else []
        if self.server.instructions:
            first = self.block(blocks[0]) if blocks else Wire.of(OPENING.body)
            parts += [b'"instructions":"', first, b'",']
        parts.append(b'"input":[')
        for index, block in enumerate(blocks):
            if index == 0 and self.server.instructions:
                continue
            head = b'{"type":"message","role":"developer","content":[' + TEXT_OPEN
            parts += [head, self.block(block), b'"', _MARKER if index in marked else b"", b"}]},"]
        return Wire.of(*parts)


def _with_tail(spoken: Sequence[Spoken], tail: Text) -> Wire:
    """Return *tail* as it stands behind *spoken*, with the end of the body."""
    opening = b'{"type":"message","role":"user","content":['
    return Wire.of(b"," if spoken else b"", opening, TEXT_OPEN, tail.body, b'"}]}', b"]}")


def _between(_before: str, _after: str) -> bytes:
    return b","
