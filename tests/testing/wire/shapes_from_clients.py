"""Makes the shapes of request bodies from the types of the official clients.

    python tests/testing/wire/shapes_from_clients.py

writes them into the package; a test makes them again and compares. It needs the dependency group `wire`.
"""

from __future__ import annotations

import collections.abc as cabc
import json
import sys
import types
import typing
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from typing_extensions import get_type_hints, is_typeddict

HERE = Path(__file__).resolve().parents[3] / "src/shoal/testing/wire"
QUALIFIERS = (Required, NotRequired, typing.Required, typing.NotRequired)
SIMPLE = {str: "str", bool: "bool", int: "int", float: "num", type(None): "null", None: "null"}


class Shapes:
    """Turns the types of one client into nodes; what it meets on the way becomes `defs`."""

    def __init__(self, *, models: bool = False) -> None:
        self.models = models
        self.defs: dict[str, dict[str, Any]] = {}
        self.names: dict[Any, str] = {}

    def node(self, tp: Any) -> Any:
        origin, args = get_origin(tp), get_args(tp)
        if is_typeddict(tp):
            return {"ref": self.typed_dict(tp)}
        if isinstance(tp, type) and issubclass(tp, BaseModel):
            return {"ref": self.model(tp)}
        if tp in SIMPLE:
            return SIMPLE[tp]
        if origin is Literal:
            # Python may hand out an equal literal with its values in another order, by what was imported first.
            return {"enum": sorted(args, key=str)}
        if origin is Annotated:
            return self.node(args[0])
        if origin in (Union, types.UnionType):
            return self.union(args)
        if origin in (list, cabc.Iterable, cabc.Sequence) or getattr(origin, "__name__", "") == "SequenceNotStr":
            return {"list": self.node(args[0])}
        if origin in (dict, cabc.Mapping):
            return {"map": self.node(args[1])}
        if isinstance(tp, type) and issubclass(tp, str):  # the string enums of google-genai
            return {"enum": [member.value for member in tp]}
        return "str" if getattr(tp, "__name__", "") in {"bytes", "datetime"} else "any"

    def union(self, args: tuple[Any, ...]) -> Any:
        # A reply's model in a request's union stands for what clients may pass by mistake; the wire does not have it.
        kept = [arg for arg in args if self.models or not is_model(arg)] or list(args)
        found: list[Any] = []
        for arg in kept:
            node = self.node(arg)
            for inner in node["union"] if isinstance(node, dict) and "union" in node else [node]:
                if inner not in found:
                    found.append(inner)
        if "str" in found:  # the values that are known today say nothing, where any will do
            found = [node for node in found if not (isinstance(node, dict) and "enum" in node)]
        # As with literals: of simple types, an equal union may come in another order.
        simple = iter(sorted([node for node in found if isinstance(node, str)]))
        found = [next(simple) if isinstance(node, str) else node for node in found]
        return found[0] if len(found) == 1 else {"union": found}

    def name(self, tp: Any) -> str:
        name, number = tp.__name__, 1
        while any(taken == name for taken in self.names.values()):
            number += 1
            name = f"{tp.__name__}{number}"
        self.names[tp] = name
        return name

    def typed_dict(self, tp: Any) -> str:
        if tp in self.names:
            return self.names[tp]
        name = self.name(tp)
        fields: dict[str, dict[str, Any]] = {"required": {}, "optional": {}}
        self.defs[name] = fields
        for key, hint in get_type_hints(tp, include_extras=True).items():
            required = get_origin(hint) in (Required, typing.Required)
            bare = get_args(hint)[0] if get_origin(hint) in QUALIFIERS else hint
            required = required or (bare is hint and tp.__total__ and key in tp.__required_keys__)
            fields["required" if required else "optional"][alias(tp, key)] = self.node(bare)
        return name

    def model(self, tp: type[BaseModel]) -> str:
        if tp in self.names:
            return self.names[tp]
        name = self.name(tp)
        self.defs[name] = {"required": {}, "optional": {}}
        for key, field in tp.model_fields.items():
            self.defs[name]["optional"][field.alias or to_camel(key)] = self.without_null(self.node(field.annotation))
        return name

    @staticmethod
    def without_null(node: Any) -> Any:
        if not (isinstance(node, dict) and "union" in node):
            return node
        rest = [inner for inner in node["union"] if inner != "null"]
        return rest[0] if len(rest) == 1 else {"union": rest}


def alias(_tp: Any, key: str) -> str:
    """Return the name on the wire: keywords of Python have an underscore behind them."""
    return key.removesuffix("_") if key in {"async_", "from_", "type_"} else key


def is_model(tp: Any) -> bool:
    if get_origin(tp) is Annotated:
        return is_model(get_args(tp)[0])
    if get_origin(tp) in (Union, types.UnionType):
        return all(map(is_model, get_args(tp)))
    return isinstance(tp, type) and issubclass(tp, BaseModel)


def anthropic() -> dict[str, Any]:
    from anthropic.types.message_count_tokens_params import MessageCountTokensParams
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

    made = Shapes()
    root = made.node(MessageCreateParamsNonStreaming)
    count = made.node(MessageCountTokensParams)
    # Gone from the client's types, still taken for older models.
    made.defs[root["ref"]]["optional"] |= {"stream": "bool", "temperature": "num", "top_p": "num", "top_k": "int"}
    return written("anthropic", made, root, count)


def chat() -> dict[str, Any]:
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    made = Shapes()
    root = made.node(CompletionCreateParamsNonStreaming)
    made.defs[root["ref"]]["optional"]["stream"] = {"union": ["bool", "null"]}
    # Replies may be sent back as they came.
    made.defs["ChatCompletionAssistantMessageParam"]["optional"]["annotations"] = {"union": [{"list": "any"}, "null"]}
    return written("openai", made, root, None)


def responses() -> dict[str, Any]:
    from openai.types.responses.input_token_count_params import InputTokenCountParams
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

    made = Shapes()
    root = made.node(ResponseCreateParamsNonStreaming)
    made.defs[root["ref"]]["optional"]["stream"] = {"union": ["bool", "null"]}
    return written("openai", made, root, made.node(InputTokenCountParams))


def gemini() -> dict[str, Any]:
    from google.genai import types as t

    made = Shapes(models=True)
    content = made.node(t.Content)
    tools, config = {"list": made.node(t.Tool)}, made.node(t.ToolConfig)
    made.defs["GenerateContentRequest"] = {
        "required": {"contents": {"list": content}},
        "optional": {
            "model": "str",
            "systemInstruction": content,
            "tools": tools,
            "toolConfig": config,
            "safetySettings": {"list": made.node(t.SafetySetting)},
            "generationConfig": made.node(t.GenerationConfig),
            "cachedContent": "str",
            "serviceTier": made.node(t.ServiceTier),
            "labels": {"map": "str"},
            "store": "bool",
            "continuationToken": "str",
        },
    }
    made.defs["CachedContentRequest"] = {
        "required": {"model": "str"},
        "optional": {
            "contents": {"list": content},
            "systemInstruction": content,
            "tools": tools,
            "toolConfig": config,
            "ttl": "str",
            "expireTime": "str",
            "displayName": "str",
        },
    }
    return written("google-genai", made, {"ref": "GenerateContentRequest"}, {"ref": "CachedContentRequest"})


def written(package: str, made: Shapes, root: Any, other: Any) -> dict[str, Any]:
    return {
        "from": f"{package} {metadata.version(package)}",
        "root": root,
        "other": other,
        "defs": dict(sorted(made.defs.items())),
    }


MADE = {"anthropic": anthropic, "chat": chat, "responses": responses, "gemini": gemini}


def text(value: dict[str, Any]) -> str:
    """Return *value* with a line for each definition, so that a diff shows what a client changed."""
    defs = ",\n".join(f"  {json.dumps(name)}: {json.dumps(known)}" for name, known in value["defs"].items())
    front = ",\n".join(f" {json.dumps(key)}: {json.dumps(value[key])}" for key in ("from", "root", "other"))
    return f'{{\n{front},\n "defs": {{\n{defs}\n }}\n}}\n'


if __name__ == "__main__":
    for shape_name in sys.argv[1:] or MADE:
        (HERE / f"shape_{shape_name}.json").write_text(text(MADE[shape_name]()), "utf-8")
