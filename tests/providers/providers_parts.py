"""What the tests of this room build requests from, and the strategies that draw them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from shoal.providers import (
    Block,
    Message,
    PolicyStep,
    ProviderState,
    Request,
    Segment,
    Situation,
    Text,
    ToolCall,
    ToolSet,
    ToolSpec,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\x00\x00\x00\rIHDR" + (64).to_bytes(4, "big") + (48).to_bytes(4, "big") + b"\x08\x02"
TEXT_SCHEMA = b'{"properties":{"text":{"type":"string"}},"required":["text"],"type":"object"}'


def user(text: str) -> Message:
    return Message("user", (Text.of(text),))


def assistant(text: str = "", *calls: ToolCall, state: ProviderState | None = None) -> Message:
    return Message("assistant", (Text.of(text),) if text else (), calls, state=state)


def ask(call_id: str, name: str = "look", arguments: str = "{}") -> ToolCall:
    return ToolCall(call_id, name, Text.of(arguments))


def result(call_id: str, text: str = "found", *, is_error: bool = False) -> Message:
    return Message("tool", (Text.of(text),), call_id=call_id, tool_name="look", is_error=is_error)


def segment(*messages: Message, closed: bool = False) -> Segment:
    return Segment("conversation", messages, sum(len(message.text) for message in messages) // 4, closed)


def block(text: str, **settings: Any) -> Block:
    return Block("region", (Text.of(text),), len(text) // 4, **settings)


def tool(name: str = "look", schema: bytes | None = None, description: str = "Looks.") -> ToolSpec:
    return ToolSpec(name, description, schema or TEXT_SCHEMA)


def takes(**arguments: str) -> bytes:
    """Return the schema of a tool that requires *arguments*, each with its JSON type."""
    properties = {name: {"type": kind} for name, kind in arguments.items()}
    return json.dumps({"properties": properties, "required": list(arguments), "type": "object"}).encode()


def request(*messages: Message, **settings: Any) -> Request:
    settings.setdefault("model", "m")
    if messages:
        settings["messages"] = (segment(*messages),)
    return Request(**settings)


def tools(*specs: ToolSpec) -> ToolSet:
    return ToolSet(specs, 10 * len(specs))


def standing(
    *,
    policy: tuple[PolicyStep, ...] | None = None,
    iteration: int = 0,
    regions: Mapping[str, str] | None = None,
    **settings: Any,
) -> Situation:
    return Situation("demo", "work", iteration, policy, regions or {}, **settings)


# --- strategies

CALL_IDS = st.sampled_from(["a", "b", "c", "call.with dots", "x" * 70])
TEXTS = st.sampled_from(["", "hello", 'quote " and \\ and \n', "\N{LINE SEPARATOR}", "é\N{GRINNING FACE}", "\ud800"])
ARGUMENTS = st.sampled_from(["", "{}", '{"a": 1}', "[1]", "{broken", '{"s": "\\n"}', "NaN"])
NAMES = st.sampled_from(["look", "server.tool", "very long " + "n" * 80, "", "\ud800"])


def calls() -> st.SearchStrategy[ToolCall]:
    return st.builds(lambda i, n, a: ToolCall(i, n, Text.of(a)), CALL_IDS, NAMES, ARGUMENTS)


def messages() -> st.SearchStrategy[Message]:
    """Messages in any order, of the kinds that cancels, crashes and evictions leave behind."""
    said = st.lists(TEXTS.map(Text.of), max_size=2).map(tuple)
    return st.one_of(
        st.builds(lambda t: Message("user", t), said),
        st.builds(lambda t: Message("system", t), said),
        st.builds(lambda t, c: Message("assistant", t, tuple(c)), said, st.lists(calls(), max_size=3)),
        st.builds(lambda t, i: Message("tool", t, call_id=i, tool_name="look"), said, CALL_IDS),
    )


def segments() -> st.SearchStrategy[tuple[Segment, ...]]:
    few = st.builds(
        lambda said, closed: segment(*said, closed=closed), st.lists(messages(), min_size=1, max_size=5), st.booleans()
    )
    return st.lists(few, max_size=4).map(tuple)


def requests() -> st.SearchStrategy[Request]:
    return st.builds(
        lambda system, messages, tail, specs: Request(
            "m",
            tuple(block(text) for text in system),
            messages,
            None if tail is None else Text.of(tail),
            ToolSet(tuple(tool(name) for name in specs)),
        ),
        st.lists(TEXTS, max_size=3),
        segments(),
        st.none() | TEXTS,
        st.lists(NAMES, max_size=3),
    )
