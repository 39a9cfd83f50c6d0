"""Thinking has to come back as it was, behind what it was thought about."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from wirekit import Desk, Got, assistant, message, result, text, tool, use, user

from shoal.testing import wire

PRESERVED = "claude-opus-5-5"
KEEPS = "claude-opus-4-8"
FORGETS = "claude-haiku-4-5"
BINDING = "thinking-binding-controls-2026-08-01"
ADAPTIVE = {"type": "adaptive"}
ENABLED = {"type": "enabled", "budget_tokens": 1024}

SCRIPT = (
    (wire.think("first"), wire.think("", redacted=True), "so", wire.call("f", x=1)),
    (wire.think("second"), wire.call("f", x=2)),
    (wire.think("third"), "done"),
    "ok",
)


class Talk:
    """A conversation whose replies are sent back as they came, unless a test changes them."""

    def __init__(self, model: str = PRESERVED, settings: wire.Settings | None = None) -> None:
        self.desk = Desk(wire.Script(*SCRIPT, last="ok"), settings=settings or wire.Settings())
        self.body = message(
            user("hi"), model=model, system="s", tools=[tool()], max_tokens=4000, thinking=self.thinking(model)
        )

    @staticmethod
    def thinking(model: str) -> dict[str, Any]:
        return ENABLED if model == FORGETS else ADAPTIVE

    def go(self, turns: int) -> dict[str, Any]:
        """Play *turns*, and return the body of the request behind them."""
        for _ in range(turns):
            self.add(self.desk.anthropic(self.body))
        return copy.deepcopy(self.body)

    def add(self, got: Got) -> None:
        content = got.json["content"]
        calls = [result(block["id"]) for block in content if block["type"] == "tool_use"]
        self.body["messages"] += [assistant(*content), user(*(calls or ["more"]))]

    def send(self, body: dict[str, Any], betas: str = "") -> Got:
        return self.desk.anthropic(body, betas=betas)


Change = Callable[[dict[str, Any]], Any]


def blocks(body: dict[str, Any], turn: int) -> list[dict[str, Any]]:
    """The content of the assistant's *turn*-th message, from 0 on."""
    content: list[dict[str, Any]] = body["messages"][1 + 2 * turn]["content"]
    return content


@pytest.mark.parametrize("model", [PRESERVED, KEEPS, FORGETS])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_what_comes_back_as_it_was_is_taken(model: str, turns: int):
    talk = Talk(model)
    got = talk.send(talk.go(turns))
    assert (got.exchange.violations, got.reply.status) == ((), 200)


HARMLESS: list[tuple[str, Change]] = [
    ("a marker", lambda body: blocks(body, 0)[2].update(cache_control={"type": "ephemeral"})),
    ("a marker on a tool", lambda body: body["tools"][0].update(cache_control={"type": "ephemeral"})),
    ("max_tokens", lambda body: body.update(max_tokens=3000)),
    ("effort", lambda body: body.update(output_config={"effort": "low"})),
    ("the choice of tools", lambda body: body.update(tool_choice={"type": "none"})),
    ("a text as a block", lambda body: body["messages"].__setitem__(0, user(text("hi")))),
    ("the system as a block", lambda body: body.update(system=[text("s")])),
    ("empty fields", lambda body: blocks(body, 0)[2].update(citations=None)),
    ("the caller", lambda body: blocks(body, 0)[3].update(caller={"type": "direct"})),
    ("thinking at the front", lambda body: blocks(body, 0).__delitem__(slice(0, 2))),
]


@pytest.mark.parametrize("change", [made for _, made in HARMLESS], ids=[what for what, _ in HARMLESS])
def test_what_is_no_part_of_the_prefix_may_change(change: Change):
    talk = Talk()
    body = talk.go(2)
    change(body)
    assert talk.send(body).rules == []


A11: list[tuple[str, Change]] = [
    ("the system", lambda body: body.update(system="t")),
    ("a tool", lambda body: body["tools"][0].update(description="other")),
    ("a tool more", lambda body: body["tools"].append(tool("g"))),
    ("the first message", lambda body: body["messages"].__setitem__(0, user("ho"))),
    ("an earlier text", lambda body: blocks(body, 0)[2].update(text="thus")),
    ("an earlier input", lambda body: blocks(body, 0)[3].update(input={"x": 9})),
    ("an earlier result", lambda body: body["messages"][2]["content"][0].update(content="43")),
    ("thinking in the middle gone", lambda body: blocks(body, 1).pop(0)),
    ("an earlier thought edited", lambda body: blocks(body, 0)[0].update(thinking="worst")),
    ("an earlier seal edited", lambda body: blocks(body, 0)[1].update(data="AAAA")),
    ("earlier turns gone", lambda body: body["messages"].__delitem__(slice(1, 3))),
]


@pytest.mark.parametrize("change", [made for _, made in A11], ids=[what for what, _ in A11])
def test_a11_what_stands_in_front_of_thinking_may_not_change(change: Change):
    talk = Talk()
    body = talk.go(3)
    change(body)
    got = talk.send(body)
    assert got.rules == ["A11"]
    assert "Invalid `signature` in `thinking` block" in got.json["error"]["message"]


A10: list[tuple[str, Change]] = [
    ("the thought", lambda body: blocks(body, 0)[0].update(thinking="worst")),
    ("the seal", lambda body: blocks(body, 0)[0].update(signature="AAAA")),
    ("the opaque block", lambda body: blocks(body, 0)[1].update(data=blocks(body, 0)[1]["data"][:-4] + "AAA=")),
    ("the order", lambda body: blocks(body, 0).insert(1, blocks(body, 0).pop(0))),
    ("the first gone", lambda body: blocks(body, 0).pop(0)),
    ("the last gone", lambda body: blocks(body, 0).pop(1)),
    ("all gone", lambda body: blocks(body, 0).__delitem__(slice(0, 2))),
]


@pytest.mark.parametrize("model", [KEEPS, FORGETS])
@pytest.mark.parametrize("change", [made for _, made in A10], ids=[what for what, _ in A10])
def test_a10_thinking_of_the_latest_turn_is_whole_and_unchanged(change: Change, model: str):
    talk = Talk(model)
    body = talk.go(1)
    change(body)
    assert talk.send(body).rules == ["A10"]


def test_a10_an_edited_thought_of_the_latest_turn_is_called_modified():
    talk = Talk()
    body = talk.go(1)
    blocks(body, 0)[0]["thinking"] = "worst"
    assert "cannot be modified" in talk.send(body).json["error"]["message"]


def test_a10_earlier_thinking_may_be_left_out_but_not_edited():
    talk = Talk(KEEPS)
    body = talk.go(3)
    dropped, edited = copy.deepcopy(body), copy.deepcopy(body)
    blocks(dropped, 1).pop(0)
    blocks(edited, 1)[0]["thinking"] = "worst"
    assert (talk.send(dropped).rules, talk.send(edited).rules) == ([], ["A10"])


def test_older_models_do_not_mind_what_stands_in_front():
    talk = Talk(KEEPS)
    body = talk.go(2)
    body["system"] = "t"
    assert talk.send(body).rules == []


def test_thinking_that_is_missing_is_not_missed_where_thinking_is_off():
    talk = Talk(KEEPS)
    body = talk.go(1)
    del blocks(body, 0)[:2]
    assert talk.send(body | {"thinking": {"type": "disabled"}}).rules == []


# --- what may be done instead of refusing


def edited(talk: Talk, **thinking: Any) -> dict[str, Any]:
    body = talk.go(2)
    body["system"] = "t"
    body["thinking"] = {**ADAPTIVE, **thinking}
    return body


def test_thinking_is_dropped_where_the_request_says_so():
    talk = Talk()
    body = edited(talk, block_binding={"prefix_mismatch_behavior": "drop_block"})
    got = talk.send(body, BINDING)
    assert (got.rules, got.warnings) == ([], ["A11"])
    assert [change["path"] for change in got.json["input_transformations"]] == [
        "messages.1.content.0",
        "messages.1.content.1",
        "messages.3.content.0",
    ]
    assert {(change["type"], change["reason"]) for change in got.json["input_transformations"]} == {
        ("thinking_dropped", "prefix_binding_mismatch")
    }


def test_dropped_thinking_is_not_counted():
    talk = Talk(settings=wire.Settings(binding="drop_block"))
    row = talk.send(edited(talk)).exchange.row
    assert row is not None
    assert not [block for block in row.blocks if block.path == "messages.1.content.0"]


def test_an_old_account_is_shown_the_thinking_all_the_same():
    talk = Talk(settings=wire.Settings(binding="allow"))
    got = talk.send(edited(talk), BINDING)
    assert {change["type"] for change in got.json["input_transformations"]} == {"thinking_mismatch_allowed"}
    assert got.exchange.row is not None
    assert [block for block in got.exchange.row.blocks if block.path == "messages.1.content.0"]


def test_what_became_of_thinking_is_told_with_the_beta_only():
    talk = Talk(settings=wire.Settings(binding="drop_block"))
    assert "input_transformations" not in talk.send(edited(talk)).json


def test_nothing_is_told_where_nothing_became_of_it():
    talk = Talk()
    assert "input_transformations" not in talk.send(talk.go(2), BINDING).json


@pytest.mark.parametrize(("model", "dropped"), [("claude-fable-5-2", True), ("claude-opus-4-7", False)])
def test_thinking_of_another_model_is_dropped_by_new_models_and_billed_by_old_ones(model: str, dropped: bool):
    talk = Talk()
    body = talk.go(1) | {"model": model}
    got = talk.send(body, BINDING)
    assert (got.rules, got.warnings) == ([], ["A10"])
    assert got.exchange.row is not None
    paths = [block.path for block in got.exchange.row.blocks]
    assert ("messages.1.content.0" not in paths) == dropped
    assert [change["reason"] for change in got.json.get("input_transformations", [])] == (
        ["model_binding_mismatch"] * 2 if dropped else []
    )


# --- what the model still sees of it


def thoughts(got: Got) -> int:
    assert got.exchange.row is not None
    return sum(block.tokens for block in got.exchange.row.blocks if block.path == "messages.1.content.0")


def test_thinking_stays_in_the_prompt_of_models_that_keep_it():
    talk = Talk(KEEPS)
    assert thoughts(talk.send(talk.go(3))) == 2


def test_a_new_question_drops_the_thinking_of_models_that_forget():
    talk = Talk(FORGETS)
    during, after = talk.send(talk.go(1)), talk.send(talk.go(2))
    assert (thoughts(during), thoughts(after)) == (2, 0)


def test_thinking_is_not_read_where_thinking_is_off():
    talk = Talk(KEEPS)
    assert thoughts(talk.send(talk.go(1) | {"thinking": {"type": "disabled"}})) == 0


def test_hidden_thinking_counts_what_was_thought():
    desk = Desk(wire.Script(wire.turn(wire.think("x" * 400), wire.call("f"))))
    body = message(user("hi"), model=PRESERVED, thinking={**ADAPTIVE, "display": "omitted"}, tools=[tool()])
    content = desk.anthropic(body).json["content"]
    again = Desk().anthropic({**body, "messages": [user("hi"), assistant(*content), user(result(content[1]["id"]))]})
    assert content[0]["thinking"] == ""
    assert again.rules == []
    assert thoughts(again) == 100


def test_servers_of_other_secrets_do_not_take_each_others_thinking():
    talk = Talk()
    body = talk.go(1)
    assert Desk(settings=wire.Settings(secret=b"other")).anthropic(body).rules == ["A10"]


def test_tool_uses_without_thinking_owe_none():
    desk = Desk(wire.Script(wire.call("f", "toolu_1", x=1), last="ok"))
    body = message(user("hi"), model=PRESERVED, tools=[tool()])
    desk.anthropic(body)
    got = desk.anthropic({**body, "messages": [user("hi"), assistant(use(x=1)), user(result())]})
    assert got.rules == []
