"""What the maintained price list of the extra `shoal[prices]` says of models, where that is installed.

The list ships in a package, so nothing is fetched. It gives windows and prices; what else is known of a model comes
from the rows that ship here.

Source: the package `genai-prices`, 0.2.3 (November 2026).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple, final

from shoal.providers._values import Price

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo

PACKAGE = "genai-prices"
_INPUTS: Mapping[str, str] = {
    "input": "input_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_long": "cache_write_1h_mtok",
}
"""Amounts of a price that are of what is sent, each with its name in the list."""
_ELSE = ("requests_kcount", "output_reasoning_mtok", "output_citation_mtok")
"""What is billed beside that, for each request or for a part of what a model writes: a `Price` has no place for it."""
_NO_TIER = (None, Decimal(1))


@final
@dataclass(frozen=True, slots=True)
class Listed:
    """What the list says of a model.

    Args:
        source: The package with its version.
        window_tokens: Its window; `None` where the list does not say.
        price: Its price; `None` where the list has none, or one that no `Price` can hold exactly.
    """

    source: str
    window_tokens: int | None
    price: Price | None


@final
class _Opened(NamedTuple):
    """The list that is installed, and what it is called; else why it cannot be used, `None` where none is there."""

    snapshot: DataSnapshot | None = None
    source: str = ""
    trouble: str | None = None


def list_source() -> str | None:
    """Return what the installed list is called, with its version; `None` where there is none of any use."""
    return _opened().source or None


def list_trouble() -> str | None:
    """Return why the installed list, or a row of it, cannot be used; `None` where nothing is wrong, or none is there.

    What ships holds where it cannot: a list of prices takes no run down.
    """
    opened = _opened()
    if opened.snapshot is None:
        return opened.trouble
    try:
        for provider in opened.snapshot.providers:
            for row in provider.models:
                _read(row, opened.source)
    except Exception as exc:  # noqa: BLE001 - a broken package may raise anything, and it is for who asked
        return _said(exc)
    return None


@functools.lru_cache(maxsize=4096)
def listed(model: str) -> Listed | None:
    """Return what the list says of *model*, today; `None` where it does not know it, cannot be used or is not there."""
    opened = _opened()
    if opened.snapshot is None:
        return None
    try:
        found = _found(opened.snapshot, model)
        return None if found is None else _read(found, opened.source)
    except Exception:  # noqa: BLE001 - what it is, `list_trouble` says; what ships holds
        return None


@functools.cache
def _opened() -> _Opened:
    try:
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 # an extra

        return _Opened(get_snapshot(), f"`{PACKAGE}` {metadata.version(PACKAGE)}")
    except ModuleNotFoundError as exc:
        absent = (exc.name or "").partition(".")[0] == "genai_prices"
        return _Opened(trouble=None if absent else _said(exc))
    except Exception as exc:  # noqa: BLE001 - importing a broken package may raise anything
        return _Opened(trouble=_said(exc))


def _said(exc: Exception) -> str:
    return f"{type(exc).__name__}: {exc}"


def _found(snapshot: DataSnapshot, model: str) -> ModelInfo | None:
    """Return the row of *model*: of the vendor in front of it, else of whoever is known for such names."""
    vendor, _, name = model.rpartition("/")
    for provider in (vendor.rpartition("/")[2] or None, None):
        try:
            return snapshot.find_provider_model(name, None, provider, None)[1]
        except LookupError:
            continue
    return None


def _read(row: ModelInfo, source: str) -> Listed:
    window = row.context_window
    return Listed(source, window if window and window > 0 else None, _price(_amounts(row), source))


def _amounts(found: ModelInfo) -> Mapping[str, Any]:
    """Return what *found* costs today, by the names of the list; nothing where that depends on the hour."""
    from genai_prices.types import TimeOfDateConstraint  # noqa: PLC0415 # an extra

    prices = found.prices
    if isinstance(prices, list) and (
        not prices or any(isinstance(price.constraint, TimeOfDateConstraint) for price in prices)
    ):
        return {}
    return vars(found.get_prices(datetime.now(UTC)))


def _price(amounts: Mapping[str, Any], source: str) -> Price | None:
    """Return *amounts* of the list as a price; `None` for one with rules that a `Price` does not know."""
    sent = {name: amounts[key] for name, key in _INPUTS.items() if amounts.get(key) is not None}
    output = amounts.get("output_mtok")
    if "input" not in sent or output is None or any(amounts.get(key) is not None for key in _ELSE):
        return None
    tiers = {_tier(amount) for amount in sent.values()}
    long_output = _tier(output)
    if len(tiers) != 1 or None in tiers or long_output is None:
        return None
    (long,) = tiers
    assert long is not None
    if long_output[0] not in (None, long[0]):
        return None
    bases = {name: _base(amount) for name, amount in sent.items()}
    if not all(base.is_finite() and base >= 0 for base in (*bases.values(), _base(output))):
        return None
    return Price(
        **bases,
        output=_base(output),
        source=source,
        long_from_tokens=long[0],
        long_factor=long[1],
        long_output_factor=None if long_output == long else long_output[1],
    )


def _base(amount: Any) -> Decimal:
    return Decimal(getattr(amount, "base", amount))


def _tier(amount: Any) -> tuple[int | None, Decimal] | None:
    """Return from how many tokens on *amount* is billed at which multiple; `None` where that has several steps."""
    tiers = getattr(amount, "tiers", ())
    if not tiers:
        return _NO_TIER
    if len(tiers) > 1 or not amount.base:
        return None
    return tiers[0].start, tiers[0].price / amount.base
