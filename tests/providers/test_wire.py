"""Bodies as trees of byte strings."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.providers import Wire
from shoal.providers._wire import Deferred, Flat

LEAVES = st.lists(st.binary(max_size=9), max_size=4)
TREES = st.recursive(
    LEAVES.map(tuple) | LEAVES.map(Flat),
    lambda inner: st.lists(st.binary(max_size=9) | inner, max_size=4).map(tuple),
)


def flat(tree: object) -> bytes:
    return tree if isinstance(tree, bytes) else b"".join(flat(part) for part in tree)  # type: ignore[attr-defined]


@given(tree=TREES, piece_bytes=st.integers(1, 20))
def test_pieces_are_the_bytes_of_the_tree_from_left_to_right(tree: tuple[object, ...], piece_bytes: int):
    wire = Wire(tree, len(flat(tree)))  # type: ignore[arg-type]
    pieces = list(wire.pieces(piece_bytes))
    assert b"".join(pieces) == b"".join(wire.leaves()) == bytes(wire) == flat(tree)
    assert all(len(piece) >= piece_bytes for piece in pieces[:-1])


def test_a_small_body_is_one_piece():
    assert list(Wire.of(b"ab", Wire.of(Wire.of(b"c")), b"d").pieces()) == [b"abcd"]
    assert list(Wire.of().pieces()) == []


def test_what_is_fetched_later_stands_alone_in_a_large_body_too():
    later = Deferred(2, lambda: b"cd")
    assert list(Wire((later, b"ef", later), 6).pieces(3)) == [later, b"ef", later]


def test_a_leaf_is_the_object_that_was_put_in():
    body = b"x" * 100
    wire = Wire.of(b"[", Wire.of(Wire.of(body), b","), b"]")
    assert any(leaf is body for leaf in wire.leaves())


def test_the_size_adds_up_over_the_parts():
    assert Wire.of(b"ab", Wire.of(b"c", Wire.of()), b"d").size == 4


def test_a_piece_is_written_once_it_is_large_enough():
    assert list(Wire.of(b"ab", b"cd", b"e").pieces(4)) == [b"abcd", b"e"]
