"""Where cache markers go, as people are told: read from the request that would be sent."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from shoal.providers import (
    Block,
    Breakpoint,
    Marking,
    Message,
    ModelProfile,
    Request,
    Segment,
    Text,
    ToolSet,
    ToolSpec,
    shipped_profile,
)

CLAUDE = shipped_profile("claude-opus-5-5")
TOOLS = ToolSet((ToolSpec("look", "Looks.", b'{"type":"object"}'),), 10)


def asked(*messages: Message) -> Request:
    rules = Block("rules", (Text.of("r" * 20_000),), 5_000, "stable")
    notes = Block("notes", (Text.of("n" * 20_000),), 5_000)
    segment = Segment("conversation", messages or (Message("user", (Text.of("Hello"),)),), 2)
    return Request("claude-opus-5-5", (rules, notes), (segment,), tools=TOOLS, run_id="r", stages_ahead=True)


def test_each_marker_says_where_it_stands_and_how_long_it_asks_for():
    marks = Marking("anthropic", CLAUDE).see(asked())
    assert {mark.section for mark in marks} <= {"tools", "system", "messages"}
    assert ("messages", True, "5m") in {(mark.section, mark.last, mark.lifetime) for mark in marks}
    assert [mark.tokens for mark in marks] == sorted(mark.tokens for mark in marks)


def test_the_end_of_the_request_costs_all_of_it():
    last = Marking("anthropic", CLAUDE).see(asked())[-1]
    assert (last.index, last.tokens) == (0, pytest.approx(10_000, rel=0.01))


def test_a_model_without_markers_has_none():
    marking = Marking("anthropic", replace(CLAUDE, cache="prefix"))
    assert (marking.marks, marking.see(asked())) == (False, ())


def test_a_provider_of_somebody_else_has_none_that_we_know_of():
    marking = Marking("mine", CLAUDE)
    assert (marking.marks, marking.see(asked())) == (False, ())


def test_a_model_with_breakpoints_of_its_own_is_marked_in_its_system_section_too():
    profile = ModelProfile("gpt", 400_000, 8_000, cache="markers")
    marking = Marking("openai", profile)
    marks = [mark for _ in range(2) for mark in marking.see(replace_model(asked(), "gpt"))]
    assert "system" in {mark.section for mark in marks}


def replace_model(request: Request, model: str) -> Request:
    return msgspec.structs.replace(request, model=model)


def test_a_marking_says_for_which_model_it_is():
    assert repr(Marking("anthropic", CLAUDE)) == "<Marking for claude-opus-5-5>"
    assert Breakpoint("system", 0, 1, "5m") == Breakpoint("system", 0, 1, "5m")
