"""Draws values of any frozen type of ours, field by field, from its annotations."""

from __future__ import annotations

import types
import typing
from decimal import Decimal
from functools import cache
from typing import Any, Literal, Union

from hypothesis import strategies as st

from shoal.providers import Text

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Any text but lone surrogates, which no vendor takes."""

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: WORDS,
    int: st.integers(-(2**40), 2**40),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=12),
    type(None): st.none(),
    Decimal: st.decimals(0, 1000, places=9),
    Text: WORDS.map(Text.of),
}


@cache
def of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the annotation *kind*; a structure gets every field drawn."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin in (Union, types.UnionType):
        return st.one_of(*map(of, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple and args[-1] is ...:
        return st.lists(of(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of, args))
    if origin is dict:
        return st.dictionaries(*map(of, args), max_size=3)
    return st.builds(kind, **{name: of(hint) for name, hint in typing.get_type_hints(kind).items()})
