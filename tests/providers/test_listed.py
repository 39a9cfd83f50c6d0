"""What the list of `shoal[prices]` says of models, and what holds without it."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.providers import (
    Price,
    facts_of,
    list_source,
    list_trouble,
    profiles_from,
    shipped_models,
    shipped_profile,
    shipped_source,
)
from shoal.providers import _listed as module
from shoal.providers._listed import _price, listed
from shoal.providers._profiles import _shipped


def forget() -> None:
    module._opened.cache_clear()
    listed.cache_clear()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The real list, which tests otherwise go without."""
    monkeypatch.delitem(sys.modules, "genai_prices")
    forget()
    yield importlib.import_module("genai_prices.data_snapshot")
    forget()
    for name in [name for name in sys.modules if name.startswith("genai_prices.")]:
        del sys.modules[name]


@pytest.fixture
def types(installed: Any) -> Any:
    return importlib.import_module("genai_prices.types")


@pytest.fixture
def says(installed: Any, types: Any) -> Any:
    """Have the list say one thing of every model."""

    def say(prices: Any, window_tokens: int | None = None) -> None:
        row = types.ModelInfo(id="m", match=None, name="m", context_window=window_tokens, prices=prices)
        found = SimpleNamespace(find_provider_model=lambda *_: (None, row), providers=[SimpleNamespace(models=[row])])
        installed.set_custom_snapshot(found)

    return say


# --- without it


def test_without_the_list_the_shipped_rows_hold():
    forget()
    assert (list_source(), list_trouble()) == (None, None)
    assert listed("gpt-5.4") is None
    assert {dict(shipped_profile(model).sources)["price"] for model in shipped_models()} == {shipped_source()}


def test_nothing_of_it_is_loaded_before_a_model_is_asked_for():
    code = (
        "import shoal.providers._listed, shoal.providers._profiles, shoal.runtime, sys; shoal.Swarm(); "
        "print(sorted({'genai_prices', 'httpx2', 'shoal.providers._listed'} & sys.modules.keys()))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "['shoal.providers._listed']\n"


# --- with it


def test_the_list_stands_in_front_of_what_ships(installed: Any):
    profile = shipped_profile("claude-opus-5-5")
    source = f"`genai-prices` {importlib.import_module('importlib.metadata').version('genai-prices')}"
    assert list_source() == source
    assert profile.price is not None
    assert (profile.price.source, profile.window_source) == (source, source)
    said_by = {fact.key: fact.source for fact in facts_of(profile)}
    assert (said_by["price"], said_by["context"], said_by["cache"]) == (source, source, shipped_source())


def test_what_the_user_says_stands_in_front_of_the_list(installed: Any):
    rows = {"gpt-5.4": {"context": 5000, "price": {"input": "1", "output": "2"}}}
    made = profiles_from(rows, source="shoal.toml")["gpt-5.4"]
    assert made.price is not None
    assert (made.window_tokens, made.window_source) == (5000, "shoal.toml")
    assert (made.price.input, made.price.source, made.max_output_tokens) == (1, "shoal.toml", 128_000)


def test_a_model_that_only_the_list_knows_has_its_price(installed: Any):
    profile = shipped_profile("grok-4")
    assert profile.price is not None
    assert (profile.cache, profile.max_output_tokens) == ("none", 4096)


def test_a_vendor_in_front_of_a_name_is_looked_at(installed: Any):
    assert listed("anthropic/claude-opus-4-8") == listed("claude-opus-4-8")
    assert listed("gateway/claude-opus-4-8") == listed("claude-opus-4-8")


@pytest.mark.parametrize("model", ["local", "my-deployment", "no such model", ""])
def test_what_the_list_does_not_know_stays_unknown(installed: Any, model: str):
    assert listed(model) is None
    assert shipped_profile(model).price is None


def test_a_longer_lifetime_that_the_list_does_not_name_costs_what_ships(says: Any, types: Any):
    says(types.ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(4), cache_write_mtok=Decimal("2.5")))
    price = shipped_profile("gpt-6.1-sol").price
    assert price is not None
    assert (price.input, price.cache_write, price.cache_write_long) == (3, Decimal("2.5"), 5)
    assert price.source.endswith(f"`cache_write_long` from {shipped_source()}")
    assert dict(shipped_profile("gpt-6.1-sol").sources)["price"] == price.source


def test_a_price_that_changed_says_nothing_of_the_longer_lifetime(says: Any, types: Any):
    says(types.ModelPrice(input_mtok=Decimal(9), output_mtok=Decimal(9), cache_write_mtok=Decimal(10)))
    price = shipped_profile("gpt-6.1-sol").price
    assert price is not None
    assert (price.cache_write, price.cache_write_long) == (10, None)


def test_the_latest_price_that_has_begun_counts(says: Any, types: Any):
    begun = types.ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(4))
    to_come = types.ModelPrice(input_mtok=Decimal(5), output_mtok=Decimal(6))
    says(
        [
            types.ConditionalPrice(constraint=None, prices=to_come),
            types.ConditionalPrice(constraint=types.StartDateConstraint(start_date=date(2020, 1, 1)), prices=begun),
            types.ConditionalPrice(constraint=types.StartDateConstraint(start_date=date(9999, 1, 1)), prices=to_come),
        ]
    )
    price = shipped_profile("whatever").price
    assert price is not None
    assert (price.input, price.output) == (3, 4)


def test_a_price_by_the_hour_is_none(says: Any, types: Any):
    price = types.ModelPrice(input_mtok=Decimal(3), output_mtok=Decimal(4))
    night = types.TimeOfDateConstraint(start_time=time(0), end_time=time(23))
    says([types.ConditionalPrice(constraint=night, prices=price)], window_tokens=777)
    profile = shipped_profile("whatever")
    assert (profile.window_tokens, profile.price) == (777, None)
    assert shipped_profile("deepseek-v4-pro").price == _shipped()["deepseek-v4-pro"].price


def test_a_model_without_any_price_has_none(says: Any):
    says([], window_tokens=777)
    profile = shipped_profile("whatever")
    assert (profile.window_tokens, profile.price) == (777, None)


# --- a list that is broken


def test_nothing_is_wrong_with_the_list_that_is_maintained(installed: Any):
    assert list_trouble() is None


def test_a_row_that_makes_no_sense_leaves_what_ships_in_place(says: Any, types: Any):
    says(types.ModelPrice(input_mtok=Decimal(3), output_mtok="dear"), window_tokens=777)
    assert shipped_profile("gpt-6.1-sol") == _shipped()["gpt-6-1-sol"]
    assert list_trouble() is not None


def test_a_window_that_is_none_is_not_taken(says: Any):
    says([], window_tokens=-1)
    assert shipped_profile("gpt-6.1-sol").window_tokens == _shipped()["gpt-6-1-sol"].window_tokens


def test_a_list_that_cannot_be_opened_takes_nothing_down(installed: Any, monkeypatch: pytest.MonkeyPatch):
    def broken() -> None:
        raise ValueError("half a file")

    monkeypatch.setattr(installed, "get_snapshot", broken)
    assert (list_source(), list_trouble()) == (None, "ValueError: half a file")
    assert shipped_profile("gpt-6.1-sol").price == _shipped()["gpt-6-1-sol"].price
    assert shipped_profile("grok-4").price is None


def test_a_list_whose_own_package_lacks_something_is_broken_and_not_absent(
    installed: Any, monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in sys.modules if name.partition(".")[0] == "genai_prices"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "httpx2", None)
    assert "httpx2" in str(list_trouble())
    assert list_source() is None


# --- what a price can say


class Tiered:
    def __init__(self, base: int, *tiers: tuple[int, int]) -> None:
        self.base = Decimal(base)
        self.tiers = [SimpleNamespace(start=start, price=Decimal(price)) for start, price in tiers]


def test_a_long_prompt_has_its_multiple():
    amounts = {"input_mtok": Tiered(2, (100, 4)), "cache_read_mtok": Tiered(1, (100, 2))}
    made = _price({**amounts, "output_mtok": Tiered(10, (100, 15))}, "here")
    assert made == Price(
        Decimal(2),
        Decimal(10),
        Decimal(1),
        source="here",
        long_from_tokens=100,
        long_factor=Decimal(2),
        long_output_factor=Decimal("1.5"),
    )


def test_an_output_that_is_not_dearer_in_a_long_prompt_has_the_multiple_one():
    made = _price({"input_mtok": Tiered(2, (100, 4)), "output_mtok": Decimal(10)}, "here")
    assert made is not None
    assert made.per_token("output", prompt_tokens=101) == made.per_token("output", prompt_tokens=1)


def test_one_multiple_for_all_is_said_once():
    made = _price({"input_mtok": Tiered(2, (100, 4)), "output_mtok": Tiered(3, (100, 6))}, "here")
    assert made is not None
    assert made.long_output_factor is None


@pytest.mark.parametrize(
    "amounts",
    [
        {"output_mtok": Decimal(1)},
        {"input_mtok": Decimal(1)},
        {"input_mtok": Tiered(2, (100, 4), (200, 8)), "output_mtok": Decimal(1)},
        {"input_mtok": Tiered(0, (100, 4)), "output_mtok": Decimal(1)},
        {"input_mtok": Tiered(2, (100, 4)), "cache_read_mtok": Decimal(1), "output_mtok": Decimal(1)},
        {"input_mtok": Tiered(2, (100, 4)), "output_mtok": Tiered(2, (200, 4))},
        {"input_mtok": Decimal(1), "output_mtok": Tiered(2, (200, 4))},
        {"input_mtok": Decimal(1), "output_mtok": Tiered(2, (200, 4), (300, 5))},
        {"input_mtok": Decimal(1), "output_mtok": Decimal(1), "requests_kcount": Decimal(12)},
        {"input_mtok": Decimal(1), "output_mtok": Decimal(1), "output_reasoning_mtok": Decimal(3)},
        {"input_mtok": Decimal(-1), "output_mtok": Decimal(1)},
        {"input_mtok": Decimal(1), "output_mtok": Decimal("NaN")},
    ],
)
def test_a_price_that_cannot_be_said_exactly_is_none(amounts: dict[str, Any]):
    assert _price(amounts, "here") is None
