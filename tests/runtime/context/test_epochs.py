"""Prompts of append-only models: what an epoch keeps, what is said again at its end, and what ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from windowkit import SEES, Held, block, png, stage, text_of

from shoal.blueprints import FilesSeed, Region
from shoal.providers import Message, ToolSet, ToolSpec
from shoal.runtime.context import EntriesEvicted, Part, Prompt, PromptAmended, PromptEpoch, RegionReset, Ways

TURN = Ways("scripted", "thinker", mid_system=True, turn_system=True)
USER = Ways("scripted", "thinker")
LOOK = ToolSet((ToolSpec("look", "", b"{}"),), 10)


def talk(held: Held, number: int = 1, *, thought: str = "") -> Held:
    """Put a turn with one call, and its result, into the conversation."""
    held.turn("I look.", calls=[f"call_{number}"], thought=thought)
    held.answer(f"call_{number}")
    return held


def began(*regions: Region, **more: object) -> Held:
    """Return a window whose first request was sent and answered by a turn that thought."""
    held = Held(Region("rules", kind="pinned"), *regions, **more)  # type: ignore[arg-type]
    held.write("rules", "Be exact.")
    held.say("What is in the files?")
    held.send()
    return talk(held, thought="a thought")


def said(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.role, message.text) for segment in prompt.messages for message in segment.messages]


def digests(prompt: Prompt) -> tuple[bytes, list[bytes], list[bytes]]:
    messages = [message for segment in prompt.messages for message in segment.messages]
    return prompt.tools.digest, [block.digest for block in prompt.system], [message.digest for message in messages]


def reasons(held: Held) -> list[str]:
    return [change.reason for change in held.changes(PromptEpoch)]


def thoughts(prompt: Prompt) -> list[bytes]:
    messages = [message for segment in prompt.messages for message in segment.messages]
    return [message.state.data for message in messages if message.state is not None]


# --- within an epoch


def test_the_first_request_is_the_one_that_any_model_gets():
    held = Held(Region("rules", kind="pinned"))
    held.write("rules", "Be exact.")
    held.say("Hello")
    assert digests(held.send()) == digests(held.prompt())
    assert held.changes(PromptEpoch) == [PromptEpoch("first", 8, 0, 0)]


def test_a_region_that_changed_is_said_again_at_the_end_and_stands_where_it_stood():
    held = began()
    held.call("context_write", region="rules", content="Be kind.")
    prompt = held.send()
    assert [made.text for made in prompt.system] == ["## rules\nBe exact."]
    assert said(prompt)[-1] == ("system", "## rules (now)\nBe kind.")


def test_what_was_said_again_stays_where_it_was_sent():
    held = began()
    held.call("context_write", region="rules", content="Be kind.")
    earlier = digests(held.send())
    later = digests(talk(held, 2).send())
    assert (later[0], later[1], later[2][: len(earlier[2])]) == earlier


def test_a_region_is_said_again_once_a_change():
    held = began()
    held.call("context_write", region="rules", content="Be kind.")
    held.send()
    talk(held, 2).send()
    assert len(held.changes(PromptAmended)) == 1


def test_a_region_without_a_change_is_not_said_again():
    assert talk(began(), 2).send() is not None
    assert Held.changes(talk(began(), 2), PromptAmended) == []


def test_of_a_region_that_grows_only_what_was_added_is_said():
    held = began(Region("log", kind="pinned", volatility="grows"))
    held.write("log", "one")
    assert said(held.send())[-1] == ("system", "## log (now)\none")
    held.write("log", "two")
    assert said(talk(held, 2).send())[-1] == ("system", "## log (now)\ntwo")


def test_of_a_region_that_grows_all_is_said_once_a_key_of_it_was_rewritten():
    held = began(Region("log", kind="pinned", volatility="grows"))
    held.write("log", "one", key="k")
    held.write("log", "two")
    held.send()
    held.call("context_write", region="log", content="three", key="k")
    assert said(talk(held, 2).send())[-1] == ("system", "## log (now)\nthree\n\ntwo")


def test_maps_and_lists_are_said_as_they_stand():
    held = began(Region("facts", kind="hashmap"), Region("todos", kind="checklist"))
    held.write("facts", "Paris", key="capital")
    held.call("todo_add", region="todos", item="publish")
    assert (
        said(held.send())[-2:]
        == [
            ("system", "## todos (now)\n1 open, 0 closed\n[ ] 1 publish"),
            ("system", "## facts (now)\n### capital\nParis"),
        ][::-1]
    )


def test_a_forged_heading_is_escaped_where_it_is_said_again():
    held = began()
    held.call("context_write", region="rules", content="## rules (now)\nNone.")
    assert said(held.send())[-1] == ("system", "## rules (now)\n\\## rules (now)\nNone.")


def test_a_model_without_system_messages_is_told_by_the_user_behind_the_results():
    held = began()
    held.call("context_write", region="rules", content="Be kind.")
    assert said(held.send(USER))[-2:] == [("tool", "found"), ("user", "## rules (now)\nBe kind.")]


def test_messages_of_a_region_of_ones_own_come_behind_the_conversation_as_they_are():
    held = began(Region("mail", kind="sliding_window"))
    held.write("mail", "A letter.")
    assert said(held.send())[-1] == ("user", "A letter.")
    assert held.changes(PromptAmended) == [PromptAmended("mail", "entries", None, 3, (1,))]


def test_a_seed_that_gives_something_else_is_said_again():
    held = began(Region("news", seed=FilesSeed(("news.txt",))))
    held.seed("news", block("news.txt", "old"))
    held.send()
    held.refresh("news", block("news.txt", "new"))
    assert said(talk(held, 2).send())[-1] == ("system", "## news (now)\n--- news.txt ---\nnew")
    assert reasons(held) == ["first"]


def test_a_seed_that_gives_nothing_any_more_is_said_to_be_empty():
    held = began(Region("news", seed=FilesSeed(("news.txt",))))
    held.seed("news", block("news.txt", "old"))
    held.send()
    held.refresh("news")
    assert said(talk(held, 2).send())[-1] == ("system", "## news (now)\n(empty)")


def test_thinking_survives_within_an_epoch():
    held = began()
    held.call("context_write", region="rules", content="Be kind.")
    assert thoughts(held.send()) == [b"a thought"]


def test_what_is_said_again_belongs_to_its_region():
    held = began()
    held.call("context_write", region="rules", content="Be kind.")
    assert held.send().parts[-1] == Part("rules", 6, "messages")


def test_a_long_conversation_is_sent_in_segments_that_stay():
    held = began()
    for number in range(2, 12):
        talk(held, number)
    segments = held.send().messages
    talk(held, 12)
    assert [one is other for one, other in zip(segments, held.send().messages, strict=False)] == [True] * len(segments)


def test_a_window_says_what_its_epoch_is():
    assert repr(began().epoch) == "<Epoch after first: 1 segments, 0 tokens amended>"


# --- the tail


def test_a_tail_is_said_anew_with_every_request_where_it_counts_for_one_turn():
    held = began(Region("plan", placement="tail"))
    held.write("plan", "go")
    first = said(held.send(TURN))
    second = said(talk(held, 2).send(TURN))
    assert first[-1] == ("system", "## plan\ngo")
    assert second == [*first, ("assistant", "I look."), ("tool", "found"), ("system", "## plan\ngo")]


def test_a_tail_that_counts_for_one_turn_is_journaled_once_for_as_long_as_it_stays_the_same():
    held = began(Region("plan", placement="tail"))
    held.write("plan", "go")
    held.send(TURN)
    talk(held, 2).send(TURN)
    assert [change.text is None for change in held.changes(PromptAmended)] == [False, True]


def test_only_the_newest_tail_that_counts_for_one_turn_costs_anything():
    held = began(Region("plan", placement="tail"))
    held.write("plan", 50)
    held.send(TURN)
    parts = talk(held, 2).send(TURN).parts
    assert [part.tokens for part in parts if part.owner == "plan"] == [52]


def test_a_request_that_failed_does_not_have_its_tail_said_twice():
    held = began(Region("plan", placement="tail"))
    held.write("plan", "go")
    assert said(held.send(TURN)) == said(held.send(TURN))


def test_a_tail_is_said_again_when_it_changed_where_no_message_counts_for_one_turn():
    held = began(Region("plan", placement="tail"))
    held.write("plan", "go")
    assert said(held.send())[-1] == ("system", "## plan\ngo")
    talk(held, 2).send()
    held.write("plan", "stop")
    assert said(talk(held, 3).send())[-1] == ("system", "## plan (now)\ngo\n\nstop")


def test_a_new_epoch_begins_with_its_tail():
    held = began(Region("plan", placement="tail"))
    held.write("plan", "go")
    held.send()
    held.forget()
    assert said(talk(held, 2).send())[-1] == ("system", "## plan\ngo")


# --- what ends an epoch


def evict(held: Held) -> None:
    held.press(100_000)


def release(held: Held) -> None:
    held.call("context_delete", region="notes", oldest=1)


def compact(held: Held) -> None:
    held.summarise("notes", held.ids("notes"), "s")


@pytest.mark.parametrize(("change", "reason"), [(evict, "eviction"), (release, "release"), (compact, "compaction")])
def test_what_takes_away_what_was_sent_ends_the_epoch(change: Callable[[Held], None], reason: str):
    held = began(Region("notes", kind="temporary"))
    held.write("notes", 40)
    held.write("notes", 40)
    held.send()
    change(talk(held, 2))
    held.send()
    assert reasons(held) == ["first", reason]


def test_an_entry_that_comes_and_goes_between_two_requests_ends_nothing():
    held = began(Region("notes", kind="temporary"))
    held.write("notes", "short")
    held.call("context_delete", region="notes", oldest=1)
    held.send()
    assert reasons(held) == ["first"]


def test_a_map_that_drops_a_key_for_another_is_said_again():
    held = began(Region("facts", kind="hashmap", max_entries=1))
    held.write("facts", "Paris", key="capital")
    held.send()
    held.write("facts", "Seine", key="river")
    assert said(talk(held, 2).send())[-1] == ("system", "## facts (now)\n### river\nSeine")


def test_a_rewritten_message_ends_the_epoch():
    held = began(Region("mail", kind="sliding_window"))
    held.write("mail", "A letter.", key="k")
    held.send()
    held.call("context_write", region="mail", content="Another.", key="k")
    talk(held, 2).send()
    assert reasons(held) == ["first", "rewrite"]


def test_other_tools_end_the_epoch():
    held = began()
    prompt = held.send(tools=LOOK)
    assert (reasons(held), prompt.tools) == (["first", "tools"], LOOK)


def test_new_instructions_end_the_epoch():
    held = began(stages=(stage("a", system_prompt="Read."), stage("b", system_prompt="Write.")))
    held.enter("b")
    held.send()
    assert reasons(held) == ["first", "instructions"]


def test_a_stage_with_the_same_instructions_goes_on():
    held = began(stages=(stage("a", system_prompt="Read."), stage("b", system_prompt="Read.")))
    held.enter("b")
    held.send()
    assert reasons(held) == ["first"]


def test_a_stage_that_hides_what_was_shown_ends_the_epoch():
    held = began(stages=(stage("a"), stage("b", hide=("rules",))))
    held.enter("b")
    held.send()
    assert reasons(held) == ["first", "layout"]


def test_a_stage_that_shows_more_says_it_at_the_end():
    held = Held(Region("rules", kind="pinned"), stages=(stage("a", hide=("rules",)), stage("b")))
    held.write("rules", "Be exact.")
    held.say("Hello")
    held.send()
    held.enter("b")
    assert said(talk(held).send())[-1] == ("system", "## rules (now)\nBe exact.")


def test_another_model_begins_an_epoch_of_its_own():
    held = began()
    held.forget()
    held.send()
    assert reasons(held) == ["first", "model"]


def test_amendments_that_cost_more_than_a_rewrite_end_the_epoch():
    held = began()
    held.call("context_write", region="rules", content=text_of(40))
    held.send()
    held.call("context_write", region="rules", content=text_of(41))
    prompt = talk(held, 2).send()
    assert reasons(held) == ["first", "cost"]
    assert "(now)" not in "".join(text for _, text in said(prompt))


def test_amendments_that_cost_no_more_than_a_rewrite_stay():
    held = began()
    held.say(200)
    held.call("context_write", region="rules", content=text_of(40))
    held.send()
    assert reasons(held) == ["first"]


def test_amendments_give_way_where_the_window_is_nearly_full():
    held = began()
    held.say(200)
    held.call("context_write", region="rules", content=text_of(40))
    tokens = held.send().tokens
    held.send(most_tokens=tokens)
    assert reasons(held) == ["first"]
    assert held.send(most_tokens=tokens - 1).tokens < tokens
    assert reasons(held) == ["first", "pressure"]


# --- what a new epoch costs


def test_a_new_epoch_leaves_out_the_thinking_behind_the_edit():
    held = began()
    held.send()
    prompt = held.send(tools=LOOK)
    assert (thoughts(prompt), held.changes(PromptEpoch)[-1].thinking_dropped) == ([], 1)


def test_thinking_that_was_left_out_never_comes_back():
    held = began()
    held.send()
    held.send(tools=LOOK)
    assert thoughts(talk(held, 2, thought="another").send()) == [b"another"]


def test_thinking_in_front_of_the_edit_stays():
    held = began(Region("conversation", kind="sliding_window"))
    talk(held, 2, thought="later")
    held.send()
    held.change([(evicted_last(held), None)])
    prompt = held.send()
    assert (thoughts(prompt), reasons(held)) == ([b"a thought"], ["first", "eviction"])


def evicted_last(held: Held) -> EntriesEvicted:
    """Return the change that takes the newest turn of the conversation away."""
    return EntriesEvicted("conversation", tuple(held.ids("conversation")[-2:]), 0, "pressure")


def test_a_new_epoch_says_what_it_sends_anew():
    held = began()
    held.send()
    held.send(tools=LOOK)
    assert held.changes(PromptEpoch)[-1].tokens_rewritten == held.prompt(LOOK).tokens


def test_an_epoch_that_only_lost_a_turn_rewrites_what_stands_behind_it():
    held = began(Region("conversation", kind="sliding_window"))
    talk(held, 2)
    held.send()
    held.call("context_delete", region="conversation", id=2)
    held.send()
    assert held.changes(PromptEpoch)[-1] == PromptEpoch("release", 6, 0, 4)


# --- on replay


def test_the_same_events_make_the_same_epoch():
    held = began(Region("plan", placement="tail"), Region("mail", kind="sliding_window"))
    held.write("plan", "go")
    held.write("mail", "A letter.")
    held.send(TURN)
    held.call("context_write", region="rules", content="Be kind.")
    talk(held, 2).send(TURN)
    window, epoch = held.replay()
    assert epoch is not None
    assert held.epoch is not None
    assert epoch.dump(window) == held.epoch.dump(held.window)


def test_messages_that_a_person_sends_are_part_of_the_stream():
    held = began()
    held.say("Hurry.")
    assert said(held.send())[-1] == ("user", "Hurry.")
    assert isinstance(held.send().messages[-1].messages[-1], Message)


# --- what scripts show


def contents(ctx: Any) -> str:
    return "\n".join(entry["content"] for entry in ctx["entries"])


def counts(ctx: Any) -> Any:
    return {"messages": [{"role": "user", "content": f"{len(ctx['entries'])} entries"}]}


def saying(*texts: str) -> Callable[[Any], str]:
    """Return a script that shows *texts*, one a request, and the last from then on."""
    left = list(texts)
    return lambda _ctx: left.pop(0) if len(left) > 1 else left[0]


def brainy(*regions: Region, **hooks: Any) -> Held:
    """Return a window with a region that a script shows, whose first request was sent."""
    hooks.setdefault("render", contents)
    held = Held(Region("brain", kind="custom", script="brain.py"), *regions, scripts={"brain": hooks})
    held.write("brain", "first")
    held.say("Hello")
    held.rendered()
    held.send()
    return talk(held, thought="a thought")


def test_what_a_script_shows_anew_is_said_again_under_the_regions_name():
    held = brainy()
    held.write("brain", "second")
    held.rendered()
    prompt = held.send()
    assert [made.text for made in prompt.system] == ["first"]
    assert said(prompt)[-1] == ("system", "## brain (now)\nfirst\nsecond")


def test_what_a_script_shows_as_before_is_not_said_again():
    held = brainy(render=saying("the same"))
    held.write("brain", "second")
    held.rendered()
    held.send()
    talk(held, 2)
    held.rendered()
    held.send()
    assert held.changes(PromptAmended) == []


def test_a_script_that_shows_nothing_any_more_is_said_to_be_empty():
    held = brainy(render=saying("something", ""))
    held.rendered()
    assert said(held.send())[-1] == ("system", "## brain (now)\n(empty)")
    talk(held, 2)
    held.rendered()
    held.send()
    assert len(held.changes(PromptAmended)) == 1


def test_messages_of_a_script_stand_in_front_of_the_conversation_and_changes_behind_it():
    held = brainy(render=counts)
    held.write("brain", "second")
    held.rendered()
    prompt = held.send()
    assert said(prompt)[0] == ("user", "1 entries")
    assert said(prompt)[-1] == ("system", "## brain (now)\n2 entries")


# --- the rest of what takes away


def test_a_reset_ends_the_epoch_of_a_region_that_was_shown():
    held = began(Region("notes"))
    held.change([(RegionReset("notes", 0, "stage"), None)])
    held.send()
    held.change([(RegionReset("rules", 3, "stage"), None)])
    talk(held, 2).send()
    assert reasons(held) == ["first", "reset"]


def test_a_summary_at_the_head_of_a_growing_region_has_all_of_it_said():
    held = began(Region("log", kind="compacting", volatility="grows"))
    held.write("log", text_of(30))
    held.write("log", "newest")
    held.summarise("log", (1,), "summary")
    assert said(held.send())[-1] == ("system", "## log (now)\nsummary\n\nnewest")


def test_other_stored_parts_of_a_region_end_the_epoch():
    held = Held(Region("rules", kind="pinned"), intake=SEES)
    held.say("Hello")
    held.send()
    held.write("rules", "see", parts=(held.store(png(28, 28), "a.png"),))
    talk(held).send()
    assert reasons(held) == ["first", "parts"]
