"""What a blueprint's names stand for: which layout declares a region, what a stage sees, where its edges lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import final

from shoal.blueprints._model import ALWAYS_REGIONS, Blueprint, Edge, Region, Stage
from shoal.blueprints._report import Report, listed, shown
from shoal.blueprints._toml import Path
from shoal.blueprints._tools import stage_tools, tool_name

DEFAULT_LAYOUT = ("task", "stage_instructions", "conversation")
"""Names of the regions of a blueprint that declares none."""

SPECIAL = frozenset({"error", "max_iterations", "stuck", "dead_end"})
"""Conditions that are the runtime's to notice; the model is never offered such an edge."""


@final
class Names:
    """An index over one blueprint."""

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.stages = {stage.name: stage for stage in blueprint.stages}
        self.base = {region.name: region for region in blueprint.regions}
        self._base_names = frozenset(self.base) or frozenset(DEFAULT_LAYOUT)
        self._own = {stage.name: {r.name: r for r in stage.context.regions or ()} for stage in blueprint.stages}
        self.declared: dict[str, Region] = dict(self.base)
        for own in self._own.values():
            for name, region in own.items():
                self.declared.setdefault(name, region)
        order = [stage.name for stage in blueprint.stages]
        self._tools = {stage.name: frozenset(stage_tools(stage)) for stage in blueprint.stages}
        self._next = dict(pairwise(order))
        self.known = frozenset(self.declared) | self._base_names | frozenset(ALWAYS_REGIONS)

    def layouts(self) -> Iterator[tuple[Path, tuple[Region, ...]]]:
        """Yield every layout with the path of its table."""
        yield ("context", "regions"), self.blueprint.regions
        for stage in self.blueprint.stages:
            if stage.context.regions is not None:
                yield ("stages", stage.name, "context", "regions"), stage.context.regions

    def regions(self) -> Iterator[tuple[Path, Region]]:
        """Yield every declared region with its path, once for each layout that declares it."""
        for path, layout in self.layouts():
            for region in layout:
                yield (*path, region.name), region

    def sees(self, stage: Stage, region: str) -> bool:
        """Say whether *stage* sees *region*."""
        own = self._base_names if stage.context.regions is None else self._own[stage.name]
        return region in ALWAYS_REGIONS or (region in own and region not in stage.context.hide)

    def region(self, stage: Stage, name: str) -> tuple[Path, Region] | None:
        """Return how *stage* knows the region *name*, with its path; `None` where no layout declares it."""
        if name in self._own[stage.name]:
            return ("stages", stage.name, "context", "regions", name), self._own[stage.name][name]
        if name in self.base:
            return ("context", "regions", name), self.base[name]
        for other, own in self._own.items():
            if name in own:
                return ("stages", other, "context", "regions", name), own[name]
        return None

    def has_tool(self, stage: Stage, name: str) -> bool:
        """Say whether *stage* has the tool *name*, as far as can be known before its connectors are asked.

        A bare name may be a connector's tool, so with a connector each name may be there.
        """
        return tool_name(name) in self._tools[stage.name] or bool(stage.available_connectors)

    def edges(self, stage: Stage) -> tuple[Edge, ...]:
        """Return the edges of *stage*; those without a table lead to the next stage of the file."""
        if stage.transitions is not None:
            return stage.transitions
        after = self._next.get(stage.name)
        return () if after is None else (Edge(after),)

    def follows(self, stage: Stage) -> tuple[str, ...]:
        """Return the stages that a run may enter from *stage*, by an edge or by its fan-out."""
        merge = stage.fan_out.merge_stage if stage.fan_out is not None else None
        return tuple(edge.target for edge in self.edges(stage)) + ((merge,) if merge else ())


def ends(names: Names, stage: Stage) -> bool:
    """Say whether a run can end in *stage* as it should."""
    if stage.fan_out is not None and stage.fan_out.merge_stage is not None:
        return False
    return stage.allow_complete or all(edge.condition in SPECIAL for edge in names.edges(stage))


def offers(stage: Stage, tools: Iterable[str]) -> bool:
    """Say whether *stage* has one of *tools*."""
    return not frozenset(stage_tools(stage)).isdisjoint(tools)


def check_region(names: Names, path: Path, name: str, report: Report) -> bool:
    """Say whether some layout declares the region *name*, which the key at *path* names; add a problem if not."""
    if name in names.known:
        return True
    near = report.near(name, names.declared)
    message = f"no layout declares a region {shown(name)}{near}; declare it, or name another"
    report.error("unknown-region", path, message, about=[("context", "regions")])
    return False


def check_stage(names: Names, path: Path, name: str, report: Report) -> bool:
    """Say whether there is a stage *name*, which the key at *path* names; add a problem if not."""
    if name in names.stages:
        return True
    message = f"there is no stage {shown(name)}{report.near(name, names.stages)}; there are {listed(names.stages)}"
    report.error("unknown-stage", path, message, at="key", about=[("stages",)])
    return False


def check_shape(names: Names, report: Report) -> None:
    """Add what only a value from Python can be: two of one name, a fan-out without its mode or a mode without it."""
    for path, layout in names.layouts():
        for name in _repeated(region.name for region in layout):
            message = f"there are two regions `{name}` in one layout; rename one"
            report.error("duplicate-region", (*path, name), message)
    for name in _repeated(stage.name for stage in names.blueprint.stages):
        report.error("duplicate-stage", ("stages", name), f"there are two stages `{name}`; rename one")
    for stage in names.blueprint.stages:
        for name in _repeated(edge.target for edge in stage.transitions or ()):
            message = f"there are two edges to `{name}`; a stage has one edge for each target"
            report.error("duplicate-edge", ("stages", stage.name, "transitions", name), message)
        if (stage.mode == "fan_out") != (stage.fan_out is not None):
            message = (
                f"`{stage.name}` has the mode `{stage.mode}`; `fan_out` goes with the mode `fan_out` and with no other"
            )
            report.error("fan-out-worker", ("stages", stage.name, "mode"), message)


def _repeated(names: Iterable[str]) -> list[str]:
    counts = Counter(names)
    return [name for name, count in counts.items() if count > 1]
