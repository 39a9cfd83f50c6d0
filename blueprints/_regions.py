"""What must hold for regions, and for the tables beside them."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.blueprints._model import ALWAYS_REGIONS, BlueprintTransform, Observations, Region
from shoal.blueprints._names import Names, check_region
from shoal.blueprints._profiles import resolve_observations
from shoal.blueprints._report import Report, listed
from shoal.blueprints._toml import Path

_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "shed_to": ("temporary", "sliding_window", "compacting"),
    "max_items": ("sliding_window",),
    "strategy": ("sliding_window",),
    "overflow": ("sliding_window",),
    "compact_count": ("sliding_window",),
    "compact_at": ("compacting",),
    "threshold_tokens": ("compacting",),
    "source_region": ("compact_history",),
    "max_entries": ("hashmap",),
    "script": ("custom",),
    "pinned": ("custom",),
}
_UNSET = Region("")


def check_regions(names: Names, report: Report) -> None:
    """Add what is wrong with the regions of a blueprint."""
    for path, region in names.regions():
        _check_kind(path, region, report)
        _check_source(names, path, region, report)
        _check_tail(path, region, report)
        _check_companions(path, region, report)
    _check_tracking(names, report)
    _check_observations(names, report)
    for index, transform in enumerate(names.blueprint.transforms):
        _check_transform(names, ("transforms", index), transform, report)


def _check_kind(path: Path, region: Region, report: Report) -> None:
    about = [(*path, "kind")]
    for key, kinds in _OF_KIND.items():
        if region.kind not in kinds and getattr(region, key) != getattr(_UNSET, key):
            message = f"`{key}` belongs to {listed(kinds)}, and `{region.name}` is `{region.kind}`; leave it out"
            report.soft("key-without-effect", (*path, key), message, at="key", about=about)
    if region.kind == "custom" and region.script is None:
        message = f'`{region.name}` is `custom` and has no script; write `script = "scripts/{region.name}.py"`'
        report.error("custom-without-script", path, message, at="key", about=[(*path, "script")])


def _check_source(names: Names, path: Path, region: Region, report: Report) -> None:
    source, here = region.source_region, (*path, "source_region")
    if region.kind != "compact_history":
        return
    if source is None:
        message = f"`{region.name}` carries on no region's summaries; write `source_region`"
        report.error("history-without-source", path, message, at="key", about=[here])
    elif check_region(names, here, source, report) and source == region.name:
        message = f"`{region.name}` would carry on its own summaries; name another region in `source_region`"
        report.error("history-without-source", here, message)


def _check_tail(path: Path, region: Region, report: Report) -> None:
    if region.placement != "tail":
        return
    if region.volatility != "rewritten":
        message = f"only a `rewritten` region may stand at the tail, and `{region.name}` is `{region.volatility}`"
        report.error("tail-not-rewritten", (*path, "placement"), message, about=[(*path, "volatility")])
    if region.kind == "sliding_window" or region.name in ALWAYS_REGIONS:
        message = f"`{region.name}` has a place of its own in every prompt; leave `placement` out"
        report.error("tail-not-movable", (*path, "placement"), message, about=[(*path, "kind")])


def _check_companions(path: Path, region: Region, report: Report) -> None:
    """Check keys that need another key beside them."""
    for key, needs, lacks in (
        ("required_message", "required", not region.required),
        ("describe_in_prompt", "description", not region.description),
    ):
        if lacks and getattr(region, key):
            message = f"`{key}` has no effect without `{needs}`; write that, or leave it out"
            report.warning("key-without-effect", (*path, key), message, at="key")


def _check_tracking(names: Names, report: Report) -> None:
    tracking = names.blueprint.file_tracking
    if tracking is None:
        return
    known = names.declared.get(tracking.region)
    if known is None or known.kind != "hashmap":
        what = "is declared by no layout" if known is None else f"is `{known.kind}`"
        message = f"files are kept in a `hashmap`, and `{tracking.region}` {what}; declare it as one"
        path = ("context", "file_tracking", "region")
        report.soft("file-tracking-region", path, message, about=[("context", "regions", tracking.region, "kind")])


def _check_observations(names: Names, report: Report) -> None:
    base = names.blueprint.observations
    if base is not None:
        _check_knobs(("context", "observations"), resolve_observations(base), report)
    for stage in names.blueprint.stages:
        own = stage.context.observations
        if own is not None:
            _check_knobs(("stages", stage.name, "context", "observations"), resolve_observations(base, own), report)


def _check_knobs(path: Path, knobs: Observations, report: Report) -> None:
    for low, high in (("soft_cap_chars", "hard_cap_chars"), ("min_tail_turns", "observation_window")):
        if getattr(knobs, low) > getattr(knobs, high):
            message = (
                f"`{low}` comes to {getattr(knobs, low)}, above `{high}`, which comes to {getattr(knobs, high)} "
                f"(profile `{knobs.profile}`); lower the first or raise the second"
            )
            report.error("observations-order", (*path, low), message)


def _check_transform(names: Names, path: Path, transform: BlueprintTransform, report: Report) -> None:
    own = names.blueprint.name
    ends = {"from_region": transform.from_blueprint, "to_region": transform.to_blueprint}
    if own not in ends.values():
        message = f"neither end is this blueprint, `{own}`; it would never be applied"
        report.warning("transform-of-others", path, message, at="key")
    for index, mapping in enumerate(transform.mappings):
        here: Path = (*path, "mappings", index)
        for key, blueprint in ends.items():
            name = getattr(mapping, key)
            if blueprint == own:
                check_region(names, (*here, key), name, report)
        if (mapping.transform == "extract") != bool(mapping.fields):
            message = "`extract` needs `fields`, and nothing else takes them; write both or neither"
            report.error("transform-fields", here, message, at="key", about=[(*here, "fields"), (*here, "transform")])
