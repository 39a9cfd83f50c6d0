"""What must hold for edges: targets, conditions, gates, transforms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from shoal.blueprints._model import Edge, Gate, Region, Stage
from shoal.blueprints._names import SPECIAL, Names, check_region, check_stage
from shoal.blueprints._report import Report, listed, shown
from shoal.blueprints._toml import Path
from shoal.blueprints._tools import MODIFYING, stage_tools

_THRESHOLDS = (
    "stuck_after_iterations",
    "stuck_after_minutes",
    "stuck_after_same_file_edits",
    "stuck_after_tool_calls",
)
_LISTS = ("carry", "compact", "clear")
_PROTECTED = frozenset({"pinned", "compact_history", "hashmap", "checklist"})
_UNSET = Gate()


def check_edges(names: Names, path: Path, stage: Stage, report: Report) -> None:
    """Add what is wrong with the edges of *stage*, which stands at *path*."""
    special: dict[str, str] = {}
    for edge in stage.transitions or ():
        here = (*path, "transitions", edge.target)
        _check_target(names, here, stage, edge, report)
        first = special.setdefault(edge.condition, edge.target) if edge.condition in SPECIAL else edge.target
        if first != edge.target:
            message = (
                f"the edge to `{first}` has the condition `{edge.condition}` already, and the first is taken; drop one"
            )
            report.warning("edge-never-taken", (*here, "condition"), message)
        _check_stuck(here, edge, report)
        _check_transform(names, here, stage, edge, report)
        if edge.gate is not None:
            _check_gate(names, (*here, "gate"), stage, edge, edge.gate, report)


def _check_target(names: Names, path: Path, stage: Stage, edge: Edge, report: Report) -> None:
    known = check_stage(names, path, edge.target, report)
    if known and edge.target == stage.name and stage.max_revisits is None:
        message = f"`{stage.name}` leads to itself without a limit; write `max_revisits` in the stage"
        about = [("stages", stage.name, "max_revisits")]
        report.error("self-edge-without-max-revisits", path, message, at="key", about=about)


def _check_stuck(path: Path, edge: Edge, report: Report) -> None:
    written = [key for key in _THRESHOLDS if getattr(edge, key) is not None]
    about = [(*path, key) for key in ("condition", "stuck_after_s", *_THRESHOLDS)]
    if edge.condition == "stuck" and not written:
        message = f"an edge for `stuck` needs a threshold; write one of {listed(_THRESHOLDS)}"
        report.error("stuck-without-threshold", path, message, at="key", about=about)
    if edge.condition != "stuck":
        for key in written:
            message = f"`{key}` belongs to the condition `stuck`, and this edge is `{edge.condition}`; change one"
            report.error("threshold-without-stuck", (*path, key), message, at="key", about=about)


# --- transforms


def is_protected(region: Region) -> bool:
    """Say whether no edge transform ever touches *region*."""
    return region.kind in _PROTECTED or region.admission == "reject" or (region.kind == "custom" and region.pinned)


def _check_transform(names: Names, path: Path, stage: Stage, edge: Edge, report: Report) -> None:
    config, here = edge.transform_config, (*path, "transform_config")
    if config is None:
        if edge.transform == "custom":
            message = "a `custom` transform says what it does in `transform_config`; write it"
            report.error("transform-config-missing", (*path, "transform"), message, about=[here])
        return
    if edge.transform != "custom" and (config.carry or config.compact or config.clear):
        message = f"the lists of `transform_config` belong to `custom`, and this transform is `{edge.transform}`"
        report.warning("key-without-effect", here, message, at="key")
    seen: dict[str, str] = {}
    for key in _LISTS:
        for index, name in enumerate(getattr(config, key)):
            _check_transformed(names, (*here, key, index), stage, key, name, report)
            first = seen.setdefault(name, key)
            if first != key:
                message = f"`{name}` stands in `{first}` and in `{key}`; keep one of them"
                report.error("transform-contradiction", (*here, key, index), message)


def _check_transformed(names: Names, path: Path, stage: Stage, key: str, name: str, report: Report) -> None:
    if not check_region(names, path, name, report) or key == "carry":
        return
    found = names.region(stage, name)
    if found is None:
        return
    region = found[1]
    may_clear = key == "clear" and region.admission == "reject" and region.kind not in _PROTECTED and not region.pinned
    if is_protected(region) and not may_clear:
        message = f"`{name}` is never touched by a transform ({_why(region)}); take it out of `{key}`"
        report.warning("transform-protected", path, message)
    elif key == "compact" and not region.summarizable:
        message = f"`{name}` has `summarizable = false`, so it is never summarised; take it out of `compact`"
        report.warning("transform-protected", path, message)


def _why(region: Region) -> str:
    return "`admission` is `reject`" if region.admission == "reject" else f"it is `{region.kind}`"


# --- gates


def _check_gate(names: Names, path: Path, stage: Stage, edge: Edge, gate: Gate, report: Report) -> None:
    if edge.condition in SPECIAL:
        message = f"an edge for `{edge.condition}` is taken without asking its gate; leave the gate out"
        report.warning("key-without-effect", path, message, at="key")
    elif not _requires(gate):
        message = "the gate requires nothing; write what must hold, or leave it out"
        report.warning("gate-without-effect", path, message, at="key")
    for key, name in _regions_of(gate):
        check_region(names, (*path, *key), name, report)
    _check_items(names, path, stage, gate, report)
    _check_modifying(names, path, stage, gate, report)


def _requires(gate: Gate) -> bool:
    keys = [field.name for field in fields(gate) if field.name.startswith("require_")]
    return any(getattr(gate, key) != getattr(_UNSET, key) for key in keys)


def _regions_of(gate: Gate) -> Iterator[tuple[Path, str]]:
    for key in ("region", "require_region_updated", "require_no_open_items"):
        if (name := getattr(gate, key)) is not None:
            yield (key,), name
    yield from ((("require_regions", index), name) for index, name in enumerate(gate.require_regions))


def _check_items(names: Names, path: Path, stage: Stage, gate: Gate, report: Report) -> None:
    name = gate.require_no_open_items
    if name is None or name not in names.known:
        return
    found = names.region(stage, name)
    kind = found[1].kind if found else None
    if kind != "checklist":
        what = f"is `{kind}`" if kind else "has no items"
        message = f"only a `checklist` has open items, and `{name}` {what}; name a checklist"
        about = [(*found[0], "kind")] if found else []
        report.error("gate-needs-checklist", (*path, "require_no_open_items"), message, about=about)


def _check_modifying(names: Names, path: Path, stage: Stage, gate: Gate, report: Report) -> None:
    tools, about = stage_tools(stage), [("stages", stage.name, "available_tools"), (*path, "tools")]
    if not gate.require_modifications:
        for key in ("region", "tools"):
            if getattr(gate, key):
                message = f"`{key}` has no effect without `require_modifications = true`; write that, or leave it out"
                report.warning("key-without-effect", (*path, key), message, at="key")
    elif MODIFYING.isdisjoint(tools) and not any(names.has_tool(stage, name) for name in gate.tools):
        message = (
            f"the stage has no tool that modifies ({listed(sorted(MODIFYING))}, or one that `tools` names); add one"
        )
        report.error("gate-needs-modifying-tool", (*path, "require_modifications"), message, about=about)
    for index, name in enumerate(gate.tools):
        if not names.has_tool(stage, name):
            message = f"the stage has no tool {shown(name)}{report.near(name, tools)}; add it to `available_tools`"
            report.error("gate-unknown-tool", (*path, "tools", index), message, about=about)
