"""What is known of models."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from shoal.errors import ConfigInvalid
from shoal.providers import Price, Usage, profiles_from, shipped_profile
from shoal.providers._profiles import _shipped


def test_the_shipped_rows_are_all_of_use():
    rows = _shipped()
    assert len(rows) >= 14
    assert all(row.window_tokens >= row.max_output_tokens > 0 for row in rows.values())
    assert all(row.price is not None and "2026-11-30" in row.price.source for row in rows.values())


@pytest.mark.parametrize(
    "model",
    ["claude-haiku-4-5", "anthropic/claude-haiku-4.5", "claude-haiku-4-5-20251001", "claude-haiku-4-5@2025-10-01"],
)
def test_a_model_is_known_under_the_names_that_gateways_give_it(model: str):
    profile = shipped_profile(model)
    assert (profile.model, profile.window_tokens, profile.min_cacheable_tokens) == (model, 200_000, 4096)
    assert profile.window_key == f'[models."{model}"] context'


def test_an_unknown_model_is_taken_to_be_small_and_has_no_price():
    profile = shipped_profile("somebody/else")
    assert (profile.window_tokens, profile.price) == (8192, None)
    assert profile.window_source == "the default for an unknown model"


def test_a_row_of_the_user_is_laid_over_the_shipped_one():
    made = profiles_from({"gpt-5.4": {"context": 5000}}, source="shoal.toml")["gpt-5.4"]
    assert (made.window_tokens, made.window_source) == (5000, "shoal.toml")
    assert made.price == shipped_profile("gpt-5.4").price


def test_every_key_of_a_row_is_read():
    row: dict[str, Any] = {
        "append_only": True,
        "cache": "markers",
        "context": 10,
        "input_types": ["image/*"],
        "max_output": 2,
        "min_cacheable": 3,
        "price": {"input": 0.1, "output": "2", "cache_read": 0, "long_from": 4, "long_factor": 2},
        "temperature": False,
    }
    made = profiles_from({"x": row}, source="here")["x"]
    assert (made.append_only, made.cache, made.max_output_tokens, made.min_cacheable_tokens) == (True, "markers", 2, 3)
    assert (made.input_types, made.temperature) == (("image/*",), False)
    assert made.price == Price(
        Decimal("0.1"), Decimal(2), Decimal(0), source="here", long_from_tokens=4, long_factor=Decimal(2)
    )


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"contxt": 1}, "did you mean `context`"),
        ({"zzz": 1}, "it takes `append_only`"),
        ({"cache": "some"}, "none, prefix, markers"),
        ({"append_only": "yes"}, "write true or false"),
        ({"counts_parts": "by hand"}, "write one of"),
        ({"efforts": ["some"]}, "it takes none, minimal"),
        ({"context": 0}, "1 or more"),
        ({"context": "big"}, "whole number"),
        ({"context": True}, "whole number"),
        ({"min_cacheable": -1}, "0 or more"),
        ({"price": {"input": 1}}, "at least `input` and `output`"),
        ({"price": {"input": 1, "output": 1, "cash": 1}}, "`price` in"),
        ({"price": {"input": -1, "output": 1}}, "`input` is -1"),
        ({"price": {"input": "much", "output": 1}}, "'much'"),
        ({"price": {"input": "NaN", "output": 1}}, "'NaN'"),
        ({"price": 3}, "is 3; give at least"),
        ({"tokenizer": "tiktoken"}, "`tokenizer` is 'tiktoken'"),
        ({"efforts": "low"}, "`efforts` is 'low'"),
        ({"thinking": {"adaptive": True}}, "write a list of adaptive"),
        ({"input_types": "image/*"}, "a list of mime patterns"),
        ({"input_types": ["image/*", "pdf"]}, "a list of mime patterns"),
        ({"input_types": ["image/*", 1]}, "a list of mime patterns"),
    ],
)
def test_a_row_that_is_of_no_use_is_refused_with_its_place(row: dict[str, Any], said: str):
    with pytest.raises(ConfigInvalid) as caught:
        profiles_from({"x": row}, source="shoal.toml")
    assert said in str(caught.value)
    assert "shoal.toml" in str(caught.value)


def test_a_long_prompt_is_billed_at_the_multiple():
    price = Price(Decimal(1), Decimal(2), long_from_tokens=100, long_factor=Decimal(5))
    assert price.cost(Usage(100, output=10)) == Decimal(120) / 1_000_000
    assert price.cost(Usage(50, 51, output=10)) == Decimal(5 * (101 + 20)) / 1_000_000


def test_prices_that_are_not_given_follow_the_input():
    price = Price(Decimal(4), Decimal(8))
    assert price.cost(Usage(1, 1, 1, 1)) == Decimal(16) / 1_000_000


def test_each_bucket_has_its_price():
    price = Price(Decimal(1), Decimal(2), Decimal(3), Decimal(4), Decimal(5))
    assert price.cost(Usage(1, 10, 100, 1000, 10_000)) == Decimal(1 + 30 + 400 + 5000 + 20_000) / 1_000_000


def test_a_longer_lifetime_is_written_at_the_price_of_the_shorter_where_none_is_given():
    assert Price(Decimal(1), Decimal(2), cache_write=Decimal(4)).per_token("cache_write_long") == Decimal(4) / 1_000_000


def test_importing_the_room_loads_no_http_client_and_no_table():
    code = (
        "import sys, shoal.providers as p, shoal.providers._profiles as q; "
        "print('httpx' in sys.modules, q._shipped.cache_info().currsize); "
        "print(callable(p.compatible), 'httpx' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False 0\nTrue True\n"


def test_a_name_that_the_room_does_not_have_is_an_attribute_error():
    import shoal.providers

    with pytest.raises(AttributeError, match="nonsense"):
        shoal.providers.nonsense  # noqa: B018


def test_every_public_name_is_there():
    import shoal.providers

    assert shoal.providers.__all__ == sorted(
        shoal.providers.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name)
    )
    assert all(getattr(shoal.providers, name) is not None for name in shoal.providers.__all__)
