"""What is expected of the blocks in front of a conversation."""

from __future__ import annotations

import pytest
from providers_parts import assistant, block, request, segment, tool, tools, user

from shoal.providers import NO_TOOLS, SERVERS, Block, Request, Text, ToolSet, chat_encoder, shipped_profile
from shoal.providers._breakpoints import Front, Marker, Markers
from shoal.providers._fronts import Fronts
from shoal.providers._gemini import GeminiEncoder
from shoal.providers._messages import MessagesEncoder
from shoal.providers._outline import Outline, outline, under
from shoal.providers._responses import ResponsesEncoder
from shoal.providers._wire import Wire


def owned(owner: str, text: str = "x" * 400, **settings: object) -> Block:
    return Block(owner, (Text.of(text),), 1, **settings)  # type: ignore[arg-type] # the fields of a block


def front(
    fronts: Fronts,
    *blocks: Block,
    run_id: str = "r",
    purpose: str = "stage",
    offered: ToolSet = NO_TOOLS,
    ahead: bool = False,
) -> Front:
    asked = request(user("x"), system=blocks, run_id=run_id, purpose=purpose, tools=offered, stages_ahead=ahead)
    return fronts.of(asked, 400 if offered.specs else 0, encoded)


def marks(*markers: Marker, explicit: bool = False) -> Markers:
    return Markers(markers, (), explicit)


def encoded(one: Block) -> Wire:
    return Wire.of(one.text.encode())


def odds(made: Front) -> list[float]:
    return [spot.odds for spot in made.spots]


def test_the_less_a_block_says_it_moves_the_likelier_it_stays():
    made = front(Fronts(), owned("a", volatility="stable"), owned("b"), owned("c", volatility="grows"), run_id="")
    assert odds(made) == sorted(odds(made))
    assert [spot.steady for spot in made.spots] == [True, False, False]


def test_a_block_that_changed_is_likelier_to_change():
    fronts = Fronts()
    before = odds(front(fronts, owned("a", "1"), owned("b", "1")))
    after = odds(front(fronts, owned("a", "1"), owned("b", "2")))
    assert after[0] <= before[0]
    assert after[1] > before[1]


def test_a_block_that_stays_is_likelier_to_stay():
    fronts = Fronts()
    one = owned("a")
    first, *_, last = [odds(front(fronts, one))[0] for _ in range(20)]
    assert last < first / 2


def test_what_was_declared_stable_and_changed_is_steady_no_more():
    fronts = Fronts()
    front(fronts, owned("a", "1", volatility="stable"))
    assert [spot.steady for spot in front(fronts, owned("a", "2", volatility="stable")).spots] == [False]


def test_blocks_of_one_owner_are_told_apart():
    fronts = Fronts()
    front(fronts, owned("a", "1"), owned("a", "2"))
    first, second = odds(front(fronts, owned("a", "1"), owned("a", "3")))
    assert second > first


def test_a_block_that_was_away_is_remembered():
    fronts = Fronts()
    [before] = odds(front(fronts, owned("a", "1")))
    front(fronts)
    assert odds(front(fronts, owned("a", "2")))[0] > before


def test_of_a_growing_region_its_end_moves_and_its_frozen_chunks_do_not():
    fronts = Fronts()
    grown = [owned("g", f"{n}", volatility="grows", frozen=True) for n in range(3)]
    made = front(fronts, *grown, owned("g", "open", volatility="grows"))
    assert odds(made)[1:3] == [0.0, 0.0]
    assert odds(made)[3] > 0.2


def test_behind_a_last_frozen_chunk_another_may_come():
    grown = owned("g", volatility="grows", frozen=True)
    assert odds(front(Fronts(), grown, owned("b")))[1] > 0.2
    assert front(Fronts(), grown).odds < 0.8


def test_a_region_that_stopped_growing_is_likelier_to_stay():
    fronts = Fronts()
    for n in range(8):
        growing = front(fronts, owned("g", f"{n}", volatility="grows"))
    still = owned("g", "end", volatility="grows")
    for _ in range(24):
        ended = front(fronts, still)
    assert odds(growing)[0] > 0.7
    assert odds(ended)[0] < 0.4


def test_what_is_a_runs_own_and_what_is_a_stages_is_where_others_part():
    own, stages, ahead = owned("a", reach="run"), owned("b", reach="stage"), {"ahead": True}
    assert odds(front(Fronts(), own))[0] > 0.2
    assert odds(front(Fronts(), stages))[0] < 0.1 < odds(front(Fronts(), stages, **ahead))[0]


def test_a_front_is_the_same_object_while_its_blocks_are():
    fronts = Fronts()
    blocks = [owned("a"), owned("b")]
    made = [front(fronts, *blocks) for _ in range(8)]
    assert made[0] is made[1] is not made[2]  # looked at again ever more rarely
    assert made[2] is made[7]
    assert made[0].made is made[7].made
    assert front(fronts, *blocks, ahead=True) is not made[7]
    assert front(fronts, *blocks, offered=tools(tool())) is not made[7]


@pytest.mark.parametrize(("run_id", "purpose"), [("", "stage"), ("r", "titling"), ("other", "stage")])
def test_only_the_runs_own_turns_are_remembered(run_id: str, purpose: str):
    fronts = Fronts()
    [before] = odds(front(fronts, owned("a", "1"), run_id=run_id, purpose=purpose))
    assert odds(front(fronts, owned("a", "2"))) == [before]


def test_the_run_that_was_seen_least_recently_is_forgotten():
    fronts = Fronts(max_runs=1)
    [before] = odds(front(fronts, owned("a", "1")))
    front(fronts, owned("a", "1"), run_id="other")
    assert odds(front(fronts, owned("a", "2"))) == [before]
    assert repr(fronts) == "<Fronts of 1 runs>"


def test_tools_stand_in_front_and_take_a_marker_where_the_vendor_lets_them():
    offered = tools(tool())
    assert front(Fronts(), offered=offered).spots[0].markable is False
    assert front(Fronts(tools_markable=True), offered=offered).spots[0].markable is True


def test_a_chain_stands_for_everything_up_to_a_block():
    one, other = [front(Fronts(), owned("a", "1"), owned("b", text)).chain for text in ("2", "3")]
    assert one[0] == other[0]
    assert one[1] != other[1]


def test_what_was_marked_is_known_when_the_front_changes():
    fronts = Fronts()
    blocks = [owned("a", "1"), owned("b", "1")]
    asked = request(user("x"), system=tuple(blocks), run_id="r")
    made = fronts.of(asked, 0, encoded)
    fronts.mark(asked, made, Markers((Marker(0), Marker(1)), (9,)))
    assert front(fronts, blocks[0], owned("b", "2")).known == {0}


def test_what_was_marked_longest_ago_is_forgotten():
    fronts = Fronts()
    for n in range(70):
        asked = request(user("x"), system=(owned("a", f"{n}"),), run_id="r")
        fronts.mark(asked, fronts.of(asked, 0, encoded), marks(Marker(0)))
    assert front(fronts, owned("a", "69")).known == {0}
    assert front(fronts, owned("a", "0")).known == set()


def test_a_request_is_found_at_its_end_while_nothing_in_front_of_that_moves():
    fronts, one = Fronts(), owned("a", "1")
    assert [front(fronts, one).moved for _ in range(5)] == [False] * 5
    assert front(fronts, one, owned("b", "2")).moved
    assert not front(fronts, one, owned("b", "2")).moved
    assert front(fronts, one, owned("b", "3")).moved


def test_a_conversation_that_lost_its_head_has_moved():
    fronts = Fronts()
    first, second = user("x"), user("y")
    for said, moved in (((first, second), False), ((second,), True), ((second, first), False), ((), True)):
        asked = Request("m", messages=(segment(*said),) if said else (), run_id="r")
        assert fronts.of(asked, 0, encoded).moved is moved


def test_what_was_not_written_at_its_end_is_not_looked_for_there():
    fronts, one = Fronts(), owned("a", "1")
    asked = request(user("x"), system=(one,), run_id="r")
    fronts.mark(asked, fronts.of(asked, 0, encoded), marks(Marker(0), explicit=True))
    made = fronts.of(asked, 0, encoded)
    assert made.moved
    fronts.mark(asked, made, marks(Marker(0)))
    asks = request(user("x"), system=(one,), run_id="r", purpose="routing")
    fronts.mark(asks, fronts.of(asks, 0, encoded), marks(Marker(0), explicit=True))
    assert not fronts.of(asked, 0, encoded).moved


def test_marks_of_a_front_that_is_not_the_runs_are_not_kept():
    fronts = Fronts()
    one = owned("a", "1")
    fronts.mark(request(user("x"), run_id="r"), front(fronts, one, run_id="other"), marks(Marker(0)))
    front(fronts, one)
    fronts.mark(request(user("x"), run_id="r"), front(Fronts(), one), marks(Marker(0)))
    assert front(fronts, one, owned("b")).known == set()


# --- whole requests


def outlined(talk: Request) -> Outline:
    encoder = MessagesEncoder("anthropic", shipped_profile("claude-opus-5-5"))
    spoken = encoder._conversation.whole(talk.messages, tailed=False)
    return outline(encoder._fronts.of(talk, 0, encoder.block), spoken, talk.purpose)


def test_a_request_is_outlined_in_stretches_and_its_end_in_elements():
    old = [segment(user(f"{n}"), assistant("a"), closed=True) for n in range(5)]
    plan = outlined(Request("m", (block("s"),), (*old, segment(user("x"), assistant("y"), user("z")))))
    assert [spot.positions for spot in plan.said] == [2, 2, 2, 2, 1, 1, 1, 1, 1]
    assert plan.ended == 6


def test_a_question_that_no_later_request_shows_is_not_cached():
    talk = Request("m", (), (segment(user("x"), user("which?")),), purpose="routing")
    assert [spot.cacheable for spot in outlined(talk).said] == [True, False]


def test_prefixes_under_a_key_are_those_of_its_machine():
    assert under(None, (b"p",)) == (b"p",)
    assert under("k", (b"p",)) != under("l", (b"p",)) != (b"p",)


def test_without_markers_every_place_leads_that_is_long_enough():
    made = Outline(front(Fronts(), owned("a", volatility="stable"), owned("b"), owned("c")))
    assert made.leading(0) == made.front.chain
    assert made.leading(150) == made.front.chain[1:]


# --- who leads


def test_caches_without_markers_have_prefixes_to_wait_for_too():
    system = (block("s" * 40_000, volatility="stable"), block("r" * 400))
    asked = request(user("x"), system=system, run_id="r")
    profile = shipped_profile("gpt-5.4")
    chat = chat_encoder(SERVERS["openai"], profile=profile)
    ours, theirs = (chat.sent(asked, cache_key=key).prefixes for key in ("a", "b"))
    assert len(ours) == 2
    assert set(ours).isdisjoint(theirs)
    assert len(ResponsesEncoder("openai", profile).encode(asked).prefixes) == 2
    assert len(GeminiEncoder("google", shipped_profile("gemini-3.8-flash")).encode(asked).prefixes) == 2


def test_a_server_that_shares_at_once_has_nobody_wait():
    asked = request(user("x"), system=(block("s" * 40_000, volatility="stable"),), run_id="r")
    assert chat_encoder(SERVERS["vllm"]).sent(asked).prefixes == ()
