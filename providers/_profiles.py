"""What is known of models, as data: rows that ship in `models.toml`, and the user's own in front of them."""

from __future__ import annotations

import difflib
import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from importlib import resources
from typing import Any, NamedTuple, final

from shoal.errors import ConfigInvalid
from shoal.providers._intake import COUNTINGS
from shoal.providers._json import as_list, as_object, as_text
from shoal.providers._listed import Listed, listed
from shoal.providers._tokens import TOKENIZERS
from shoal.providers._values import EFFORTS, ModelProfile, Price

_DATE_SUFFIX = re.compile(r"[-@](?:\d{8}|\d{4}-\d{2}-\d{2})$")
_MIME = re.compile(r"[a-z0-9.+-]+/(?:\*|[a-z0-9.+-]+)|\*/\*")
_CACHES = ("none", "prefix", "markers")
_ROW_KEYS = (
    "append_only",
    "cache",
    "context",
    "counts_parts",
    "efforts",
    "forced_tools",
    "input_types",
    "max_output",
    "mid_system",
    "min_cacheable",
    "price",
    "structured_output",
    "temperature",
    "thinking",
    "tokenizer",
    "turn_system",
)
_THINKING = ("adaptive", "between_tools", "budget", "disabled", "enabled", "level")
_FLAT_PRICES = ("input", "output", "cache_read", "cache_write", "cache_write_long")
_PRICE_KEYS = (*_FLAT_PRICES, "long_from", "long_factor", "long_output_factor")


def shipped_profile(model: str) -> ModelProfile:
    """Return what is known of *model* here; a cautious profile without a price where nothing is.

    That is its row in the shipped table, with the window and the price of the list of `shoal[prices]` in front, where
    that is installed. A vendor in front (`vendor/model`), a date behind, and dots for dashes do not matter.
    """
    known = _shipped().get(_key(model))
    unknown = ModelProfile(model, window_key=_window_key(model))
    shipped = unknown if known is None else replace(known, model=model, window_key=unknown.window_key)
    found = listed(model)
    return shipped if found is None else _with_listed(shipped, found)


def shipped_source() -> str:
    """Return where the rows that ship come from, with their date."""
    return f"`models.toml` ({_table()['source']})"


def _with_listed(shipped: ModelProfile, found: Listed) -> ModelProfile:
    made = shipped
    if found.window_tokens is not None:
        made = replace(made, window_tokens=found.window_tokens, window_source=found.source)
        made = made.told(found.source, "context")
    if found.price is not None:
        price = _completed(found.price, shipped.price)
        made = replace(made, price=price).told(price.source, "price")
    return made


def _completed(price: Price, shipped: Price | None) -> Price:
    """Return *price* with what a longer lifetime costs by what ships, where the list does not say and they agree."""
    if shipped is None or shipped.cache_write_long is None or price.cache_write_long is not None:
        return price
    if price.cache_write is None or price.cache_write != shipped.cache_write:
        return price
    source = f"{price.source}, `cache_write_long` from {shipped.source}"
    return replace(price, cache_write_long=shipped.cache_write_long, source=source)


_FIELDS: Mapping[str, str] = {
    "context": "window_tokens",
    "max_output": "max_output_tokens",
    "min_cacheable": "min_cacheable_tokens",
}
"""Fields of a profile whose key has another name."""
DEFAULT = "the default for an unknown model"
REPORTED = "the vendor's API"


@final
class Fact(NamedTuple):
    """One thing that is known of a model: the key of its row, what it says, and who says so."""

    key: str
    value: Any
    source: str


def facts_of(profile: ModelProfile) -> tuple[Fact, ...]:
    """Return everything that is known of a model, in the order of its row's keys."""
    sources = dict(profile.sources)
    return tuple([Fact(key, getattr(profile, _FIELDS.get(key, key)), sources.get(key, DEFAULT)) for key in _ROW_KEYS])


def reported(before: ModelProfile, after: ModelProfile) -> ModelProfile:
    """Return *after*, which an API made of *before*, with that API as the source of what it changed."""
    known = {fact.key: fact.value for fact in facts_of(before)}
    return after.told(REPORTED, *[fact.key for fact in facts_of(after) if fact.value != known[fact.key]])


def shipped_models() -> tuple[str, ...]:
    """Return the names of the models that the shipped table knows, in its order."""
    return tuple([profile.model for profile in _shipped().values()])


def profiles_from(
    rows: Mapping[str, Mapping[str, Any]], *, source: str, base: Mapping[str, ModelProfile] | None = None
) -> dict[str, ModelProfile]:
    """Return profiles for the user's own *rows*, each laid over what is known of its model.

    Args:
        rows: By model: the keys of a row in `models.toml`, each of them optional.
        source: Where the rows stand, for messages.
        base: Profiles that come first; `None`, or a model that is not among them, takes the shipped table.

    Raises:
        ConfigInvalid: A key is unknown, or a value is of no use.
    """
    known = base or {}
    return {model: _laid_over(known.get(model) or shipped_profile(model), row, source) for model, row in rows.items()}


@functools.cache
def _shipped() -> dict[str, ModelProfile]:
    rows = _table()["models"]
    return {_key(model): _laid_over(ModelProfile(model), row, shipped_source()) for model, row in rows.items()}


@functools.cache
def _table() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("shoal.providers").joinpath("models.toml").read_text("utf-8"))


def _key(model: str) -> str:
    return _DATE_SUFFIX.sub("", model.rpartition("/")[2].lower()).replace(".", "-")


def _window_key(model: str) -> str:
    return f'[models."{model}"] context'


def _laid_over(base: ModelProfile, row: Mapping[str, Any], source: str) -> ModelProfile:
    where = f'[models."{base.model}"] of {source}'
    _check_keys(row, _ROW_KEYS, where)
    cache = row.get("cache", base.cache)
    if cache not in _CACHES:
        raise ConfigInvalid(f"`cache` is {cache!r} in {where}; write one of {', '.join(_CACHES)}")
    return replace(
        base,
        window_tokens=_tokens(row, "context", base.window_tokens, where, least=1),
        max_output_tokens=_tokens(row, "max_output", base.max_output_tokens, where, least=1),
        min_cacheable_tokens=_tokens(row, "min_cacheable", base.min_cacheable_tokens, where, least=0),
        cache=cache,
        counts_parts=_counting(row, base.counts_parts, where),
        append_only=_flag(row, "append_only", where, default=base.append_only),
        forced_tools=_flag(row, "forced_tools", where, default=base.forced_tools),
        mid_system=_flag(row, "mid_system", where, default=base.mid_system),
        structured_output=_flag(row, "structured_output", where, default=base.structured_output),
        temperature=_flag(row, "temperature", where, default=base.temperature),
        turn_system=_flag(row, "turn_system", where, default=base.turn_system),
        input_types=_mimes(row, base.input_types, where),
        thinking=_words(row, "thinking", base.thinking, _THINKING, where),
        efforts=_words(row, "efforts", base.efforts, EFFORTS, where),
        tokenizer=_tokenizer(row, base.tokenizer, where),
        price=_price(row["price"], source, where) if "price" in row else base.price,
        window_source=source if "context" in row else base.window_source,
        window_key=_window_key(base.model),
        sources=tuple({**dict(base.sources), **dict.fromkeys(row, source)}.items()),
    )


def _flag(row: Mapping[str, Any], name: str, where: str, *, default: bool) -> bool:
    value = row.get(name, default)
    if not isinstance(value, bool):
        raise ConfigInvalid(f"`{name}` is {value!r} in {where}; write true or false")
    return value


def _counting(row: Mapping[str, Any], default: str, where: str) -> str:
    value = row.get("counts_parts", default)
    if value not in COUNTINGS:
        raise ConfigInvalid(f"`counts_parts` is {value!r} in {where}; write one of {', '.join(COUNTINGS)}")
    return str(value)


def _words(
    row: Mapping[str, Any], name: str, default: tuple[str, ...] | None, known: tuple[str, ...], where: str
) -> tuple[str, ...] | None:
    if name not in row:
        return default
    if not isinstance(row[name], list | tuple):
        raise ConfigInvalid(f"`{name}` is {row[name]!r} in {where}; write a list of {', '.join(known)}")
    words = tuple(as_list(row[name]))
    for word in words:
        if word not in known:
            raise ConfigInvalid(f"`{name}` holds {word!r} in {where}; it takes {', '.join(known)}")
    return words


def _mimes(row: Mapping[str, Any], default: tuple[str, ...], where: str) -> tuple[str, ...]:
    if "input_types" not in row:
        return default
    types = as_list(row["input_types"])
    if not types or not all(_MIME.fullmatch(as_text(one)) for one in types):
        raise ConfigInvalid(
            f"`input_types` is {row['input_types']!r} in {where}; write a list of mime patterns such as `image/*`"
        )
    return tuple(types)


def _tokenizer(row: Mapping[str, Any], default: str, where: str) -> str:
    value = row.get("tokenizer", default)
    if value not in TOKENIZERS:
        raise ConfigInvalid(f"`tokenizer` is {value!r} in {where}; write one of {', '.join(TOKENIZERS)}")
    return str(value)


def _price(said: object, source: str, where: str) -> Price:
    row = as_object(said)
    _check_keys(row, _PRICE_KEYS, f"`price` in {where}")
    if not {"input", "output"} <= row.keys():
        raise ConfigInvalid(f"`price` in {where} is {said!r}; give at least `input` and `output`")
    amounts = {name: _amount(row[name], name, where) for name in _FLAT_PRICES if name in row}
    return Price(
        **amounts,
        long_from_tokens=_tokens(row, "long_from", 0, where, least=1) if "long_from" in row else None,
        long_factor=_amount(row.get("long_factor", 1), "long_factor", where),
        long_output_factor=_amount(row["long_output_factor"], "long_output_factor", where)
        if "long_output_factor" in row
        else None,
        source=source,
    )


def _amount(value: object, name: str, where: str) -> Decimal:
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        amount = Decimal(-1)
    if not amount.is_finite() or amount < 0:
        raise ConfigInvalid(f"`{name}` is {value!r} in {where}; write USD per million tokens, 0 or more")
    return amount


def _tokens(row: Mapping[str, Any], name: str, default: int, where: str, *, least: int) -> int:
    value = row.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigInvalid(f"`{name}` is {value!r} in {where}; write a whole number of tokens, {least} or more")
    return value


def _check_keys(row: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"it takes {', '.join(f'`{name}`' for name in known)}"
            raise ConfigInvalid(f"{where} has the unknown key {key!r}; {hint}")
