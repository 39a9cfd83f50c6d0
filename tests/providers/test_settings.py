"""Whatever a stage asks for, no model is sent a setting that it refuses: by types, and by the wire server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from providers_bodies import schema_faults
from providers_parts import ask, assistant, block, request, result, tool, tools, user
from test_stories import ALIKE, CLAUDE, GEMINI, GPT

from shoal.errors import ProviderRefused
from shoal.providers import (
    OutputFormat,
    Request,
    RetryPolicy,
    Text,
    VendorProvider,
    anthropic,
    codex,
    exchange,
    google,
    openai,
    openai_chat,
)
from shoal.testing import virtual_backend, wire

pytestmark = pytest.mark.wall_limit(600)

KEY = "a-key-of-the-tests"
TOOLS = tools(tool("look"), tool("server.tool"))
FORM = OutputFormat("form", b'{"properties":{"a":{"type":"string"}},"required":["a"],"type":"object"}')
MAKES: Mapping[str, tuple[Callable[..., VendorProvider], tuple[str, ...]]] = {
    "anthropic": (anthropic, CLAUDE),
    "chat": (openai_chat, GPT),
    "responses": (openai, GPT),
    "codex": (codex, GPT),
    "gemini": (google, GEMINI),
}

efforts = st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "max"])
share = st.sampled_from([0, 0.5, 1])
stops = st.lists(st.sampled_from(["end", " ", "\n"]), max_size=4)
names = st.sampled_from(["look", "server.tool", "gone"])
budgets = st.one_of(st.integers(-1, 4000), st.just(100_000))


def some(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return settings of which each may be there."""
    return st.fixed_dictionaries({}, optional=options)


def one(kind: str, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **more})


OPTIONS: Mapping[str, st.SearchStrategy[dict[str, Any]]] = {
    "anthropic": some(
        thinking=st.one_of(
            one("adaptive"),
            one("adaptive", display=st.sampled_from(["summarized", "omitted"])),
            one("disabled"),
            one("between_tools"),
            one("enabled", budget_tokens=budgets),
        ),
        output_config=some(effort=efforts),
        tool_choice=st.one_of(one("auto"), one("any"), one("none"), one("tool", name=names)),
        stop_sequences=stops,
        top_p=share,
        top_k=st.integers(1, 9),
        service_tier=st.sampled_from(["auto", "standard_only"]),
    ),
    "chat": some(
        reasoning_effort=efforts,
        verbosity=st.sampled_from(["low", "high"]),
        tool_choice=st.one_of(
            st.sampled_from(["auto", "none", "required"]),
            one("function", function=st.fixed_dictionaries({"name": st.just("look")})),
        ),
        parallel_tool_calls=st.booleans(),
        stop=stops,
        top_p=share,
        presence_penalty=st.integers(-2, 2),
        logprobs=st.just(True),
        seed=st.integers(0, 9),
        response_format=st.sampled_from([{"type": "text"}, {"type": "json_object"}]),
        prompt_cache_options=st.just({"mode": "implicit"}),
    ),
    "responses": some(
        reasoning=some(effort=efforts, summary=st.sampled_from(["auto", "concise"])),
        text=some(verbosity=st.sampled_from(["low", "high"])),
        tool_choice=st.one_of(st.sampled_from(["auto", "none", "required"]), one("function", name=names)),
        parallel_tool_calls=st.booleans(),
        max_tool_calls=st.integers(1, 9),
        top_p=share,
        include=st.just(["reasoning.encrypted_content"]),
        truncation=st.just("disabled"),
    ),
    "gemini": some(
        generationConfig=some(
            stopSequences=stops,
            topP=share,
            topK=st.integers(1, 9),
            seed=st.integers(0, 9),
            maxOutputTokens=st.integers(1, 9),
            thinkingConfig=some(
                thinkingBudget=st.integers(-1, 4000),
                thinkingLevel=st.sampled_from(["LOW", "HIGH"]),
                includeThoughts=st.booleans(),
            ),
        ),
        toolConfig=some(
            functionCallingConfig=some(
                mode=st.sampled_from(["AUTO", "ANY", "NONE", "VALIDATED"]),
                allowedFunctionNames=st.lists(names, max_size=2),
            )
        ),
    ),
}
TALKS = (
    (user("x"),),
    (),
    (user("x"), assistant("so", ask("a"), ask("b")), result("b"), user("As JSON.")),
    (user("x"), assistant("done")),
)


def asked(vendor: str) -> st.SearchStrategy[Request]:
    """Return requests that ask for settings of every kind."""
    return st.builds(
        lambda model, talk, **more: request(*talk, model=model, **more),
        st.sampled_from(MAKES[vendor][1]),
        st.sampled_from(TALKS),
        system=st.sampled_from([(), (block("s" * 9000, volatility="stable"), block("r"))]),
        tail=st.sampled_from([None, Text.of("now")]),
        tools=st.sampled_from([tools(), TOOLS]),
        allowed_tools=st.sampled_from([None, (), ("look",), ("server.tool", "gone")]),
        max_tokens=st.sampled_from([0, 1, 15, 1024, 2000, 10**9]),
        temperature=st.sampled_from([None, 0.0, 0.7, 1.5, 2.0]),
        output=st.sampled_from([None, FORM]),
        purpose=st.sampled_from(["stage", "routing", "compaction", "titling"]),
        options=OPTIONS["responses" if vendor == "codex" else vendor],
        run_id=st.sampled_from(["", "r"]),
    )


def sent(vendor: str, one: Request) -> wire.Journal:
    """Send *one*, and return what arrived; nothing does where it is refused here."""
    http = wire.InProcess(wire.Fuzz(steps=2), wire.Settings(models=ALIKE))

    async def run() -> None:
        provider = MAKES[vendor][0](KEY, http=http)
        try:
            await exchange(provider, one, policy=RetryPolicy(attempts=1))
        except ProviderRefused:
            assert not http.journal.replies, "it was refused there"
        finally:
            await provider.aclose()

    name, options = virtual_backend("asyncio")
    anyio.run(run, backend=name, backend_options=options)
    return http.journal


@pytest.mark.parametrize("vendor", MAKES)
@given(data=st.data())
def test_no_model_is_sent_a_setting_that_it_refuses(vendor: str, data: st.DataObject):
    for arrived in sent(vendor, data.draw(asked(vendor))):
        assert arrived.violations == ()
        assert schema_faults(arrived.incoming.path, json.loads(arrived.raw)) == []
