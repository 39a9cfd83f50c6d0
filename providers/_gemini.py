"""Requests as Gemini `generateContent` bodies.

Elements are parts; those of one run share a content. Results are a content of their own, since the API counts them
against the calls in front of them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, final

import msgspec

from shoal.errors import ProviderRefused
from shoal.providers._breakpoints import Front
from shoal.providers._conversation import Conversation, keep, kept
from shoal.providers._elements import Spoken, bodies, in_array
from shoal.providers._fronts import Fronts, sent_of
from shoal.providers._gemini_parts import API, TEXT_OPEN, Parts, signed
from shoal.providers._json import as_list, as_object, as_text
from shoal.providers._legality import object_schema, tail_of, tool_name, tool_names
from shoal.providers._outline import Outline
from shoal.providers._sent import Heads, Sent
from shoal.providers._states import Reader
from shoal.providers._text import Text
from shoal.providers._values import Block, ModelProfile, Request, ToolSet
from shoal.providers._wire import Wire

MAX_INLINE_BYTES = 20 * 1024 * 1024
MAX_STOPS = 5

_MADE_FROM_REQUEST = frozenset({"cachedContent", "contents", "model", "systemInstruction", "tools"})
_NOT_GENERATION = frozenset({"candidateCount", "maxOutputTokens"})
_SAMPLING = frozenset({"frequencyPenalty", "presencePenalty", "temperature", "topK", "topP"})
_json = msgspec.json.Encoder(order="sorted").encode


def _allowed(allowed: Sequence[str], names: Mapping[str, str]) -> Mapping[str, object]:
    """Return the configuration that lets a model call only *allowed*, or say something."""
    some = [own for own in names.values() if own in allowed]
    calling = {"mode": "VALIDATED", "allowedFunctionNames": some} if some else {"mode": "NONE"}
    return {"functionCallingConfig": calling}


@final
class Tools(msgspec.Struct, frozen=True, gc=False):
    """An encoded tool set: the definitions with commas between them, and our name of each by the one that was sent."""

    wire: Wire
    names: dict[str, str]


@final
class GeminiEncoder:
    """Encodes requests for one model; the key under which parts keep what it made.

    Args:
        provider: Name of the provider, for errors and for what is read back.
        profile: What is known of the model.
        max_inline_bytes: The largest request that holds stored parts.
    """

    def __init__(self, provider: str, profile: ModelProfile, *, max_inline_bytes: int = MAX_INLINE_BYTES) -> None:
        self.profile = profile
        self._provider = provider
        self._max_inline_bytes = max_inline_bytes
        self._fronts = Fronts()
        self._heads = Heads()
        said = Parts(profile, Reader(provider, profile.model, API))
        self._conversation = Conversation(self, say=said.say, between=_between)

    def __repr__(self) -> str:
        return f"<GeminiEncoder for {self.profile.model}>"

    def encode(self, request: Request, *, counting: bool = False) -> Sent:
        """Return the body of *request*.

        Args:
            request: The request.
            counting: The body is to be counted.

        Raises:
            ProviderRefused: It could only be refused.
        """
        tools = self.tools(request.tools)
        tail = tail_of(request)
        spoken = self._conversation.whole(request.messages, tailed=tail is not None)
        prefixes: tuple[bytes, ...] = ()
        if counting:  # what is only counted is no request of the run
            declared = self._declared(tools, sent_of(request.system))
        else:
            known = self._fronts.of(request, tools.wire.size if tools.names else 0, self.block)
            least = self.profile.min_cacheable_tokens
            declared, prefixes = Outline(known).encoded((), tools, self._front, least_tokens=least)
        body = Wire.of(
            self._heads.of(request, tools, counting, self._counted if counting else self._head),
            declared,
            *self._contents(spoken, tail),
            b"]}]}}" if counting else b"]}]}",
        )
        if body.size > self._max_inline_bytes and any(part.blobs for part in spoken):
            raise ProviderRefused(
                f"{self._provider}: with its stored parts the request is {body.size!r} bytes long, and "
                f"{self._max_inline_bytes!r} are taken; send fewer or smaller parts",
                provider=self._provider,
                model=request.model,
            )
        return Sent(body, tools.names, prefixes)

    def _head(self, request: Request, tools: Tools, _more: object = None) -> bytes:
        return _json(self._settings(request, tools.names))[:-1] + b","

    def _counted(self, request: Request, tools: Tools, _more: object = None) -> bytes:
        named = {**self._settings(request, tools.names), "model": f"models/{request.model.removeprefix('models/')}"}
        return b'{"generateContentRequest":' + _json(named)[:-1] + b","

    # --- settings

    def _settings(self, request: Request, names: Mapping[str, str]) -> dict[str, Any]:
        options = dict(request.options)
        for name in sorted(_MADE_FROM_REQUEST.intersection(options)):
            why = f"the option `{name}` is made from the request itself; remove it from `options`"
            raise ProviderRefused(why, provider=self._provider, model=request.model)
        wanted = dict(as_object(options.pop("generationConfig", None)))
        generation = {name: value for name, value in wanted.items() if name not in _NOT_GENERATION}
        generation["maxOutputTokens"] = max(1, min(request.max_tokens, self.profile.max_output_tokens))
        if request.temperature is not None:
            generation["temperature"] = request.temperature
        if not self.profile.temperature:
            generation = {name: value for name, value in generation.items() if name not in _SAMPLING}
        stops = as_list(generation.get("stopSequences"))
        if len(stops) > MAX_STOPS:
            raise ProviderRefused(
                f"`stopSequences` holds {len(stops)!r} texts, but at most {MAX_STOPS} are taken; remove some",
                provider=self._provider,
                model=request.model,
            )
        self._set_thinking(generation)
        self._set_output(generation, request, names)
        config = as_object(options.pop("toolConfig", None))
        if request.allowed_tools is not None and not config:
            config = _allowed(request.allowed_tools, names)
        choice = self._tool_config(config, names)
        return {**options, **choice, "generationConfig": generation}

    def _set_thinking(self, generation: dict[str, Any]) -> None:
        thinking = dict(as_object(generation.pop("thinkingConfig", None)))
        taken = self.profile.thinking
        if taken is not None and "level" not in taken:
            thinking.pop("thinkingLevel", None)
        if "thinkingLevel" in thinking or (taken is not None and "budget" not in taken):
            thinking.pop("thinkingBudget", None)
        if thinking:
            generation["thinkingConfig"] = thinking

    def _set_output(self, generation: dict[str, Any], request: Request, names: Mapping[str, str]) -> None:
        if request.output is None or not self.profile.structured_output:
            return
        if names and self.profile.thinking is not None and not signed(self.profile):
            return  # models before the third generation take a form or tools, and a stage cannot do without its tools
        generation["responseMimeType"] = "application/json"
        generation["responseJsonSchema"] = msgspec.json.decode(request.output.schema)

    def _tool_config(self, config: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
        if not names or not config:
            return {}
        calling = dict(as_object(config.get("functionCallingConfig")))
        mode = as_text(calling.get("mode")) or "AUTO"
        if mode == "ANY" and not self.profile.forced_tools:
            mode = "AUTO"
        allowed = [tool_name(as_text(name), letter_first=True) for name in as_list(calling.get("allowedFunctionNames"))]
        allowed = [name for name in allowed if name in names]
        made: dict[str, Any] = {"mode": mode}
        if allowed and mode in ("ANY", "VALIDATED"):
            made["allowedFunctionNames"] = allowed
        return {"toolConfig": {**config, "functionCallingConfig": made}}

    # --- parts

    def tools(self, tools: ToolSet) -> Tools:
        """Return *tools*, encoded once."""
        made: Tools | None = kept(tools, self)
        if made is not None:
            return made
        by_name = tool_names(tools.specs, letter_first=True)
        wires = [
            b'{"name":%b,"description":%b%b}'
            % (Text.of(name).quoted, Text.of(spec.description).quoted, _parameters(spec.schema))
            for name, spec in by_name.items()
        ]
        text = b",".join(wires)
        return keep(tools, self, Tools(Wire((text,), len(text)), {name: spec.name for name, spec in by_name.items()}))

    def block(self, block: Block) -> Wire:
        """Return *block* as a part, encoded once."""
        made: Wire | None = kept(block, self)
        if made is not None:
            return made
        leaves = (TEXT_OPEN, *bodies(block.texts), b'"}')
        return keep(block, self, Wire(leaves, sum(map(len, leaves))))

    def _front(self, tools: Tools, front: Front, _ahead: object) -> Wire:
        """Return tools and system section."""
        return self._declared(tools, front.blocks)

    def _declared(self, tools: Tools, blocks: Sequence[Block]) -> Wire:
        parts: list[bytes | Wire] = []
        if tools.names:
            parts += [b'"tools":[{"functionDeclarations":[', tools.wire, b"]}],"]
        for index, block in enumerate(blocks):
            parts += [b"," if index else b'"systemInstruction":{"parts":[', self.block(block)]
        if blocks:
            parts.append(b"]},")
        return Wire.of(*parts)

    def _contents(self, spoken: Sequence[Spoken], tail: Text | None) -> list[bytes | Wire]:
        """Return what is said, without the end of its last content."""
        opening = b'"contents":[' + (_opening(spoken[0].opening) if spoken else b"")
        said: list[bytes | Wire] = [opening, in_array(spoken, _between)]
        if tail is None:
            return said
        joint = _between(spoken[-1].closing, "user") if spoken else _opening("user")
        return [*said, joint + TEXT_OPEN, tail.body, b'"}']


def _parameters(schema: bytes) -> bytes:
    """Return *schema* as a field; an object without properties is left out, which older models refused."""
    made = object_schema(schema)
    if not as_object(as_object(msgspec.json.decode(made)).get("properties")):
        return b""
    return b',"parametersJsonSchema":' + made


@functools.cache
def _opening(run: str) -> bytes:
    return b'{"role":"%b","parts":[' % (b"model" if run == "model" else b"user")


@functools.cache
def _between(before: str, after: str) -> bytes:
    return b"," if before == after else b"]}," + _opening(after)
