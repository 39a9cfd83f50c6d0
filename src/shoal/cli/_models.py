"""`shoal models`: what is known of models, and who says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

import anyio
from cyclopts import Parameter

from shoal._config import model_profiles
from shoal._environment import providers_from
from shoal.cli._places import JsonOption
from shoal.cli._print import line, print_json, print_table, say, tokens
from shoal.errors import ConfigInvalid
from shoal.providers import ModelProfile, Price, Provider, VendorProvider, facts_of, shipped_models, shipped_profile

_PRICES = ("input", "output", "cache_read", "cache_write", "cache_write_long")


def command(
    model: Annotated[str | None, Parameter(help="One model, with everything that is known of it.")] = None,
    /,
    *,
    ask: Annotated[
        bool, Parameter(negative="", help="Ask the providers of the environment what they say of MODEL.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show what is known of models: limits, prices, and where each fact comes from."""
    if ask and model is None:
        raise ConfigInvalid("`--ask` asks about one model; name it, such as `shoal models claude-opus-5-5 --ask`")
    own = model_profiles()
    if model is None:
        known = {**{name: shipped_profile(name) for name in shipped_models()}, **own}
        profiles = list(known.values())
    elif ask:
        profiles = anyio.run(_asked, providers_from(), model)
    else:
        profiles = [own.get(model) or shipped_profile(model)]
    if as_json:
        print_json([as_object(profile) for profile in profiles])
    elif model is None:
        _list(profiles)
    else:
        for profile in profiles:
            _show(profile)
    return 0


async def _asked(providers: Sequence[Provider], model: str) -> list[ModelProfile]:
    """Return what each provider knows of *model* once its API was asked."""
    found: list[ModelProfile] = []
    for provider in providers:
        try:
            found.append(
                await provider.discover(model) if isinstance(provider, VendorProvider) else provider.profile(model)
            )
        finally:
            await provider.aclose()
    return found


def as_object(profile: ModelProfile) -> Mapping[str, Any]:
    """Return everything that is known of a model, by the keys of its row, and the source of each."""
    facts = facts_of(profile)
    values = {fact.key: _plain(fact.value) for fact in facts}
    return {"model": profile.model, **values, "sources": {fact.key: fact.source for fact in facts}}


def _plain(value: Any) -> Any:
    if not isinstance(value, Price):
        return value
    amounts = {name: getattr(value, name) for name in _PRICES}
    rules = {
        "long_from": value.long_from_tokens,
        "long_factor": None if value.long_from_tokens is None else value.long_factor,
        "long_output_factor": value.long_output_factor,
    }
    return {name: str(part) if isinstance(part, Decimal) else part for name, part in {**amounts, **rules}.items()}


def _list(profiles: Sequence[ModelProfile]) -> None:
    head = ("model", "context", "reply", "in", "out", "cached", "written", "cache", "price from")
    rows = [
        (
            line(profile.model),
            tokens(profile.window_tokens),
            tokens(profile.max_output_tokens),
            *_amounts(profile.price),
            profile.cache,
            "" if profile.price is None else line(profile.price.source),
        )
        for profile in profiles
    ]
    print_table(head, rows, right=head[1:7])
    say("", "Prices are in USD per million tokens; `?` is unknown. `shoal models MODEL` shows who says what.")


def _amounts(price: Price | None) -> tuple[str, str, str, str]:
    if price is None:
        return ("?", "?", "?", "?")
    read, written = price.cache_read, price.cache_write
    return (
        f"{price.input:f}",
        f"{price.output:f}",
        "" if read is None else f"{read:f}",
        "" if written is None else f"{written:f}",
    )


def _show(profile: ModelProfile) -> None:
    say(line(profile.model), "")
    print_table(("fact", "value", "from"), [(f.key, _said(f.value), line(f.source)) for f in facts_of(profile)])


def _said(value: Any) -> str:
    match value:
        case None:
            return "unknown"
        case bool():
            return "yes" if value else "no"
        case Price():
            named = {name: part for name, part in _plain(value).items() if part is not None}
            return ", ".join(f"{name} {part}" for name, part in named.items())
        case tuple():
            return line(", ".join(map(str, value))) or "none"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return line(str(value))
