"""Each rule bites: without it, a body that breaks it passes. And no rule shares code with what it judges."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import test_anthropic_binding
import test_anthropic_rules
import test_chat_rules
import test_gemini_rules
import test_responses_rules
from wirekit import OPENAI, Desk, Got, assistant, message, pdf, user

from shoal.testing.wire._anthropic import _api as anthropic_api
from shoal.testing.wire._gemini import _api as gemini_api
from shoal.testing.wire._openai import _chat_api, _responses_api

HOUSE = Path(anthropic_api.__file__).parents[1]
MANY: dict[str, set[str]] = {"shared": {"O9", "O10", "O12", "O13"}}
"""Rules of functions that are not called like their one rule."""

Send = Callable[[], Got]


def anthropic_bodies() -> Iterator[tuple[str, Send]]:
    for rule, _, body in test_anthropic_rules.BAD:
        yield rule, lambda body=body: Desk().anthropic(body)
    older = message(user("hi"), assistant("x", pdf()), user("y"))
    yield "A21", lambda: Desk().anthropic(older, version="2026-10-21")


def chat_bodies() -> Iterator[tuple[str, Send]]:
    for rule, _, body in test_chat_rules.BAD:
        yield rule, lambda body=body: test_chat_rules.send(body)


def responses_bodies() -> Iterator[tuple[str, Send]]:
    for rule, _, body in test_responses_rules.BAD:
        yield rule, lambda body=body: test_responses_rules.send(body)
    for _, body in test_responses_rules.CODEX_BAD:
        yield "codex", lambda body=body: test_responses_rules.send(body, test_responses_rules.CODEX)
    large = test_responses_rules.ask(*test_responses_rules.holding("image_url", "x" * 20_971_521))
    yield "R7", lambda: test_responses_rules.send(large)
    yield "R2", reasoning_alone


def reasoning_alone() -> Got:
    talk = test_responses_rules.Talk()
    return talk.desk.send("/v1/responses", {**talk.body, "input": [talk.said[0]]}, OPENAI)


def gemini_bodies() -> Iterator[tuple[str, Send]]:
    for rule, _, model, body in test_gemini_rules.BAD:
        yield rule, lambda body=body, model=model: test_gemini_rules.send(body, model)


def edited(model: str, changes: list[tuple[str, test_anthropic_binding.Change]]) -> Send:
    """Return what sends a conversation with the first of *changes*."""

    def send() -> Got:
        talk = test_anthropic_binding.Talk(model)
        body = talk.go(2)
        changes[0][1](body)
        return talk.send(body)

    return send


def binding_bodies() -> Iterator[tuple[str, Send]]:
    yield "A10", edited(test_anthropic_binding.KEEPS, test_anthropic_binding.A10)
    yield "A11", edited(test_anthropic_binding.PRESERVED, test_anthropic_binding.A11)


VENDORS: list[tuple[ModuleType, str, Callable[[], Iterator[tuple[str, Send]]]]] = [
    (anthropic_api, "RULES", anthropic_bodies),
    (anthropic_api, "BINDING_RULES", binding_bodies),
    (_chat_api, "RULES", chat_bodies),
    (_responses_api, "RULES", responses_bodies),
    (gemini_api, "RULES", gemini_bodies),
]
MUTATIONS = [
    pytest.param(module, table, bodies, rule, id=f"{module.__name__.split('.', 3)[3]}.{rule.__name__}")
    for module, table, bodies in VENDORS
    for rule in getattr(module, table)
]


def ids_of(rule: Any) -> set[str]:
    name: str = rule.__name__
    return MANY.get(name) or {name.upper() if name[1:].isdecimal() else name}


@pytest.mark.parametrize(("module", "table", "bodies", "rule"), MUTATIONS)
def test_without_a_rule_what_breaks_it_passes(
    module: ModuleType,
    table: str,
    bodies: Callable[[], Iterator[tuple[str, Send]]],
    rule: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    sent = [send for name, send in bodies() if name in ids_of(rule)]
    assert all(set(send().rules) <= ids_of(rule) and send().rules for send in sent)
    monkeypatch.setattr(module, table, tuple(one for one in getattr(module, table) if one is not rule))
    assert [send for send in sent if send().rules == []]


def test_without_the_windows_rule_a_prompt_that_is_too_long_passes(monkeypatch: pytest.MonkeyPatch):
    sent = [send for rule, send in anthropic_bodies() if rule == "A20"]
    assert [send().rules for send in sent] == [["A20"]] * len(sent)
    monkeypatch.setattr(anthropic_api._options, "a20", lambda *_: ())
    assert [send().rules for send in sent] == [[]] * len(sent) != []


def test_nothing_here_knows_what_it_judges():
    imported = {
        name
        for path in HOUSE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in names_in(node)
    }
    assert {name for name in imported if name.split(".")[0] == "shoal"} == {
        name for name in imported if name.startswith("shoal.testing.wire.")
    }
    assert not {name.split(".")[0] for name in imported} & {"anthropic", "google", "openai"}


def names_in(node: ast.AST) -> list[str]:
    """Return the modules that *node* imports."""
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
