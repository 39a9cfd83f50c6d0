"""Outgoing requests to an append-only model as files under `tests/prompts/epochs`; see `test_prompts`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import pytest
from windowkit import Held, stage

from shoal.blueprints import Region
from shoal.providers import ProviderState, Request, shipped_profile
from shoal.providers._messages import MessagesEncoder
from shoal.runtime.context import Ways

SamePrompt = Callable[[str, str], None]

PROFILE = shipped_profile("claude-opus-5-5")
WAYS = Ways("anthropic", PROFILE.model, PROFILE.mid_system, PROFILE.turn_system)
REGIONS = (
    Region("rules", kind="pinned", volatility="stable"),
    Region("log", kind="pinned", volatility="grows"),
    Region("notes"),
    Region("files", kind="compacting"),
    Region("scratch", kind="clearable"),
    Region("facts", kind="hashmap"),
    Region("todos", kind="checklist"),
    Region("mail", kind="sliding_window"),
    Region("plan", placement="tail"),
    Region("stage_instructions", kind="pinned"),
    Region("conversation", kind="sliding_window"),
)


def sent(held: Held, ways: Ways = WAYS) -> str:
    """Return what goes out next, as readable JSON without what is the same in each request."""
    prompt = held.send(ways)
    encoder = MessagesEncoder("anthropic", PROFILE)
    request = Request(PROFILE.model, prompt.system, prompt.messages, prompt.tail, prompt.tools)
    body = json.loads(bytes(encoder.encode(request).body))
    text = json.dumps({"system": body.get("system"), "messages": body["messages"]}, indent=2, ensure_ascii=False)
    return re.sub(r"(.)\1{60,}", lambda run: f"{run[1] * 3}…({len(run[0])})", text) + "\n"


def started(*, layout: tuple[Region, ...] = REGIONS) -> Held:
    """Return a window whose first request went out, and was answered by a turn that thought and called a tool."""
    held = Held(*layout, stages=(stage("a", system_prompt="Read."), stage("b", system_prompt="Write.")))
    held.write("rules", "Be exact.")
    held.write("log", "Opened.")
    held.write("plan", "Look first.")
    held.say("What is in the files?")
    held.send(WAYS)
    return talk(held, 1)


def talk(held: Held, number: int) -> Held:
    sealed = msgspec.json.encode({"type": "thinking", "thinking": "Hm.", "signature": f"seal {number}"})
    thought = b'{"api":"messages","state":[%b,["text",7],["call",0]]}' % sealed
    held.turn("I look.", calls=[f"call_{number}"], arguments='{"path": "a.txt"}', thought=thought.decode())
    turn = held.entries("conversation")[-1].message
    msgspec.structs.force_setattr(turn, "state", ProviderState("anthropic", PROFILE.model, thought))
    held.answer(f"call_{number}", "alpha")
    return held


def test_a_first_request(same_prompt: SamePrompt):
    held = Held(*REGIONS, stages=(stage("a", system_prompt="Read."),))
    held.write("rules", "Be exact.")
    held.write("plan", "Look first.")
    held.say("What is in the files?")
    same_prompt("epochs/first", sent(held))


def test_regions_of_each_kind_that_changed(same_prompt: SamePrompt):
    held = started()
    for region in ("rules", "log", "notes", "files", "scratch"):
        held.write(region, f"More for the {region}.")
    held.write("facts", "Paris", key="capital")
    held.call("todo_add", region="todos", item="publish")
    held.write("mail", "A letter.")
    same_prompt("epochs/changed", sent(held))


def test_a_change_stays_where_it_was_sent(same_prompt: SamePrompt):
    held = started()
    held.call("context_write", region="rules", content="Be kind.")
    held.send(WAYS)
    same_prompt("epochs/stayed", sent(talk(held, 2)))


def test_a_tail_that_was_rewritten(same_prompt: SamePrompt):
    held = started()
    held.call("context_write", region="plan", content="Then write.")
    same_prompt("epochs/tail", sent(held))


def test_a_tail_where_no_message_counts_for_one_turn(same_prompt: SamePrompt):
    held = started()
    held.call("context_write", region="plan", content="Then write.")
    same_prompt("epochs/tail_for_good", sent(held, Ways(WAYS.provider, WAYS.model, mid_system=True)))


def test_a_change_where_no_system_message_is_taken_within_the_conversation(same_prompt: SamePrompt):
    held = started()
    held.call("context_write", region="rules", content="Be kind.")
    same_prompt("epochs/by_user", sent(held, Ways(WAYS.provider, WAYS.model)))


@pytest.mark.parametrize("change", ["evicted", "released"])
def test_a_new_epoch_after_something_went(change: str, same_prompt: SamePrompt):
    held = started()
    held.write("notes", "Short-lived.")
    held.send(WAYS)
    talk(held, 2)
    held.press(10_000) if change == "evicted" else held.call("context_delete", region="notes", oldest=1)
    same_prompt(f"epochs/{change}", sent(held))


def test_a_new_epoch_in_the_next_stage(same_prompt: SamePrompt):
    held = started()
    held.call("context_write", region="rules", content="Be kind.")
    held.send(WAYS)
    talk(held, 2)
    held.enter("b")
    same_prompt("epochs/next_stage", sent(held))
