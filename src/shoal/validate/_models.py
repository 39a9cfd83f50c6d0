"""Models: who is named, who can be reached, and what the budgets come to on them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from shoal.blueprints import Blueprint, ModelChoice, ModelSettings, Region
from shoal.providers import ModelProfile, Provider, shipped_models, shipped_profile
from shoal.runtime.context import declared, resolve
from shoal.validate._finding import Findings, error, note, regions_of, warning

CLOSED = frozenset({"anthropic", "gemini", "openai"})
"""Providers that serve what they list and nothing else."""
LEAST_ROOM = 8_000
"""Tokens that fixed regions have to leave to work in, on a window that is worth the name."""
_SMALL_WINDOW = 20_000
_EVICTING = frozenset({"temporary", "sliding_window", "compacting", "clearable", "hashmap"})
_FIXED = frozenset({"pinned", "hashmap", "compact_history", "checklist"})


@final
@dataclass(frozen=True, slots=True)
class Named:
    """A model that a blueprint names: how it names it, where, and what is known of it (`None` for nothing)."""

    label: str
    key: str
    choice: ModelChoice
    profile: ModelProfile | None


def named_models(blueprint: Blueprint, providers: Sequence[Provider] = ()) -> tuple[Named, ...]:
    """Return the models that *blueprint* names, each once, in the order of the file."""
    found: dict[str, Named] = {}
    by_name = {provider.name: provider for provider in providers}
    for key, settings in _settings(blueprint):
        for choice in settings.models:
            provider = by_name.get(choice.provider)
            model = choice.model or (None if provider is None else provider.default_model)
            label = f"{choice.provider}:{model or 'its default'}"
            found.setdefault(label, Named(label, key, choice, _profile(provider, model)))
    return tuple(found.values())


def _settings(blueprint: Blueprint) -> Iterator[tuple[str, ModelSettings]]:
    if blueprint.model is not None:
        yield "defaults.model", blueprint.model
    for stage in blueprint.stages:
        if stage.model is not None:
            yield f"stages.{stage.name}.model", stage.model


def _profile(provider: Provider | None, model: str | None) -> ModelProfile | None:
    if model is None:
        return None
    if provider is not None:
        return provider.profile(model)
    return shipped_profile(model) if is_known(model) else None


def is_known(model: str) -> bool:
    """Say whether the table of models has *model*."""
    profile = shipped_profile(model)
    nobody = shipped_profile("no such model")
    return replace(nobody, model=profile.model, window_key=profile.window_key) != profile


def largest() -> ModelProfile:
    """Return the model with the largest window that is known."""
    return max((shipped_profile(model) for model in shipped_models()), key=lambda profile: profile.window_tokens)


# --- who


def check_models(models: Sequence[Named]) -> Findings:
    """Yield the models of closed catalogues that are in none."""
    for named in models:
        model = named.choice.model
        if named.choice.provider in CLOSED and model is not None and not is_known(model):
            near = difflib.get_close_matches(model, shipped_models(), n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            said = f"{named.label!r} is in no list of models that is known here{hint}; its window and price are guessed"
            yield warning("unknown-model", named.key, said)


def check_reach(blueprint: Blueprint, providers: Sequence[Provider]) -> Findings:
    """Yield the lists of models of which no provider is here."""
    here = {provider.name for provider in providers}
    if not here or any(getattr(provider, "stands_in", False) for provider in providers):
        return
    for key, settings in _settings(blueprint):
        if settings.models and not any(choice.provider in here for choice in settings.models):
            tried = ", ".join(f"`{choice.provider}`" for choice in settings.models)
            listed = ", ".join(f"`{name}`" for name in sorted(here))
            yield warning("no-reachable-provider", key, f"none of {tried} is configured here; there is {listed}")


def check_default(blueprint: Blueprint, providers: Sequence[Provider], default_model: str | None) -> Findings:
    """Yield the lists of models that stand in another order for who prefers *default_model*."""
    preferred = ModelChoice.of(default_model or "")
    provider = next((provider for provider in providers if provider.name == preferred.provider), None)
    if provider is None:
        return
    for key, settings in _settings(blueprint):
        led = settings.led_by(preferred, provider.default_model)
        if led != settings.models:
            order = ", ".join(f"`{choice.provider}:{choice.model or 'its default'}`" for choice in led)
            said = f"your `default_model` leads: {order}; `allow_user_default = false` in the blueprint ends that"
            yield note("user-default-leads", key, said)


# --- how much


def check_budgets(blueprint: Blueprint, models: Sequence[Named]) -> Findings:
    """Yield what the budgets of regions come to on large models, and fixed ones that leave no room."""
    top = largest()
    for key, region in regions_of(blueprint):
        if region.budget is None:
            continue
        share = resolve(replace(region, max_tokens=None), top.window_tokens).budget
        if region.max_tokens is None:
            if region.kind in _EVICTING:
                said = f"`{region.name}` may hold {share:,} tokens on {top.model!r}; cap it with `max_tokens`"
                yield warning("unbounded-percentage-budget", f"{key}.budget", said)
        elif region.max_tokens < share:
            said = f"on {top.model!r} the share would be {share:,} tokens; `max_tokens` makes it {region.max_tokens:,}"
            yield note("cap-cancels-percentage", f"{key}.max_tokens", said)
    yield from _check_room(blueprint, models)


def _check_room(blueprint: Blueprint, models: Sequence[Named]) -> Findings:
    layouts: list[tuple[str, Sequence[Region]]] = [("context.regions", declared(blueprint))]
    layouts += [
        (f"stages.{stage.name}.context.regions", stage.context.regions)
        for stage in blueprint.stages
        if stage.context.regions is not None
    ]
    for named in models:
        window = 0 if named.profile is None else named.profile.window_tokens
        for key, regions in layouts:
            taken = sum(resolve(region, window).budget for region in regions if _is_fixed(region))
            if window >= _SMALL_WINDOW and window - taken < LEAST_ROOM:
                said = (
                    f"regions that give nothing up may take {taken:,} of the {window:,} tokens of {named.label}, "
                    f"which leaves less than {LEAST_ROOM:,} to work in; lower their budgets"
                )
                yield error("too-little-room", key, said)


def _is_fixed(region: Region) -> bool:
    return region.kind in _FIXED or (region.kind == "custom" and region.pinned)


def resolved_budgets(blueprint: Blueprint, models: Sequence[Named]) -> Mapping[str, Mapping[str, int]]:
    """Return each region's budget in tokens on every model that is named and on the largest that is known.

    Returns:
        Tokens by the label of the model, by region; a region of a stage's own layout stands under `STAGE.REGION`.
    """
    windows = {named.label: named.profile.window_tokens for named in models if named.profile is not None}
    top = largest()
    windows.setdefault(f"largest known ({top.model})", top.window_tokens)
    rows = [(region.name, region) for region in declared(blueprint)]
    for stage in blueprint.stages:
        rows += [(f"{stage.name}.{region.name}", region) for region in stage.context.regions or ()]
    return {name: {label: resolve(region, window).budget for label, window in windows.items()} for name, region in rows}
