"""Stored parts in a window: what a region takes, what a model is shown, and what is left where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from windowkit import SEES, Held, block, kinds, png, stage

from shoal.blueprints import Region
from shoal.errors import PartMissing
from shoal.providers import TEXT_ONLY, Intake, Message, Text
from shoal.runtime.context import (
    CONVERSATION,
    ContextCompacted,
    EntriesEvicted,
    EntryWritten,
    PartStored,
    Prompt,
    PromptEpoch,
    RegionReset,
    SeedResolved,
    Shelf,
    cut_to,
    estimate,
    estimate_text,
    fit_blocks,
    nowhere,
)

PNG = png(56, 28)
LINE = f"[image/png 56x28, {len(PNG)} bytes] hero.png"
ALL = Intake(("*/*",), "claude")


def held(*regions: Region, intake: Intake = SEES, **more: Any) -> Held:
    return Held(*regions, intake=intake, **more)


def hero(window: Held) -> tuple[int, ...]:
    known = window.window.shelf.find("hero.png")
    return (window.store(PNG, "hero.png") if known is None else known,)


def lifted(window: Held) -> list[str]:
    """Return the lines of the message in front of the conversation that holds the parts of regions."""
    first = window.prompt().messages[:1]
    return [
        str(blob.stand_in) for segment in first if segment.owner != CONVERSATION for blob in segment.messages[0].blobs
    ]


def owners(prompt: Prompt) -> list[tuple[str, str]]:
    return [(part.owner, part.section) for part in prompt.parts]


# --- the shelf


def test_a_part_is_found_by_its_name_and_by_enough_of_its_digest():
    window = held()
    [seq] = hero(window)
    digest = window.window.shelf.stored[seq].digest
    found = [
        window.window.shelf.find(wanted) for wanted in ("hero.png", digest, digest[:8].upper(), digest[:7], "other")
    ]
    assert found == [seq, seq, seq, None, None]


def test_a_digest_that_two_parts_begin_with_names_none():
    shelf = Shelf()
    for seq, tail in enumerate("ab"):
        shelf.keep(seq, PartStored(f"{'0' * 8}{tail}", f"{tail}.bin", "application/octet-stream", 1))
    assert (shelf.find("0" * 8), shelf.find("00000000a")) == (None, 0)


def test_one_name_stands_for_one_part():
    window = held()
    names = [window.window.shelf.stored[window.store(data, "hero.png")].name for data in (PNG, b"other", b"third")]
    assert names == ["hero.png", "hero.png (2)", "hero.png (3)"]


@pytest.mark.parametrize(
    ("data", "name"),
    [(PNG, "image-1.png"), (b"%PDF-1.7", "document-1.pdf"), (b"hi", "text-1.txt"), (b"\0", "file-1.bin")],
)
def test_a_part_without_a_name_gets_one_that_says_what_it_is(data: bytes, name: str):
    window = held()
    assert window.window.shelf.stored[window.store(data)].name == name


def test_where_nothing_keeps_parts_their_bytes_cannot_be_had():
    with pytest.raises(PartMissing, match="the stored part 'abc' cannot be had"):
        nowhere("abc")
    assert repr(Shelf()) == "<Shelf 0 parts>"


# --- system regions


def test_a_part_shows_in_its_region_as_a_line_and_its_bytes_stand_in_front_of_the_conversation():
    window = held(Region("art", kind="pinned"))
    window.write("art", "Look:", key="k", parts=hero(window))
    window.say("Well?")
    assert window.block("art") == f"## art\nLook:\n{LINE}"
    assert lifted(window) == [f"In `art` under `k`: {LINE}"]
    assert [segment.owner for segment in window.prompt().messages] == ["art", CONVERSATION]


def test_an_entry_of_nothing_but_parts_is_their_lines():
    window = held(Region("art", kind="pinned"))
    seq = hero(window)
    window.write("art", "", parts=(*seq, *seq))
    assert window.block("art") == f"## art\n{LINE}\n{LINE}"


def test_the_parts_of_all_regions_travel_in_one_message_in_prompt_order():
    window = held(Region("a", kind="pinned"), Region("b", kind="hashmap"), Region("c", kind="pinned", placement="tail"))
    seq = hero(window)
    for name in ("c", "b", "a"):
        window.write(name, "", key="k", parts=seq)
    assert [line[: line.index(":")] for line in lifted(window)] == [f"In `{name}` under `k`" for name in "abc"]
    assert "### k\n[image/png" in window.block("b")
    assert str(window.prompt().tail).endswith(LINE)


def test_a_model_that_does_not_take_a_part_is_shown_its_line_only():
    window = held(Region("art", kind="pinned"), intake=TEXT_ONLY)
    window.write("art", "", parts=hero(window))
    assert (window.block("art"), lifted(window)) == (f"## art\n{LINE}", [])


def test_a_part_that_is_text_is_shown_to_every_model():
    window = held(Region("art", kind="pinned"), intake=TEXT_ONLY)
    window.write("art", "", parts=(window.store(b"some words", "a.txt"),))
    [blob] = window.prompt().messages[0].messages[0].blobs
    assert (str(blob.stand_in), str(blob.text)) == ("In `art`: [text/plain, 10 bytes] a.txt", "some words")


def test_the_message_with_the_parts_is_the_same_object_while_they_are_the_same():
    window = held(Region("art", kind="pinned"), Region("notes"))
    window.write("art", "", parts=hero(window))
    before = window.prompt().messages[0]
    window.write("notes", "A note.")
    assert window.prompt().messages[0] is before
    window.write("art", "", parts=hero(window))
    assert window.prompt().messages[0] is not before


# --- messages


def test_in_the_conversation_a_part_stays_in_its_turn():
    window = held()
    window.say("Look.", parts=hero(window))
    [message] = window.prompt().messages[0].messages
    assert (message.text, [str(blob.stand_in) for blob in message.blobs]) == ("Look.", [LINE])


def test_a_sliding_window_shows_a_part_as_a_user_message():
    window = held(Region("pics", kind="sliding_window"))
    window.write("pics", "", parts=hero(window))
    [message] = window.prompt().messages[0].messages
    assert (message.role, len(message.blobs)) == ("user", 1)


def test_a_result_is_shown_to_the_model_as_text_with_its_line():
    window = held(Region("pics", kind="sliding_window"))
    window.write("pics", "Look.", parts=hero(window))
    assert window.call("context_read", region="pics").text == f"user: Look.\n{LINE}"
    assert LINE in window.call("context_list", region="pics").text


# --- what it costs


def test_a_part_costs_its_line_and_what_its_vendor_counts():
    window = held(Region("art", kind="pinned"))
    window.write("art", "", parts=hero(window))
    assert window.tokens("art") == estimate_text(Text.of(LINE)) + 2


def test_a_system_block_costs_its_lines_and_the_message_what_it_shows():
    window = held(Region("art", kind="pinned"))
    window.write("art", "", parts=hero(window))
    block_part, parts_part = window.prompt().parts
    line = estimate_text(Text.of(f"In `art`: {LINE}"))
    assert (block_part.section, block_part.tokens) == ("system", estimate_text(Text.of(LINE)) + 2)
    assert (parts_part.owner, parts_part.section, parts_part.tokens) == ("art", "parts", line + 2)
    assert window.prompt().tokens == block_part.tokens + parts_part.tokens


def test_the_prompt_is_explained_with_the_parts_of_each_region():
    window = held(Region("art", kind="pinned"), Region("pics", kind="pinned"))
    for name in ("art", "pics"):
        window.write(name, "", parts=hero(window))
    window.say("Well?")
    assert owners(window.prompt())[2:] == [("art", "parts"), ("pics", "parts"), (CONVERSATION, "messages")]
    row = window.prompt().explain()[2]
    assert (row["block"], row["cacheable"]) == ("parts[0]", True)
    assert "stored parts of the region" in str(row["why"])


def test_on_another_model_a_part_costs_what_it_costs_there():
    window = held(Region("art", kind="pinned"), intake=TEXT_ONLY, stages=(stage("one"), stage("two")))
    window.write("art", "", parts=hero(window))
    window.say("Look.", parts=hero(window))
    window.turn("I see.", calls=["c"])
    window.answer("c", "found", parts=hero(window))
    before = {name: window.tokens(name) for name in ("art", CONVERSATION)}
    window.enter("two", intake=SEES)
    after = {name: window.tokens(name) for name in ("art", CONVERSATION)}
    assert {name: after[name] - before[name] for name in before} == {"art": 2, CONVERSATION: 4}
    assert window.replayed().dump() == window.window.dump()
    window.enter("one", intake=TEXT_ONLY)
    assert {name: window.tokens(name) for name in before} == before


def test_text_of_a_part_is_counted_as_text():
    message = Message("user", blobs=held().window.shelf.blobs(()))
    assert estimate(message) == 0
    window = held(Region("art", kind="pinned"), intake=TEXT_ONLY)
    window.write("art", "", parts=(window.store(b"x" * 400, "a.txt"),))
    assert window.tokens("art") == estimate_text(Text.of("[text/plain, 400 bytes] a.txt")) + 100


# --- what a region takes


@pytest.mark.parametrize("accepts", [("image/*",), ("image/png", "audio/*"), ("*/*",), None])
def test_a_part_of_a_type_that_is_accepted_is_taken(accepts: tuple[str, ...] | None):
    window = held(Region("art", kind="pinned", accepts=accepts))
    assert window.write("art", "", parts=hero(window)).outcome == "written"


def test_one_part_that_is_not_accepted_refuses_the_whole_write_with_the_list():
    window = held(Region("art", kind="pinned", accepts=("image/*", "audio/*")))
    other = window.store(b"\0\1", "x.bin")
    plan = window.write("art", "", parts=(*hero(window), other))
    assert plan.outcome == "refused"
    assert plan.why == "`art` takes image/*, audio/*, and this holds application/octet-stream"
    assert window.entries("art") == []


def test_text_counts_as_plain_text():
    window = held(
        Region("art", kind="pinned", accepts=("image/*",)), Region("words", kind="pinned", accepts=("text/*",))
    )
    refused = window.write("art", "Look:", parts=hero(window))
    assert refused.why == "`art` takes image/*, and this holds text/plain"
    assert window.write("words", "Words.").outcome == "written"
    answer = window.call("context_write", region="art", content="Words.")
    assert answer.text == "[error] `art` takes image/*, and this holds text/plain. Write what it takes."


def test_the_record_of_the_conversation_is_taken_whatever_it_holds():
    window = held(Region(CONVERSATION, kind="sliding_window", accepts=("text/*",)))
    assert window.say("Look.", parts=hero(window)).outcome == "written"


def test_a_checklist_takes_no_parts():
    window = held(Region("todos", kind="checklist"))
    plan = window.write("todos", "item", parts=hero(window), writer="routing")
    assert (plan.outcome, plan.why) == ("refused", "`todos` is a checklist and takes items of text")


# --- how many a region holds


@pytest.mark.parametrize(
    "region",
    [
        Region("art", kind="pinned", max_stored=2),
        Region("art", kind="temporary", max_stored=2, admission="reject"),
        Region("art", kind="custom", script="r.py", pinned=True, max_stored=2),
    ],
)
def test_a_region_that_keeps_everything_refuses_the_part_above(region: Region):
    window = held(region)
    for _ in range(2):
        window.write("art", "", parts=hero(window))
    plan = window.write("art", "", parts=hero(window))
    assert plan.why == "`art` keeps 2 stored parts at most. It holds: id 1 (hero.png), id 2 (hero.png)"
    assert plan.remedy == "Release some with `context_delete` first."
    assert window.write("art", "Words do not count.").outcome == "written"


@pytest.mark.parametrize("kind", ["temporary", "compacting", "sliding_window", "clearable"])
def test_other_regions_drop_the_oldest_entry_that_holds_one(kind: Any):
    window = held(Region("art", kind=kind, max_stored=2))
    window.write("art", "words")
    for _ in range(3):
        window.write("art", "", parts=hero(window))
    assert window.ids("art") == [1, 3, 4]
    [gone] = window.changes(EntriesEvicted)
    assert (gone.entry_ids, gone.reason) == ((2,), "max_stored")


def test_a_map_counts_what_its_key_gives_up():
    window = held(Region("art", kind="hashmap", max_stored=1))
    window.write("art", "", key="a", parts=hero(window))
    window.write("art", "", key="a", parts=hero(window))
    assert (window.ids("art"), window.changes(EntriesEvicted)) == ([2], [])
    window.write("art", "", key="b", parts=hero(window))
    assert [entry.key for entry in window.entries("art")] == ["b"]


def test_a_write_in_place_of_parts_counts_without_them():
    window = held(Region("art", kind="pinned", max_stored=1))
    window.write("art", "", parts=hero(window))
    assert window.write("art", "", parts=hero(window), replaces=[1]).outcome == "written"


def test_more_parts_than_a_region_ever_holds_are_refused_at_once():
    window = held(Region("art", max_stored=1))
    plan = window.write("art", "", parts=hero(window) * 2)
    assert plan.why == "`art` keeps 1 stored parts at most, and this holds 2"
    assert plan.remedy == ""


def test_what_makes_room_by_number_and_by_budget_goes_in_two_steps():
    window = held(Region("art", max_stored=1, max_tokens=40, shed_to=1.0))
    window.write("art", 20)
    window.write("art", "", parts=hero(window))
    plan = window.write("art", "words " * 8, parts=hero(window))
    assert [c.reason for c, _ in plan.changes if isinstance(c, EntriesEvicted)] == ["max_stored", "budget"]
    assert window.ids("art") == [3]


def test_a_turn_goes_whole_for_the_part_of_its_result():
    window = held(Region(CONVERSATION, kind="sliding_window", max_stored=1))
    window.turn(calls=["a", "b"])
    window.answer("a", "found", parts=hero(window))
    window.answer("b")
    window.say("Look.", parts=hero(window))
    assert [entry.kind for entry in window.entries(CONVERSATION)] == ["user_message"]


def test_of_a_part_that_the_conversation_may_not_hold_the_name_is_left():
    window = held(Region(CONVERSATION, kind="sliding_window", max_stored=1))
    window.turn(calls=["a", "b"])
    window.answer("a", "found", parts=hero(window))
    window.answer("b", "found too", parts=hero(window))
    [_, first, second] = window.entries(CONVERSATION)
    assert (len(first.parts), second.parts) == (1, ())
    assert second.text == f"found too\n{LINE}\n[named only: `conversation` keeps 1 stored parts at most]"
    assert window.replayed().dump() == window.window.dump()


# --- cutting


def test_of_a_message_of_nothing_but_a_part_the_name_is_left():
    window = held(Region(CONVERSATION, kind="sliding_window", max_stored=0))
    window.say("", parts=hero(window))
    [entry] = window.entries(CONVERSATION)
    assert entry.text.startswith(f"{LINE}\n[named only")
    assert window.replayed().dump() == window.window.dump()


def test_of_parts_that_do_not_fit_the_names_are_left():
    window = held(Region("art", kind="pinned", max_tokens=60))
    large = window.store(png(560, 560), "large.png")
    plan = window.write("art", "What is in it?", parts=(large,), writer="routing")
    assert (plan.outcome, plan.cut) == ("written", True)
    [entry] = window.entries("art")
    assert entry.parts == ()
    assert entry.text.splitlines()[:2] == ["What is in it?", "[image/png 560x560, 26 bytes] large.png"]
    assert entry.text.endswith("; of the parts above only the names]")


def test_a_marker_alone_does_not_begin_with_an_empty_line():
    window = held()
    shorter = cut_to(Message("user", blobs=window.blobs(*hero(window))), 100, 50)
    assert shorter.message.text.startswith(LINE)


# --- seeds


def sown(window: Held, name: str, *parts: int) -> Any:
    made = block(name, "") if parts else block(name, "text")
    return type(made)(name, Text.of(f"--- {name} ---" if parts else f"--- {name} ---\ntext"), 20, True, parts)


def test_a_seed_of_parts_fills_a_region_that_takes_only_them():
    window = held(Region("art", kind="pinned", accepts=("image/*",)))
    blocks = (sown(window, "hero.png", *hero(window)), sown(window, "a.txt"))
    fitting, notes = fit_blocks(blocks, 100, window.state("art").region, window.window.shelf)
    assert [one.name for one in fitting] == ["hero.png"]
    assert notes == ("a.txt is left out: the region takes image/*, and this holds text/plain",)


@pytest.mark.parametrize(("kind", "kept"), [("pinned", ["a", "b"]), ("temporary", ["b", "c"])])
def test_of_more_parts_than_it_holds_a_region_keeps_the_first_or_the_last(kind: Any, kept: list[str]):
    window = held(Region("art", kind=kind, max_stored=2))
    blocks = [sown(window, name, *hero(window)) for name in "abc"]
    fitting, notes = fit_blocks(blocks, 100, window.state("art").region, window.window.shelf)
    assert ([one.name for one in fitting], len(notes)) == (kept, 1)


def test_a_seed_with_a_part_shows_its_path_and_its_line():
    window = held(Region("art", kind="pinned"))
    window.change([(SeedResolved("art", "files", (sown(window, "hero.png", *hero(window)),)), None)])
    assert window.block("art") == f"## art\n--- hero.png ---\n{LINE}"
    assert window.replayed().dump() == window.window.dump()


def test_a_seed_that_gives_the_same_bytes_again_writes_nothing():
    window = held(Region("art", kind="pinned"))
    seq = hero(window)
    window.seed("art", sown(window, "hero.png", *seq))
    assert window.refresh("art", sown(window, "hero.png", *seq)) == []
    other = window.store(png(1, 1), "hero.png")
    assert kinds(window.refresh("art", sown(window, "hero.png", other))) == ["SeedRefreshed"]


def test_a_piece_of_a_seed_that_failed_keeps_its_part():
    window = held(Region("art", kind="pinned"))
    window.seed("art", sown(window, "hero.png", *hero(window)), sown(window, "b"))
    window.refresh("art", block("hero.png", "gone", ok=False), block("b", "new"))
    assert [len(entry.parts) for entry in window.entries("art")] == [1, 0]


def test_a_seed_that_is_filled_again_leaves_room_for_the_parts_that_stand_beside_it():
    window = held(Region("art", kind="sliding_window", max_stored=1, max_items=None))
    window.seed("art", sown(window, "note"))
    window.write("art", "", parts=hero(window))
    changes = window.refresh("art", sown(window, "hero.png", *hero(window)))
    assert window.state("art").parts == 1
    assert "the region keeps 1 stored parts at most" in str(changes)


# --- attaching


def test_a_stored_part_is_attached_by_name():
    window = held(Region("art", kind="pinned"))
    hero(window)
    answer = window.call("context_attach", region="art", part="hero.png", key="k")
    assert answer.text.startswith(f"Attached {LINE}. `art` holds ")
    [entry] = window.entries("art")
    assert (entry.key, len(entry.parts), entry.text) == ("k", 1, LINE)
    assert window.replayed().dump() == window.window.dump()


@pytest.mark.parametrize(
    ("region", "part", "said"),
    [
        ("art", "other.png", "[error] there is no stored part 'other.png'; stored parts: 'hero.png'"),
        ("art", " ", "[error] `part` is empty"),
        ("todos", "hero.png", "[error] `todos` is a checklist"),
        (CONVERSATION, "hero.png", "[error] `conversation` is written by the runtime"),
        ("words", "hero.png", "[error] `words` takes text/*, and this holds image/png"),
        ("map", "hero.png", "[error] `map` is a hashmap and keeps nothing without a key"),
    ],
)
def test_what_cannot_be_attached_is_refused(region: str, part: str, said: str):
    window = held(
        Region("art", kind="pinned"),
        Region("todos", kind="checklist"),
        Region("words", accepts=("text/*",)),
        Region("map", kind="hashmap"),
    )
    hero(window)
    answer = window.call("context_attach", region=region, part=part)
    assert (answer.is_error, answer.text.startswith(said)) == (True, True)


def test_where_nothing_is_stored_the_refusal_says_so():
    answer = held(Region("art")).call("context_attach", region="art", part="x")
    assert answer.text == "[error] there is no stored part 'x'; stored parts: none"


def test_text_that_is_appended_to_a_key_leaves_its_part_there():
    window = held(Region("map", kind="hashmap"))
    hero(window)
    window.call("context_attach", region="map", part="hero.png", key="k")
    window.call("context_append", region="map", content="It is red.", key="k")
    window.call("context_append", region="map", content="And blue.", key="k")
    [entry] = window.entries("map")
    assert (entry.message.text, len(entry.parts)) == ("It is red.\nAnd blue.", 1)
    assert window.replayed().dump() == window.window.dump()


# --- leaving


def test_a_summary_names_the_parts_that_left_the_window():
    window = held(Region("art", kind="compacting"), Region("pinned", kind="pinned"))
    stays, goes = window.store(PNG, "stays.png"), window.store(png(9, 9), "goes.png")
    window.write("pinned", "", parts=(stays,))
    window.write("art", "words " * 20, parts=(stays, goes))
    window.write("art", "newest")
    change, _ = window.summarise("art", [1], "short")
    assert isinstance(change, ContextCompacted)
    assert change.dropped_parts == ("goes.png",)
    assert change.bytes_saved > 100
    assert window.state("art").parts == 0


def test_a_summary_of_words_names_no_parts():
    window = held(Region("art", kind="compacting"))
    window.write("art", "words " * 20)
    change, _ = window.summarise("art", [1], "short")
    assert isinstance(change, ContextCompacted)
    assert change.dropped_parts == ()


def test_a_region_that_is_emptied_holds_no_parts():
    window = held(Region("art", kind="pinned"))
    window.write("art", "", parts=hero(window))
    window.change([(RegionReset("art", 1, "stage"), None)])
    assert (window.state("art").parts, window.state("art").part_tokens, lifted(window)) == (0, 0, [])


def test_the_event_of_an_entry_names_its_parts_and_no_bytes():
    window = held(Region("art", kind="pinned"))
    [seq] = hero(window)
    window.write("art", "", parts=(seq,))
    [written] = window.changes(EntryWritten)
    assert (written.parts, written.text) == ((seq,), None)


# --- models that bind their thinking


def test_new_parts_of_a_system_region_begin_another_epoch():
    window = held(Region("art", kind="pinned"))
    window.write("art", "words")
    window.say("Go.")
    window.send()
    window.turn("Done.")
    window.write("art", "", parts=hero(window))
    prompt = window.send()
    assert [change.reason for change in window.changes(PromptEpoch)] == ["first", "parts"]
    assert prompt.messages[0].owner == "art"
    assert ("art", "parts") in owners(prompt)
    again, epoch = window.replay()
    assert epoch is not None
    assert epoch.dump(again) == window.epoch.dump(window.window)  # type: ignore[union-attr]


def test_parts_that_stay_as_they_are_end_no_epoch():
    window = held(Region("art", kind="pinned"), Region("notes"))
    window.write("art", "", parts=hero(window))
    window.say("Go.")
    first = window.send()
    window.turn("Done.")
    window.write("notes", "", parts=(window.store(b"\0", "x.bin"),))
    prompt = window.send()
    assert prompt.messages[0] is first.messages[0]
    assert any("x.bin" in message.text for segment in prompt.messages for message in segment.messages)
