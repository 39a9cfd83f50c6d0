"""The small parts: clocks, counts, seals, shapes, media, models, prompts, journals."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wirekit import Desk, message, pdf, png

from shoal.testing import wire
from shoal.testing.wire import _media, _net
from shoal.testing.wire._clock import epoch_s, rfc3339
from shoal.testing.wire._engine import Refused, World
from shoal.testing.wire._http import Connection, Incoming
from shoal.testing.wire._journal import Journal
from shoal.testing.wire._models import Price, models_from, shipped
from shoal.testing.wire._prefix import PrefixTree
from shoal.testing.wire._prompt import Block, Prompt, common_bytes
from shoal.testing.wire._seal import Seals, digest
from shoal.testing.wire._shape import Shape, Tag
from shoal.testing.wire._strict import Budget, resolve, schema_problems
from shoal.testing.wire._tokens import count, cut

# --- time


def test_a_clock_moves_only_by_hand_and_never_back():
    clock = wire.ManualClock(5.0)
    clock.advance(2.5)
    assert (clock(), repr(clock)) == (7.5, "ManualClock(7.5)")
    with pytest.raises(ValueError, match="does not go back by 1"):
        clock.advance(-1)


def test_clocks_begin_on_a_fixed_day():
    assert (epoch_s(61.9) - epoch_s(0.0), rfc3339(61.9)) == (61, "2026-11-30T00:01:01Z")


# --- counts


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("鯨", 1), ("\ud800" * 3, 3)]
)
def test_four_bytes_are_a_token(text: str, tokens: int):
    assert count(text) == tokens


@given(text=st.text(), tokens=st.integers(0, 10))
def test_what_is_cut_is_a_start_that_fits(text: str, tokens: int):
    kept = cut(text, tokens)
    assert text.startswith(kept)
    assert count(kept) <= tokens
    assert count(text) > tokens or kept == text


# --- seals


@given(facts=st.dictionaries(st.text(), st.integers() | st.text(), max_size=4))
def test_a_seal_gives_back_what_was_sealed(facts: dict[str, Any]):
    assert Seals(b"s").read(Seals(b"s").stamp(facts)) == facts


@given(place=st.integers(0), letter=st.sampled_from("ABCDwxyz0189+/="))
def test_a_seal_with_one_letter_changed_is_none(place: int, letter: str):
    seal = Seals(b"s").stamp({"a": 1})
    place %= len(seal)
    changed = seal[:place] + letter + seal[place + 1 :]
    assert Seals(b"s").read(changed) == ({"a": 1} if changed == seal else None)


@pytest.mark.parametrize("seal", ["", "%", "ö", "AAAA"])
def test_what_is_no_seal_is_none(seal: str):
    assert Seals(b"s").read(seal) is None


def test_a_digest_knows_where_its_parts_end():
    assert digest("ab", "c") != digest("a", "bc")


# --- shapes

SHAPE = Shape(
    {"ref": "Root"},
    None,
    {
        "Root": {
            "required": {"a": "str"},
            "optional": {
                "b": {"list": {"union": [{"ref": "Cat"}, {"ref": "Dog"}, {"ref": "Any"}]}},
                "c": {"map": "int"},
                "d": {"enum": [1, True, "x"]},
                "e": {"union": ["str", {"list": "num"}, "null", {"enum": ["y"]}]},
                "f": {"union": [{"map": "bool"}, {"list": "str"}]},
                "g": {"union": [{"enum": ["p"]}, {"enum": ["q"]}]},
                "h": {"union": [{"ref": "Cat"}, {"ref": "Dog"}]},
                "i": {"list": "any"},
                "j": {"ref": "Cat"},
            },
        },
        "Cat": {"required": {"type": {"enum": ["cat"]}, "lives": "int"}, "optional": {}},
        "Dog": {"required": {}, "optional": {"type": {"union": [{"enum": ["dog"]}, "null"]}, "bark": "bool"}},
        "Any": {"required": {"name": "str"}, "optional": {"type": "str"}},
    },
)


def problems(**fields: Any) -> list[tuple[str, str]]:
    found = SHAPE.problems({"a": "x", **fields})
    return [(".".join(map(str, problem.keys)), problem.kind) for problem in found]


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"b": [{"type": "cat", "lives": 9}, {"bark": True}, {"type": None}, {"name": "n"}]}, {"c": {"x": 1}},
        {"d": 1}, {"d": True}, {"e": "s"}, {"e": [1, 1.5]}, {"e": None}, {"f": {"x": True}}, {"f": ["x"]}, {"g": "q"},
        {"i": [1, {}, None]},
    ],
)  # fmt: skip
def test_what_has_its_shape_has_no_problems(fields: dict[str, Any]):
    assert problems(**fields) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"a": 1}, [("a", "type")]),
        ({"z": 1}, [("z", "unknown")]),
        ({"b": 5}, [("b", "type")]),
        ({"b": [{"type": "cat"}]}, [("b.0.lives", "missing")]),
        ({"b": [{"type": "dog", "bark": 1}]}, [("b.0.bark", "type")]),
        ({"b": ["x"]}, [("b.0", "type")]),
        ({"c": 1}, [("c", "type")]),
        ({"c": {"x": "y"}}, [("c.x", "type")]),
        ({"c": {"x": True}}, [("c.x", "type")]),
        ({"d": 2}, [("d", "value")]),
        ({"e": 5}, [("e", "type")]),
        ({"e": ["x"]}, [("e.0", "type")]),
        ({"e": {}}, [("e", "type")]),
        ({"f": {"x": 1}}, [("f.x", "type")]),
        ({"g": "r"}, [("g", "value")]),
        ({"h": {"type": "cow"}}, [("h.type", "value")]),
        ({"h": 5}, [("h", "type")]),
        ({"j": 5}, [("j", "type")]),
        ({"j": {}}, [("j.type", "missing"), ("j.lives", "missing")]),
    ],
)
def test_what_has_not_is_told_where(fields: dict[str, Any], found: list[tuple[str, str]]):
    assert problems(**fields) == found


def test_a_missing_tag_is_missing():
    shape = Shape({"union": [{"ref": "Cat"}, {"ref": "Cow"}]}, None, {
        "Cat": SHAPE.defs["Cat"], "Cow": {"required": {"type": {"enum": ["cow"]}}, "optional": {}},
    })  # fmt: skip
    [problem] = shape.problems({})
    assert (problem.keys, problem.kind, problem.wanted) == (("type",), "missing", ("cat", "cow"))


def test_objects_without_tags_are_of_the_wrong_type():
    shape = Shape({"union": [{"map": "int"}, "str"]}, None, {})
    [problem] = shape.problems([])
    assert (problem.kind, problem.wanted) == ("type", ("object", "str"))


def test_a_path_names_the_kind_of_object():
    [problem] = SHAPE.problems({"a": "x", "b": [{"type": "cat"}]})
    assert problem.path == ("b", 0, Tag("cat"), "lives")


# --- schemas


def test_a_pointer_leads_into_its_schema():
    assert resolve("#/a/b", {"a": {"b": {"c": 1}}}) == {"c": 1}
    assert [resolve(ref, {"a": 1}) for ref in ("#/b", "#/a/b", "#/a")] == [None, None, None]


def test_what_is_no_schema_inside_of_one_is_let_be():
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"x": True},
        "anyOf": [True],
        "items": True,
    }
    assert list(schema_problems(schema, Budget())) == []


# --- media

JPEG = b"\xff\xd8\xff\xe0\0\x04\0\0\xff\xc0\0\x11\x08\0\x10\0\x20\x03"
WEBP = {
    b"VP8 ": b"\0" * 10 + b"\x20\0\x10\0",
    b"VP8L": b"\0" * 4 + b"\x2f\x1f\xc0\x03\0" + b"\0" * 5,
    b"VP8X": b"\0" * 8 + b"\x1f\0\0\x0f\0\0",
}


@pytest.mark.parametrize(
    ("raw", "media_type"),
    [
        (png(32, 16), "image/png"),
        (b"GIF89a\x20\0\x10\0", "image/gif"),
        (JPEG, "image/jpeg"),
        *[(b"RIFF\0\0\0\0WEBP" + kind + rest, "image/webp") for kind, rest in WEBP.items()],
    ],
)
def test_images_tell_their_size(raw: bytes, media_type: str):
    assert _media.image(raw) == _media.Image(media_type, 32, 16)


@pytest.mark.parametrize(
    "raw",
    [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\0\x04\0\0x", b"BM" * 20,
     b"RIFF\0\0\0\0WEBPVP8 ", b"RIFF\0\0\0\0WEBPVP9 " + bytes(20)],
)  # fmt: skip
def test_what_is_no_image_is_none(raw: bytes):
    assert _media.image(raw) is None


def test_a_pdf_tells_its_pages():
    raw = base64.b64decode(pdf(3, b"/Encrypt")["source"]["data"])
    assert _media.pdf(raw) == _media.Pdf(3, encrypted=True)
    assert (_media.pdf(b"x"), _media.decoded("%")) == (None, None)


# --- models


def test_a_row_can_start_from_another():
    made = models_from({"mine": {"like": "claude-opus-5-5", "window": 7}})["mine"]
    assert (made.name, made.window, made.preserved, made.price) == ("mine", 7, True, shipped()["claude-opus-5-5"].price)


def test_a_row_can_stand_alone():
    made = models_from(
        {"m": {"vendor": "openai", "window": 9, "max_output": 3, "price": {"input": "1", "output": "2", "read": "0"}}}
    )
    assert made["m"].price == Price(Decimal(1), Decimal(2), Decimal(0))


def test_a_key_that_no_row_has_is_refused():
    with pytest.raises(msgspec.ValidationError, match="no keys \\['windows'\\]"):
        models_from({"m": {"vendor": "openai", "windows": 9}})


def test_a_model_that_is_not_known_cannot_be_started_from():
    with pytest.raises(KeyError):
        models_from({"m": {"like": "gone"}})


# --- prefixes


def prompt(*blocks: str, model: str = "m", scope: str = "s") -> Prompt:
    return Prompt(model, scope, tuple(Block(str(n), "t", text.encode(), count(text)) for n, text in enumerate(blocks)))


@given(ours=st.binary(max_size=20), theirs=st.binary(max_size=20))
def test_common_bytes_are_all_that_are_common(ours: bytes, theirs: bytes):
    found = common_bytes(ours, theirs)
    assert ours[:found] == theirs[:found]
    assert ours[found : found + 1] != theirs[found : found + 1] or found == min(len(ours), len(theirs))


def test_a_tree_finds_the_longest_prefix_to_the_token():
    tree = PrefixTree(10.0)
    assert tree.find(prompt("a" * 40), 0.0) == 0
    tree.add(prompt("a" * 40, "b" * 40), 0.0, 1.0)
    tree.add(prompt("a" * 40, "c" * 40), 0.0, 1.0)
    assert tree.find(prompt("a" * 40, "b" * 20 + "x" * 20), 1.0) == 15
    assert tree.find(prompt("a" * 40, "b" * 40, "d"), 1.0) == 20


@pytest.mark.parametrize(("at_s", "found"), [(0.9, 0), (1.0, 10), (9.9, 10), (10.0, 0)])
def test_a_tree_forgets_and_does_not_foresee(at_s: float, found: int):
    tree = PrefixTree(10.0)
    tree.add(prompt("a" * 40), 0.0, 1.0)
    assert tree.find(prompt("a" * 40), at_s) == found


def test_a_tree_remembers_while_it_is_used():
    tree = PrefixTree(10.0)
    for start_s in (0.0, 8.0, 16.0):
        tree.add(prompt("a" * 40), start_s, start_s + 1.0)
    assert tree.find(prompt("a" * 40), 24.0) == 10


def test_a_newer_use_does_not_hide_an_older_one():
    tree = PrefixTree(10.0)
    tree.add(prompt("a" * 40), 0.0, 1.0)
    tree.add(prompt("a" * 40), 2.0, 9.0)
    assert tree.find(prompt("a" * 40), 3.0) == 10


@pytest.mark.parametrize("other", [prompt("a" * 40, model="n"), prompt("a" * 40, scope="r")])
def test_models_and_scopes_share_no_prefix(other: Prompt):
    tree = PrefixTree(10.0)
    tree.add(prompt("a" * 40), 0.0, 0.0)
    assert tree.find(other, 1.0) == 0


def test_a_tree_may_find_whole_blocks_only():
    tree = PrefixTree(10.0)
    tree.add(prompt("a" * 40), 0.0, 0.0)
    assert tree.find(prompt("a" * 39 + "b"), 1.0, whole=True) == 0


# --- records


def test_a_record_says_what_it_is():
    desk = Desk()
    refused = desk.anthropic(message(foo=1)).exchange
    answered = desk.anthropic(message()).exchange
    assert (refused.refused, answered.refused) == (True, False)
    assert [exchange.number for exchange in desk.world.journal.replies] == [2]
    assert [str(found) for found in desk.world.journal.violations] == [
        "unknown foo: foo: Extra inputs are not permitted"
    ]
    assert str(wire.Violation("A1", "", "no")) == "A1: no"
    assert refused.summary()["violations"] == ["unknown foo: foo: Extra inputs are not permitted"]


def test_a_body_that_is_empty_repeats_nothing():
    journal = Journal()
    incoming = Incoming("GET", "/", {}, {}, b"")
    assert [journal.open(incoming, 0.0).repeats for _ in range(2)] == [None, None]
    assert len(list(journal)) == 2


@pytest.mark.anyio
@pytest.mark.sockets
async def test_everything_with_a_state_shows_it():
    desk = Desk()
    desk.anthropic(message())
    listening = _net.listener()
    client = await anyio.connect_tcp("127.0.0.1", listening.getsockname()[1])
    peer = await _net.accept(listening)
    shown = [desk.world, desk.engine, desk.world.journal, desk.ledger, PrefixTree(1.0), peer, Connection(peer)]
    shown += desk.engine.dialects
    assert all(repr(thing).startswith("<") for thing in shown)
    peer.close()
    assert repr(peer) == "<Peer closed>"
    peer.reset()
    listening.close()
    await client.aclose()


def test_a_refusal_carries_its_failure():
    assert Refused(wire.Failure(400)).failure.status == 400


def test_ids_differ_between_servers_unless_told_not_to():
    def first_id(settings: wire.Settings) -> str:
        return str(Desk(settings=settings).anthropic(message()).json["id"])

    assert first_id(wire.Settings()) != first_id(wire.Settings())
    assert first_id(wire.Settings(ids="x")) == first_id(wire.Settings(ids="x"))


def test_a_world_starts_empty():
    world = World(wire.Settings(), wire.ManualClock())
    assert (len(world.journal), len(world.ledger), world.ledger.cost_usd) == (0, 0, 0)
